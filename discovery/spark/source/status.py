"""What a source reports about itself: a small JSON file, written by the source runner, read by whoever wants to know.

Spark keeps the runner in a process of its own and shows nothing of it but three offset texts in the query's progress; a
Python source's metrics stay empty. A file needs no port, no token and no reader, and outlives a hung query.
"""

import contextlib
import json
import logging
import os
import socket
import threading
import zlib
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from discovery.config.certificates import of_client, of_service
from discovery.config.clock import SystemClock
from discovery.core.clock import Clock
from discovery.core.errors import BUG_PHRASE
from discovery.core.model import TopicPartition, Verdict
from discovery.core.verdict import WRONG
from discovery.feed.base import FeedView, PartitionFeed
from discovery.spark.source.commits import CommitReport
from discovery.spark.source.options.parse import SourceOptions
from discovery.spark.source.planning.offsets import Offsets
from discovery.store.locations import default_state_dir

if TYPE_CHECKING:  # who reads the file needs no data plane
    from discovery.spark.source.cuts.planned import CutReport
    from discovery.spark.source.planning.tasks import Task
    from discovery.spark.source.planning.trigger import PlanState

SCHEMA = 1
_log = logging.getLogger("kafka_discovery.source")
_INTERVAL_SECONDS = 1.0
_HEARTBEAT_SECONDS = 10.0
_SHARE = 0.01
"""Of a core, at most: the planner shares the interpreter with this thread."""
_NAMED = 100
"""So many parked or lagging partitions are named; the rest are counted."""
_REMEMBERED_PLANS = 64


class Standing(Protocol):
    """What is asked of a planner. Read from another thread: one attribute at a time."""

    @property
    def feed(self) -> PartitionFeed:
        """Its feed."""
        ...

    options: SourceOptions
    stands: Offsets
    """Where the sink is: the end of the last batch that Spark recorded, less what was cut."""
    state: "PlanState"
    """What the newest plan left out, and what came late."""
    planned: Mapping[str, Any]
    """The end of the newest plan, as Spark has it."""
    batch_since: float | None
    """When the batch that runs now was made into tasks, in seconds since the epoch; None: none runs."""
    batch: tuple["Task", ...]
    """Its tasks."""

    def cut_report(self) -> "CutReport":
        """Say what cuts have shown."""
        ...

    def commit_report(self) -> CommitReport | None:
        """Say how committing to a group goes; None: nothing is committed."""
        ...


def folder(state_dir: Path) -> Path:
    """Return where the files of all sources lie."""
    return state_dir / "status"


def plan_digest(offsets: Mapping[str, Any]) -> int:
    """Return a number that the same offsets give again, whatever their spaces and order.

    Runs: anywhere (pure).
    """
    return zlib.crc32(json.dumps(offsets, sort_keys=True).encode())


