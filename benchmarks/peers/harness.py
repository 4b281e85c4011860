"""Plays one case for one system on a cluster that others used before, and measures it."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.peers.cases import named
from benchmarks.peers.load import loaded
from benchmarks.peers.program import Place, System, now
from benchmarks.peers.rows import Row, first_arrivals, longest_gap, measure, recovered, timeline
from benchmarks.peers.stage import PARTITIONS, Case, Stage, Struck
from benchmarks.peers.systems import make
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings

ROWS_PER_SECOND = 600.0
_CATCH_UP_SECONDS = 20.0
_BEFORE_SECONDS = 5.0
"""Of the chart."""
_OWN_NAMES = 'mount --bind "$0" /etc/hosts && exec "$@"'


@contextlib.contextmanager
def cluster_for(case: Case) -> Iterator[LocalKafka]:
    """Yield the cluster of a case."""
    listeners = {case.listener: {"security.protocol": "PLAINTEXT"}} if case.listener else {}
    with LocalKafka(ClusterSettings(brokers=case.brokers, listeners=listeners)) as cluster:
        yield cluster


def play(case: Case, name: str, cluster: LocalKafka, keep: Path | None = None) -> dict[str, Any]:
    """Run one cell; what it wrote to files is left in a folder below `keep`.

    Runs: once per cell; blocks for the case's time and about 40 s more. The cluster is well again afterwards.
    """
    cluster.heal()
    folder = Path(tempfile.mkdtemp(prefix="peers-"))
    topic = f"t-{name}-{time.monotonic_ns()}".replace("_", "-")
    load_before = round(os.getloadavg()[0], 1)
    cluster.create_topic(topic, assignment=case.placement())
    try:
        found = _cell(case, name, cluster, topic, folder)
    finally:
        if keep:
            shutil.copytree(folder, keep / topic, ignore=shutil.ignore_patterns("checkpoint*"))
        shutil.rmtree(folder, ignore_errors=True)
        cluster.heal()
        cluster.delete_topic(topic)
    about = {"load_average": [load_before, round(os.getloadavg()[0], 1)]}
    return {**found, **about, "at": datetime.now(UTC).isoformat(timespec="seconds")}


def _cell(case: Case, name: str, cluster: LocalKafka, topic: str, folder: Path) -> dict[str, Any]:
    with contextlib.ExitStack() as outer:
        acknowledged = folder / "acknowledged"
        load = outer.enter_context(loaded(cluster.bootstrap_servers, topic, PARTITIONS, ROWS_PER_SECOND, acknowledged))
        system = outer.enter_context(make(name, _place(case, topic, folder)))
        stack = outer.enter_context(contextlib.ExitStack())
        listed = case.listed(cluster, stack)
        stage = Stage(
            cluster=cluster, topic=topic, system=system, load=load, listed=listed, placement=case.placement(),
            folder=folder, stack=stack,
        )  # fmt: skip
        (folder / "hosts").write_text(named(stage))
        case.begin(stage)
        struck = case.strike(stage)
        until = _watch(case, stage, struck)
        (folder / "struck").write_text(f"{struck} until {until}\n")
        said: dict[str, Any] = {"restarts": system.restarts(struck.since), "reported": system.reported(struck.since)}
        case.heal(stage)
        load.end()
        if not load.ended_well:
            raise AssertionError("the load died: what was written is not known")
        written = load.acknowledged()
        _catch_up(system, written)
        arrived = system.program.arrived()
        said["usual_seconds"] = _usual(case, arrived, struck, system.program.events("start")[0][0])
        return {**_measured(arrived, written, struck, until), **said}


def _place(case: Case, topic: str, folder: Path) -> Place:
    prefix = ("unshare", "--mount", "sh", "-c", _OWN_NAMES, str(folder / "hosts")) if case.own_names else ()
    return Place(folder=folder, topic=topic, prefix=prefix)


def _watch(case: Case, stage: Stage, struck: Struck) -> float:
    """Wait until the case's time is over, or until the system has read all living partitions for a while again."""
    until = max(struck.since, struck.healed_at) + case.watch_seconds
    while now() < until:
        if _reads(stage, struck):
            until = min(until, now() + case.after_seconds)
            break
        time.sleep(1.0)
    time.sleep(max(0.0, until - now()))
    return until


def _reads(stage: Stage, struck: Struck) -> bool:
    news = first_arrivals(stage.system.program.arrived())
    written = stage.load.acknowledged()
    return recovered(news, written, struck.healed_at, now(), struck.living) is not None


def _measured(arrived: Sequence[Row], written: Sequence[Row], struck: Struck, until: float) -> dict[str, Any]:
    since, start = struck.since, -_BEFORE_SECONDS
    found = measure(arrived, written, since=since, healed_at=struck.healed_at, until=until, living=struck.living)
    rows = timeline(arrived, since=since, start=start, end=until - since)
    watched = {"watched_seconds": round(until - since, 1), "healed_seconds": round(struck.healed_at - since, 1)}
    return {**found, **watched, "line": {"start": start, "step": 0.5, "rows": rows}}


def _usual(case: Case, arrived: Sequence[Row], struck: Struck, started_at: float) -> float | None:
    """Return what the same took with nothing wrong: a gap just before, or the first start; None if there was none."""
    before = [row.at for row in arrived if row.at < struck.since]
    if not before:
        return None
    if case.is_start:
        return round(min(before) - started_at, 2)
    return longest_gap(before, struck.since - _BEFORE_SECONDS, struck.since).seconds


def _catch_up(system: System, written: Sequence[Row]) -> None:
    """Give the system time to read the rest; one that cannot has unread rows."""
    wanted = {row.key for row in written}
    deadline = time.monotonic() + _CATCH_UP_SECONDS
    while time.monotonic() < deadline and wanted - {row.key for row in system.program.arrived()}:
        time.sleep(0.5)
