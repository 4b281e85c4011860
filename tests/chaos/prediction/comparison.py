"""Compares what was said with what happened. Pure."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from discovery.core.prediction.forecast import Forecast

_SURE = 1e-9
_UNLIKELY = 0.001
"""A count of failures that a true prediction would bring less often than this proves the prediction wrong."""
_FACTOR = 1.5
_ALIKE_SECONDS = 0.5
_FLOOR_SECONDS = 1.0
"""Shorter times count as this: starting a client costs the processor so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """How one real start ended."""

    ok: bool
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One prediction beside what happened."""

    name: str
    words: str
    predicted_failure: float
    predicted_seconds: float
    starts: int
    failed: int
    seconds: float
    outcome_right: bool
    time_right: bool
    time_missed_by_chance: float = 0.0
    """How probably a true prediction would miss the time with so few starts."""
    error: str = ""


def starts_needed(forecast: Forecast, *, sure: int, unsure: int) -> int:
    """Return how many starts show whether a prediction is right: few where all end alike, and take as long.

    Runs: anywhere (pure).
    """
    spread = max(abs(one.seconds - forecast.mean_seconds) for one in forecast.starts)
    return sure if is_sure(forecast) and spread < _ALIKE_SECONDS else unsure


def is_sure(forecast: Forecast) -> bool:
    """Tell whether every start should end the same way.

    Runs: anywhere (pure).
    """
    return forecast.failure < _SURE or forecast.failure > 1 - _SURE


def judge_starts(name: str, words: str, forecast: Forecast, happened: Sequence[Started]) -> Judged:
    """Say whether a prediction was right.

    Runs: anywhere (pure).
    """
    failed = [one for one in happened if not one.ok]
    seconds = statistics.fmean(one.seconds for one in happened)
    ratio = max(seconds, _FLOOR_SECONDS) / max(forecast.mean_seconds, _FLOOR_SECONDS)
    return Judged(
        name=name,
        words=words,
        predicted_failure=round(forecast.failure, 4),
        predicted_seconds=round(forecast.mean_seconds, 2),
        starts=len(happened),
        failed=len(failed),
        seconds=round(seconds, 2),
        outcome_right=likely(forecast.failure, len(happened), len(failed)),
        time_right=1 / _FACTOR <= ratio <= _FACTOR,
        time_missed_by_chance=round(missed_by_chance(forecast, len(happened)), 4),
        error=failed[0].error[:160] if failed else "",
    )


def missed_by_chance(forecast: Forecast, starts: int) -> float:
    """Return how probably the mean of so many starts is beyond the factor although the prediction is true.

    Runs: anywhere (pure).
    """
    mean = forecast.mean_seconds
    variance = math.fsum(one.probability * (one.seconds - mean) ** 2 for one in forecast.starts) / starts
    if variance <= 0:
        return 0.0
    seen = statistics.NormalDist(mean, math.sqrt(variance))
    least, most = max(mean, _FLOOR_SECONDS) / _FACTOR, max(mean, _FLOOR_SECONDS) * _FACTOR
    too_short = seen.cdf(least) if least > _FLOOR_SECONDS else 0.0
    return too_short + 1 - seen.cdf(most)


def likely(probability: float, trials: int, hits: int) -> bool:
    """Tell whether so many hits are what this probability brings; 0 and 1 admit no exception.

    Runs: anywhere (pure).
    """
    if probability < _SURE or probability > 1 - _SURE:
        return hits == round(probability) * trials
    ways = [math.comb(trials, k) * probability**k * (1 - probability) ** (trials - k) for k in range(trials + 1)]
    return min(sum(ways[: hits + 1]), sum(ways[hits:])) >= _UNLIKELY / 2
