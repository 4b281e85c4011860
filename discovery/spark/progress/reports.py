"""The status files of sources as values, and one line for each."""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from discovery.config.certificates import Certificate
from discovery.spark.source.status import SCHEMA, folder, remove_dead

_log = logging.getLogger("kafka_discovery.progress")
_SHOWN = 5
_LONG_BATCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A partition that is left out for now."""

    partition: str
    reason: str
    since: float | None
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """How one source of one query is doing."""

    source: str
    """Its `sourceId`, else what it subscribes to."""
    key: str
    """One per source runner: two queries may read the same topic."""
    jvm_pid: int
    written_at: float
    """Seconds since the epoch; a runner that hangs or died stops renewing it (every 10 s)."""
    state: str
    sentence: str
    cluster_id: str | None
    generation: int
    confirmed_at: float | None
    """When a living broker last confirmed the view."""
    batch_since: float | None
    """When the batch that runs now was made into tasks, in seconds since the epoch; None: none runs."""
    partitions: int
    brokers: dict[str, int]
    lag_records: int
    lag_unknown_partitions: int
    lagging: tuple[tuple[str, int], ...]
    parked_partitions: int
    parked: tuple[Parked, ...]
    group: str | None
    commits_succeeded: int
    commits_failed: int
    commit_error: str
    metrics: dict[str, str]
    """`minOffsetsBehindLatest`, `maxOffsetsBehindLatest`, `avgOffsetsBehindLatest`: Spark's own source reports these in
    `sources[].metrics`, which stay empty for any Python source."""
    waiting_partitions: int
    waiting: tuple[str, ...]
    """Partitions of the running batch whose tasks wait, since they were parked after it was planned."""
    cuts: int
    rewinds: int
    ledger_trouble: str
    """Why the ledger of cuts cannot be written, so that batches wait where they would be cut; empty: it can."""
    late_records: int
    """Records that waited in partitions that were parked, when these could be read again: older than what was read
    meanwhile, so a watermark may drop them."""
    fallback: str
    """Why an embedded loop stands in for the service of `discoveryUrl`; empty: it does not."""
    engine_fallback: str
    """Why a worker reads with the plain engine although the fast one was wanted; empty: none said so."""
    plain_engine: bool
    """Whether its workers read with the plain engine, which is several times slower."""
    plans: frozenset[int]
    """Digests of where its last batches were planned to end: which source of which query it is."""
    certificates: tuple[Certificate, ...]
    """What its Kafka clients and its service's client log in with and trust."""


def read_reports(state_dir: Path, *, jvm_pid: int | None = None) -> tuple[SourceReport, ...]:
    """Return the reports of living sources, those of one driver if it is named.

    Runs: anywhere; a few small files; one that cannot be read is logged and left out.
    """
    remove_dead(folder(state_dir))
    found = [report for path in sorted(folder(state_dir).glob("*.json")) if (report := _read(path))]
    return tuple(report for report in found if jvm_pid in (None, report.jvm_pid))


def _read(path: Path) -> SourceReport | None:
    try:
        raw = json.loads(path.read_text())
        return _report(path.stem, raw) if raw["schema"] == SCHEMA else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.debug("%s cannot be read: %s", path, error)
        return None


def _report(key: str, raw: dict[str, Any]) -> SourceReport:
    commits = raw["commits"] or {"succeeded": 0, "failed": 0, "error": ""}
    same = {name: raw[name] for name in SourceReport.__dataclass_fields__ if name in raw}
    changed = {
        "key": key,
        "lagging": tuple((name, lag) for name, lag in raw["lagging"]),
        "parked": tuple(Parked(**parked) for parked in raw["parked"]),
        "commits_succeeded": commits["succeeded"],
        "commits_failed": commits["failed"],
        "commit_error": commits["error"],
        "waiting": tuple(raw["waiting"]),
        "plans": frozenset(raw["plans"]),
        "certificates": tuple(Certificate(**one) for one in raw.get("certificates", ())),
    }
    return SourceReport(**{**same, **changed})


def line(report: SourceReport) -> str:
    """Say in one line how a source is doing; equal for reports that differ in lag alone.

    Runs: anywhere (pure).
    """
    parts = [f"source {report.source}: {report.sentence}"]
    if report.parked_partitions:
        named = ", ".join(f"{p.partition} ({p.reason}{_since(p)})" for p in report.parked[:_SHOWN])
        more = report.parked_partitions - min(len(report.parked), _SHOWN)
        parts.append(f"parked {named}{f' and {more} more' if more else ''}")
    if report.waiting_partitions:
        named = ", ".join(report.waiting[:_SHOWN])
        more = report.waiting_partitions - min(len(report.waiting), _SHOWN)
        parts.append(f"tasks wait for {named}{f' and {more} more' if more else ''}")
    if report.ledger_trouble:
        parts.append(f"nothing can be cut, its ledger is not written: {report.ledger_trouble}")
    if report.engine_fallback:
        parts.append(f"reads with the plain engine, several times slower: {report.engine_fallback}")
    if report.batch_since is not None and report.written_at - report.batch_since >= _LONG_BATCH_SECONDS:
        parts.append(f"its batch runs since {_clock(report.batch_since)}")
    if report.commit_error:
        parts.append(f"offsets are not committed to group {report.group}: {report.commit_error}")
    return "; ".join(parts)


def _since(parked: Parked) -> str:
    return f" since {_clock(parked.since)}" if parked.since is not None else ""


def _clock(wall: float) -> str:
    return f"{datetime.fromtimestamp(wall, UTC):%H:%M:%S} UTC"
