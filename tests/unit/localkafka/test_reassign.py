from types import SimpleNamespace
from typing import Any

import pytest

from discovery.core.errors import KafkaUnreachableError
from discovery.localkafka.reassign import _are_off, _partitions, _placement


def _partition(*replicas: int) -> Any:
    return SimpleNamespace(leader=replicas[0], replicas=list(replicas), isrs=list(replicas))


EMPTIED = {("t", 0): _partition(2, 3)}
HELD = {("t", 0): _partition(1, 3)}


def test_given_a_broker_that_does_not_know_the_topic_yet_when_planned_then_another_names_its_replicas() -> None:
    assert _placement([{}, None, HELD]) == {("t", 0): [1, 3]}


def test_given_no_answer_when_planned_then_it_is_an_error() -> None:
    with pytest.raises(KafkaUnreachableError):
        _placement([None])


@pytest.mark.parametrize(
    ("answers", "off"),
    [
        ([EMPTIED, EMPTIED], True),
        ([EMPTIED, HELD], False),
        ([EMPTIED, {}], False),
        ([{}, EMPTIED], False),
        ([EMPTIED, None], False),
        ([None], False),
        ([], False),
    ],
    ids=[
        "all agree",
        "one is late",
        "one does not know the topic",
        "the first does not",
        "one is silent",
        "all",
        "none",
    ],
)
def test_given_answers_of_brokers_when_asked_whether_a_broker_is_empty_then_all_must_agree(
    answers: Any, *, off: bool
) -> None:
    assert _are_off(answers, [1]) is off


@pytest.mark.parametrize(
    ("answered_by", "known", "asked"),
    [([1], True, 1), ([2, 3, 1], True, 3), ([-1], True, 1), ([None], False, 1), ([2] * 12, False, 12)],
    ids=["itself", "others first", "an id it does not know yet", "silent", "always another"],
)
def test_given_a_broker_when_asked_then_only_its_own_answer_counts(
    answered_by: Any, asked: int, *, known: bool
) -> None:
    answers = [
        None if broker_id is None else SimpleNamespace(orig_broker_id=broker_id, topics={}) for broker_id in answered_by
    ]
    clients: list[list[int]] = []

    def admin(ids: list[int]) -> Any:
        clients.append(ids)
        return SimpleNamespace(metadata=lambda: answers.pop(0))

    members: Any = SimpleNamespace(admin=admin)
    assert (_partitions(members, 1) is not None) is known
    assert clients == [[1]] * asked
