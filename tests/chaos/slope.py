"""How fast something grows, and how sure that is: a line through block means, with its confidence. Pure."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_LEAST_BLOCKS = 4
_TIMES = (", ms", ", s")
"""Ends of titles of measures that show how busy the machine is, not what is kept."""
_QUANTILE = 0.975


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """Growth an hour, and half the width of its 95 % confidence interval."""

    an_hour: float
    either_way: float

    @property
    def grows(self) -> bool:
        """Tell whether zero lies below the interval."""
        return self.an_hour - self.either_way > 0


@dataclass(frozen=True, slots=True)
class Series:
    """Several measures over one time."""

    seconds: list[float] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, seconds: float, values: Mapping[str, float]) -> None:
        """Take one value of each measure; always the same measures."""
        self.seconds.append(seconds)
        for name, value in values.items():
            self.values.setdefault(name, []).append(float(value))

    def slopes(self) -> dict[str, dict[str, float | None]]:
        """Return the median of each measure and its growth an hour, None where there is too little to tell."""
        found = {}
        for name, values in self.values.items():
            grown = slope(self.seconds, values)
            found[name] = {
                "median": round(statistics.median(values), 2),
                "an_hour": None if grown is None else round(grown.an_hour, 2),
                "either_way": None if grown is None else round(grown.either_way, 2),
            }
        return found


def grows(seen: Mapping[str, Any]) -> bool:
    """Tell whether one of `Series.slopes` is sure to grow."""
    return seen["an_hour"] is not None and Slope(an_hour=seen["an_hour"], either_way=seen["either_way"]).grows


def growing(slopes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what is sure to grow: memory, threads, files, state; no times."""
    return [title for title, seen in slopes.items() if grows(seen) and not title.endswith(_TIMES)]


def table(slopes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table of `Series.slopes`."""
    if all(seen["an_hour"] is None for seen in slopes.values()):
        return ["Too few samples to tell what grows."]
    return [
        "| | median | an hour (95 %) | grows |",
        "|---|---|---|---|",
        *(
            f"| {title} | {seen['median']:g} | {seen['an_hour']:+g} ± {seen['either_way']:g} "
            f"| {'**yes**' if grows(seen) else 'no'} |"
            for title, seen in slopes.items()
            if seen["an_hour"] is not None
        ),
    ]


def slope(
    seconds: Sequence[float], values: Sequence[float], *, blocks: int = 12, warm_up: float = 0.25
) -> Slope | None:
    """Return the growth of a series that has settled.

    Neighbouring samples resemble each other, so their number says little: means of blocks do, of which there are few.

    Args:
        seconds: When each was taken, growing.
        values: As many.
        blocks: How many means to make; >= 4.
        warm_up: Share of the beginning that is left out.

    Returns:
        None where there are fewer samples than blocks.

    Runs: anywhere (pure).
    """
    begin = int(len(values) * warm_up)
    times, seen = seconds[begin:], values[begin:]
    if blocks < _LEAST_BLOCKS or len(seen) < blocks:
        return None
    edges = [len(seen) * index // blocks for index in range(blocks + 1)]
    x = [statistics.fmean(times[a:b]) / 3600 for a, b in itertools.pairwise(edges)]
    y = [statistics.fmean(seen[a:b]) for a, b in itertools.pairwise(edges)]
    line = statistics.linear_regression(x, y)
    free = blocks - 2
    left = sum((b - line.intercept - line.slope * a) ** 2 for a, b in zip(x, y, strict=True))
    spread = sum((a - statistics.fmean(x)) ** 2 for a in x)
    error = math.sqrt(left / free / spread)
    return Slope(an_hour=line.slope, either_way=error * _student(free))


def _student(free: int) -> float:
    """Return Student's 97.5 % quantile by the expansion of Cornish and Fisher; within 1 % from 6 degrees on."""
    z = statistics.NormalDist().inv_cdf(_QUANTILE)
    return z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
