"""What the models of the protocols share: the walk through every state, and what it must show."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

S = TypeVar("S")


class BrokenError(Exception):
    """A step showed rows lost, repeated or torn, or rules that contradict themselves."""


class Explored(NamedTuple):
    """How far a walk came, what the model counted, and what went wrong after which steps."""

    states: int
    counts: Counter[str]
    broken: str = ""
    trail: tuple[str, ...] = ()

    def proves(self) -> None:
        print(f"{self.states} states, {dict(self.counts)}")  # noqa: T201 - shown with -s, and when it fails
        assert not self.broken, "\n".join([self.broken, *self.trail])

    def refutes(self) -> None:
        assert self.broken, f"{self.states} states and nothing went wrong"
        print(f"{self.broken} after {len(self.trail)} steps")  # noqa: T201


def walk(first: S, steps: Callable[[S, Counter[str]], Iterator[tuple[str, S]]], *, limit: int = 20_000_000) -> Explored:
    """Walk every state that steps reach, or up to the first that is broken."""
    came_from: dict[S, tuple[S, str] | None] = {first: None}
    counts: Counter[str] = Counter()
    layer = [first]
    while layer:
        found: list[S] = []
        for state in layer:
            try:
                for name, after in steps(state, counts):
                    if after not in came_from:
                        came_from[after] = (state, name)
                        found.append(after)
            except BrokenError as error:
                names: list[str] = []
                while (step := came_from[state]) is not None:
                    state, name = step  # noqa: PLW2901 - back to the beginning, and then no further
                    names.append(name)
                return Explored(len(came_from), counts, str(error), tuple(reversed(names)))
            if len(came_from) > limit:
                raise AssertionError(f"more than {limit} states")
        layer = found
    return Explored(len(came_from), counts)


def put(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """Return the values with one replaced."""
    return (*values[:index], value, *values[index + 1 :])
