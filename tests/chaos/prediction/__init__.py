"""Foresight, proven: what doctor and gate say beforehand, and what real brokers and real JVM clients then do."""

from collections.abc import Mapping, Sequence
from typing import Any

_ABOUT = """\
## Doctor and removal gate beside what then happened

`make chaos-predict` (an hour; `python -m tests.chaos.prediction LISTS REMOVALS SEED` for parts of it): lists and
removals are drawn, the doctor and the removal gate say what will happen, then real clients start and real brokers are
killed. The doctor sees addresses only, not what was drawn. A prediction of 0 or 100 % is right if every start ends
so; any other if the share that failed is not one that it would bring less than once in a thousand times. Times are
means over all starts, failed ones included; under a second counts as one. A removal is right if exactly those uses
broke (reading, writing with acks=all, groups) that were predicted."""
_EMPTIED = """\
Of four removals, three were emptied first, as the gate's plan says, and judged for good; one of these had a client
whose list needed the brokers. After the kill a transactional producer started too, and clients with lists of their own,
which name brokers by two names and hold dead entries. Where the gate did not know, nobody was killed."""


def section(result: Mapping[str, Any]) -> str:
    """Tell the result; see `benchmarks.report`."""
    lists, removals = result["lists"], _played(result)
    return "\n".join([
        _ABOUT,
        *([_EMPTIED] if any(one["verdict"] == "safe" for one in removals) else []),
        "",
        _summary(result),
        "",
        "| list and client | said: fail, mean time | happened |",
        "|---|---|---|",
        *(_row(one) for one in lists),
        "",
        "| removed of six brokers, client | said | broke, as predicted |",
        "|---|---|---|",
        *map(_removal, removals),
        "",
    ])  # fmt: skip


def _played(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in result["removals"] if one["verdict"] != "unknown"]


def _removal(one: Mapping[str, Any]) -> str:
    broken = _broken(one["predicted"], one["broken"])
    return f"| {one.get('words', one['leaving'])}, {one['version']} | {one['verdict']} | {broken} |"


def _summary(result: Mapping[str, Any]) -> str:
    lists, removals = result["lists"], _played(result)
    unknown = len(result["removals"]) - len(removals)
    right = sum(one["outcome_right"] for one in lists)
    timely = sum(one["time_right"] for one in lists)
    gate = sum(one["predicted"] == one["broken"] for one in removals)
    safe = sum(one["verdict"] == "safe" for one in removals)
    return (
        f"**{right} of {len(lists)} lists ended as predicted, {timely} within a factor of 1.5 of the time** "
        f"({sum(one['starts'] for one in lists)} starts; with so few, {_by_chance(lists)} would miss it by chance "
        "if all predictions were true); "
        f"**{gate} of {len(removals)} removals, {safe} of them said to be safe, broke exactly what was predicted.**"
        + (f" Of {unknown} more the gate did not know." if unknown else "")
    )


def _by_chance(lists: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(one.get('time_missed_by_chance', 0.0) for one in lists):.1f}"


def _row(one: Mapping[str, Any]) -> str:
    said = f"{one['predicted_failure']:.1%}, {one['predicted_seconds']:.1f} s"
    happened = f"{one['failed']} of {one['starts']}, {one['seconds']:.1f} s"
    wrong = "" if one["outcome_right"] else " **wrong**"
    late = "" if one["time_right"] else " (beyond 1.5)"
    return f"| {one['words']} | {said} | {happened}{wrong}{late} |"


def _broken(predicted: Sequence[str], broken: Sequence[str]) -> str:
    same = list(predicted) == list(broken)
    return ", ".join(broken) or "nothing" if same else f"**wrong**: said {predicted}, broke {broken}"