class StatusFile:
    """Writes the file on a thread of its own, at most once a second, and every 10 s while nothing changes.

    Nothing here fails or delays the query: a folder that cannot be written is logged once.
    """

    def __init__(self, planner: Standing, state_dir: Path, clock: Clock | None = None) -> None:
        """Name the file by this process; touches nothing."""
        self._planner = planner
        self._clock = clock or SystemClock()
        self.path = folder(state_dir) / f"{socket.gethostname()}-{os.getpid()}-{id(self):x}.json"
        self._plans: deque[int] = deque(maxlen=_REMEMBERED_PLANS)
        self._last_plan: Mapping[str, Any] = {}
        self._seen: tuple[object, ...] = ()
        self._written_at = float("-inf")
        self._failing = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Remove what dead runners of this host left, and begin to write."""
        self._thread = threading.Thread(target=self._run, name="kafka-discovery status", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and remove the file. A killed runner cannot; the next one does."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2.0)
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _run(self) -> None:
        remove_dead(self.path.parent)
        while True:
            began = self._clock.monotonic()
            try:
                self.write_if_due()
            except Exception:  # noqa: BLE001 - a status line must not end a query, and a dead thread must be heard
                _log.exception("%s: the status cannot be written", BUG_PHRASE)
            if self._stop.wait(max(_INTERVAL_SECONDS, (self._clock.monotonic() - began) / _SHARE)):
                return

    def write_if_due(self) -> bool:
        """Write what is new; tell whether anything was written. Runs: the status thread, once a second."""
        planner, view = self._planner, self._planner.feed.view()
        self._note_plan(planner.planned)
        seen = (
            (view.version, view.fallback, planner.stands, planner.state.parked, planner.batch_since),
            (planner.commit_report(), planner.cut_report(), planner.state.late_records),
        )
        now = self._clock.monotonic()
        if seen == self._seen and now - self._written_at < _HEARTBEAT_SECONDS:
            return False
        self._seen, self._written_at = seen, now
        self._write(status_of(planner, view, wall=self._clock.wall(), plans=tuple(self._plans)))
        return True

    def _note_plan(self, planned: Mapping[str, Any]) -> None:
        if planned is not self._last_plan:
            self._last_plan = planned
            self._plans.append(plan_digest(planned))

    def _write(self, status: Mapping[str, Any]) -> None:
        temporary = self.path.with_suffix(".tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Not synced to disk on purpose: after a power cut there is no source to tell about.
            temporary.write_text(json.dumps(status))
            temporary.replace(self.path)
            self._failing = False
        except OSError as error:
            if not self._failing:
                _log.warning("the status of this source cannot be written: %s", error)
            self._failing = True


def status_file_of(planner: Standing) -> StatusFile:
    """Begin to tell about a planner, in its state folder.

    Runs: driver's source runner, once.
    """
    status = StatusFile(planner, planner.options.state_dir or default_state_dir())
    status.start()
    return status


def remove_dead(status_folder: Path) -> None:
    """Remove the files of runners of this host that are gone.

    Runs: once per source, and by readers; a few file look-ups.
    """
    prefix = f"{socket.gethostname()}-"
    for path in status_folder.glob(f"{prefix}*"):
        pid = path.name.removeprefix(prefix).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            with contextlib.suppress(OSError):
                path.unlink()


def status_of(planner: Standing, view: FeedView, *, wall: float, plans: tuple[int, ...] = ()) -> dict[str, Any]:
    """Put one picture together.

    Runs: anywhere (pure, but for process numbers and files of certificates); about a millisecond per 1 000 partitions.
    """
    from discovery.spark.source.shared import reads_plainly  # noqa: PLC0415 - who reads the file needs no data plane

    options = planner.options
    lags = _lags(view, planner.stands, options)
    known = {tp: lag for tp, lag in lags.items() if lag is not None}
    parked = sorted(planner.state.parked.items())
    commits, cuts = planner.commit_report(), planner.cut_report()
    waiting, plain = _waiting(planner.batch, cuts, view), reads_plainly(options)
    return {
        "schema": SCHEMA,
        "source": options.source_id or _subscription(options),
        "source_id": options.source_id,
        "pid": os.getpid(),
        "jvm_pid": os.getppid(),
        "written_at": wall,
        "state": view.state.value,
        "sentence": view.sentence,
        "cluster_id": view.cluster_id,
        "generation": view.generation,
        "confirmed_at": None if view.age_seconds == float("inf") else wall - view.age_seconds,
        "batch_since": planner.batch_since,
        "partitions": len(view.partitions),
        "brokers": _conditions(view),
        "lag_records": sum(known.values()),
        "lag_unknown_partitions": len(lags) - len(known),
        "metrics": _behind(known),
        "lagging": [[str(tp), lag] for tp, lag in sorted(known.items(), key=lambda x: -x[1])[:_NAMED] if lag],
        "parked_partitions": len(parked),
        "parked": [
            {"partition": str(tp), "reason": reason, "since": _since(view, tp)} for tp, reason in parked[:_NAMED]
        ],
        "group": options.group if commits else None,
        "commits": None
        if commits is None
        else {"succeeded": commits.succeeded, "failed": commits.failed, "error": commits.error},
        "waiting_partitions": len(waiting),
        "waiting": [str(tp) for tp in waiting[:_NAMED]],
        "cuts": cuts.cuts,
        "rewinds": cuts.rewinds,
        "ledger_trouble": cuts.ledger_trouble,
        "late_records": planner.state.late_records,
        "fallback": view.fallback,
        "engine_fallback": cuts.plain_engine or ("no compiler" if plain and options.fetch_engine == "auto" else ""),
        "plain_engine": plain,
        "plans": list(plans),
        "certificates": [
            asdict(one) for one in (*of_client(options.client, "kafka.ssl"), *of_service(options.discovery_files))
        ],
    }


def _subscription(options: SourceOptions) -> str:
    interest = options.interest
    if interest.pattern is not None:
        return interest.pattern
    return ",".join(interest.topics or sorted({tp.topic for tp in interest.assigned}))


def _waiting(batch: tuple["Task", ...], cuts: "CutReport", view: FeedView) -> list[TopicPartition]:
    """Return what tasks of the running batch wait for: parked since it was planned, and not settled."""
    planned = {r.topic_partition for task in batch for r in task} - cuts.settled
    return sorted(tp for tp in planned if tp in view.partitions and view.partitions[tp].parked_reason is not None)


def _since(view: FeedView, tp: TopicPartition) -> float | None:
    known = view.partitions.get(tp)
    return None if known is None else known.parked_since_wall


def _lags(view: FeedView, stands: Offsets, options: SourceOptions) -> dict[TopicPartition, int | None]:
    isolation = options.interest.isolation
    lags: dict[TopicPartition, int | None] = {}
    for tp, partition in view.partitions.items():
        at = stands.get(tp, partition.start_offset)
        end = partition.end_offset(isolation)
        lags[tp] = None if at is None or at < 0 or end is None else max(end - at, 0)
    return lags


def _behind(lags: Mapping[TopicPartition, int]) -> dict[str, str]:
    """Return what Spark's own source puts into `sources[].metrics` of a progress event, under the same names."""
    if not lags:
        return {}
    values = {"min": min(lags.values()), "max": max(lags.values()), "avg": sum(lags.values()) / len(lags)}
    return {f"{name}OffsetsBehindLatest": str(value) for name, value in values.items()}


def _conditions(view: FeedView) -> dict[str, int]:
    """Count addresses by what may be done with them."""
    found = Counter(_condition(report.verdict) for report in view.addresses.values())
    return {name: found[name] for name in ("healthy", "quarantined", "rejected", "unasked")}


def _condition(verdict: Verdict | None) -> str:
    if verdict is None:
        return "unasked"
    if verdict is Verdict.ALIVE:
        return "healthy"
    return "rejected" if verdict in WRONG else "quarantined"
