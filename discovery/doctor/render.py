"""The report as text and as JSON. Pure."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from discovery.core.plural import counted
from discovery.core.prediction.forecast import FailureMode, Forecast
from discovery.doctor.diagnose import Diagnosis, Finding, Weight, curve, percent
from discovery.doctor.facts import Facts, Seen

_MARKS = {
    Weight.GRAVE: ("✗", "bold red"),
    Weight.WARN: ("!", "yellow"),
    Weight.NOTE: ("·", ""),
    Weight.FINE: ("✓", "green"),
}
_BARS = "▁▂▃▄▅▆▇█"
_COSTS = {
    FailureMode.REFUSED: "costs a client milliseconds",
    FailureMode.UNREACHABLE: "costs a client about 3 s",
    FailureMode.BLACK_HOLE: "holds a client for {connect:.0f} s",
    FailureMode.SILENT: "holds a client for {request:.0f} s or longer",
    FailureMode.UNRESOLVABLE: "dropped by a client at its start",
    FailureMode.AUTH_REJECTED: "ends a client at once",
}


def report(diagnosis: Diagnosis) -> Text:
    """Write the report for a reader.

    Runs: anywhere (pure).
    """
    lines = Text()
    facts, described = diagnosis.facts, diagnosis.described
    count = counted(len(facts.listed), "address", "addresses")
    cluster = facts.cluster_ids[0] if facts.cluster_ids else "unknown: nobody answered"
    lines.append(
        f"{count}, cluster {cluster}\n{described.client.version}, {described.client.kind.value} "
        f"({described.origin})\n\n"
    )
    for line in _addresses(diagnosis):
        lines.append_text(line)
    lines.append("\n")
    for finding in diagnosis.findings:
        lines.append_text(_finding(finding))
    lines.append_text(_curve(diagnosis))
    if diagnosis.advice:
        lines.append("\nWhat helps, the most helpful first\n", style="bold")
    for number, advice in enumerate(diagnosis.advice, 1):
        lines.append(f"  {number}. {advice.sentence}\n     then {forecast_sentence(advice.after)}\n")
    if described.ignored:
        lines.append(f"\nNot used here to connect: {', '.join(described.ignored)}\n")
    return lines


def forecast_sentence(start: Forecast) -> str:
    """Say in a few words what a start will be like.

    Runs: anywhere (pure).
    """
    if start.failure >= 1:
        return f"every start fails after {start.failed_after_seconds:.0f} s"
    delay = f"{start.delay_seconds:.1f} s longer on average" if start.delay_seconds >= 0.05 else "without delay"  # noqa: PLR2004
    if start.failure == 0:
        return f"every start comes up {delay}"
    return f"{percent(start.failure)} of all starts fail; the others come up {delay}"


def _addresses(diagnosis: Diagnosis) -> Iterator[Text]:
    facts = diagnosis.facts
    everybody = [(seen, "") for seen in facts.listed] + [
        (seen, "named by the cluster, not listed") for seen in facts.advertised
    ]
    width = max(len(str(seen.address)) for seen, _ in everybody)
    for seen, note in everybody:
        verdict = seen.verdict.value.replace("_", " ")
        line = Text(f"  {seen.address!s:<{width}}  ")
        line.append(f"{verdict:<15}", style="green" if seen.failure_mode is None else "red")
        parts = [_times(seen), seen.detail, _cost(seen, diagnosis), note]
        line.append("; ".join(part for part in parts if part) + "\n")
        yield line


def _times(seen: Seen) -> str:
    stages = seen.stages
    named = (
        ("name", stages.lookup),
        ("connect", stages.connect),
        ("TLS", stages.tls),
        ("Kafka", stages.kafka),
    )
    return ", ".join(f"{name} {_duration(value)}" for name, value in named if value is not None)


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _cost(seen: Seen, diagnosis: Diagnosis) -> str:
    limits = diagnosis.described.client.limits
    if seen.failure_mode is None:
        return ""
    return _COSTS[seen.failure_mode].format(connect=limits.connect_seconds, request=limits.request_seconds)


def _finding(finding: Finding) -> Text:
    mark, style = _MARKS[finding.weight]
    return Text.assemble(("  " + mark + " ", style), finding.sentence + "\n")


def main_failure_mode(facts: Facts) -> FailureMode:
    """Return how most entries died; a black hole, the dearest, where none did.

    Runs: anywhere (pure).
    """
    dead = facts.counts.dead
    kinds = [mode for mode in dead if mode is not FailureMode.UNRESOLVABLE]
    return max(kinds, key=lambda one: dead[one]) if kinds else FailureMode.BLACK_HOLE


def _curve(diagnosis: Diagnosis) -> Text:
    facts = diagnosis.facts
    mode = main_failure_mode(facts)
    points = curve(diagnosis.described.client.limits, facts.counts, mode)
    today = facts.counts.of(mode)
    others = len(facts.listed) - len(points) + 1
    kind = mode.value.replace("_", " ") + (f", beside {others} dead otherwise" if others else "")
    text = Text(f"\nFailed starts by number of dead entries ({kind}), of {len(points) - 1}\n", style="bold")
    bars = "".join(_BARS[min(7, int(point.failure * 8))] for point in points)
    text.append(f"  {bars[:today]}")
    text.append(bars[today], style="reverse")
    text.append(f"{bars[today + 1 :]}  today {today} dead: {forecast_sentence(points[today])}\n")
    steps = [d for d, point in enumerate(points) if point.failure > 0]
    text.append(f"  the first failures come with {steps[0]} dead, {forecast_sentence(points[steps[0]])}\n")
    return text


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """Write everything as JSON.

    Runs: anywhere (pure).
    """
    facts, client = diagnosis.facts, diagnosis.described.client
    mode = main_failure_mode(facts)
    return {
        "weight": diagnosis.weight.name.lower(),
        "client": {
            "version": f"{client.version.major}.{client.version.minor}",
            "origin": diagnosis.described.origin,
            "api_timeout_seconds": client.limits.api_seconds,
            "request_timeout_seconds": client.limits.request_seconds,
            "connect_timeout_seconds": client.limits.connect_seconds,
        },
        "cluster_ids": list(facts.cluster_ids),
        "listed": [_seen(seen) for seen in facts.listed],
        "advertised": [_seen(seen) for seen in facts.advertised],
        "partitions": facts.partitions,
        "leaderless": None if facts.leaderless is None else [str(one) for one in facts.leaderless],
        "start": _start(diagnosis.start),
        "findings": [
            {"code": f.code, "weight": f.weight.name.lower(), "sentence": f.sentence} for f in diagnosis.findings
        ],
        "advice": [{"code": a.code, "sentence": a.sentence, "after": _start(a.after)} for a in diagnosis.advice],
        "curve": {"failure_mode": mode.value, "starts": [_start(p) for p in curve(client.limits, facts.counts, mode)]},
    }


def _start(start: Forecast) -> dict[str, float]:
    return {
        "failure_probability": round(start.failure, 6),
        "delay_seconds": round(start.delay_seconds, 3),
        "failed_after_seconds": round(start.failed_after_seconds, 3),
    }


def _seen(seen: Seen) -> dict[str, Any]:
    return {
        "address": str(seen.address),
        "verdict": seen.verdict.value,
        "detail": seen.detail,
        "failure_mode": seen.failure_mode.value if seen.failure_mode else None,
        "failed_stage": seen.stage or None,
        "cluster_id": seen.cluster_id,
        "lookup_seconds": seen.stages.lookup,
        "connect_seconds": seen.stages.connect,
        "tls_seconds": seen.stages.tls,
        "kafka_seconds": seen.stages.kafka,
    }
