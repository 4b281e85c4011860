"""What the models of the protocols share."""

from collections.abc import Mapping
from typing import Any, TypeVar

S = TypeVar("S")


def trail(came_from: Mapping[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    """Name the steps that lead from the beginning to a state, in order."""
    names: list[str] = []
    while (step := came_from[state]) is not None:
        state, name = step
        names.append(name)
    return tuple(reversed(names))


def put(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """Return the values with one replaced."""
    return (*values[:index], value, *values[index + 1 :])
