"""A lane's report as text, where it travels as a row of a DataFrame."""

import json
from dataclasses import asdict

from spark_jobs.sink.writer import LaneReport, Outcome


def encode(report: LaneReport) -> str:
    """Return a report as JSON.

    Runs: workers (pure).
    """
    return json.dumps({**asdict(report), "outcome": report.outcome.value})


def decode(text: str) -> LaneReport:
    """Read a report back.

    Runs: driver (pure).
    """
    raw = json.loads(text)
    return LaneReport(**{**raw, "outcome": Outcome(raw["outcome"])})
