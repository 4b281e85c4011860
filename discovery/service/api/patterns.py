"""Expressions that followers send: which of them are cheap enough to be matched here, and what each one matches.

Python's matching cannot be interrupted and holds the interpreter: an expression that tries all ways through a topic's
name would stop probes, metrics and every other follower. So its ways are counted before it is used. What is too dear is
not refused: the follower gets every topic and chooses itself, as it does anyway.
"""

import importlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from discovery.core.interest import Interest
from discovery.core.model import TopicName, TopicPartition

_LONGEST_NAME = 249
"""Kafka's limit of a topic's name."""
_LONGEST_PATTERN = 1_000
_MOST_STEPS = 250_000
"""Per name, at worst: a few milliseconds. One `.*` anywhere, or two behind a `^`, stay below."""
_MOST_PATTERNS = 64
_NEVER = float("inf")
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_GROUPS = frozenset({"SUBPATTERN", "ATOMIC_GROUP"})
_HARD = frozenset({"ASSERT", "ASSERT_NOT", "GROUPREF", "GROUPREF_EXISTS"})
_BEGINNINGS = frozenset({"AT_BEGINNING", "AT_BEGINNING_STRING"})


def is_cheap(pattern: str) -> bool:
    """Tell whether an expression that compiles can be matched with topic names in bounded time.

    Runs: anywhere (pure); O(length of the pattern).
    """
    if len(pattern) > _LONGEST_PATTERN:
        return False
    try:
        # The standard library's own parser; should it move, no expression is cheap, and followers choose themselves.
        items = list(importlib.import_module("re._parser").parse(pattern))
        return _starts(items) * _ways(items) <= _MOST_STEPS
    except Exception:  # noqa: BLE001 - what cannot be judged is not used
        return False


class Patterns:
    """What expressions matched before: each name is tried once. Event loop's thread only."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: OrderedDict[str, dict[TopicName, bool]] = OrderedDict()

    def chosen(self, interest: Interest | None, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that an interest wants, in order; all where there is none."""
        if interest is None:
            return list(partitions)
        wants = interest.wants if interest.pattern is None else self._matcher(interest, interest.pattern)
        return [tp for tp in partitions if wants(tp)]

    def _matcher(self, interest: Interest, pattern: str) -> Callable[[TopicPartition], bool]:
        known = self._known.setdefault(pattern, {})
        self._known.move_to_end(pattern)
        while len(self._known) > _MOST_PATTERNS:
            self._known.popitem(last=False)

        def wants(tp: TopicPartition) -> bool:
            if tp.topic not in known:
                known[tp.topic] = interest.wants_topic(tp.topic)
            return known[tp.topic]

        return wants


def _starts(items: list[tuple[Any, Any]]) -> int:
    anchored = bool(items) and str(items[0][0]) == "AT" and str(items[0][1]) in _BEGINNINGS
    return 1 if anchored else _LONGEST_NAME


def _ways(items: Iterable[tuple[Any, Any]]) -> float:
    """Bound in how many ways a sequence can match from one place."""
    ways = 1.0
    for operation, argument in items:
        ways *= _ways_of(str(operation), argument)
    return ways


def _ways_of(operation: str, argument: Any) -> float:
    if operation in _HARD:
        return _NEVER
    if operation in _REPEATS:
        return _ways_of_repeat(*argument)
    if operation == "BRANCH":
        return sum(_ways(branch) for branch in argument[1])
    if operation in _GROUPS:
        return _ways(argument[-1] if operation == "SUBPATTERN" else argument)
    return 1.0


def _ways_of_repeat(least: int, most: int, inner: Iterable[tuple[Any, Any]]) -> float:
    ways = _ways(inner)
    if ways > 1 and most > 1:
        return _NEVER  # a choice within a repeat: 2 ** n
    return max(1, least) * (min(most, least + _LONGEST_NAME) - least + 1) * ways
