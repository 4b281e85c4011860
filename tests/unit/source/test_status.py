"""What a source tells about itself, and who reads it."""

import contextlib
import json
import logging
import os
import socket
import uuid
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from pyspark.sql.streaming.listener import QueryStartedEvent

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import map_client_options
from discovery.config.service_files import ServiceFiles
from discovery.core.errors import StateError
from discovery.core.model import BrokerAddress, LoopState, Verdict
from discovery.feed.base import AddressReport
from discovery.spark.progress.listener import Batches, SourceProgress, query_of
from discovery.spark.progress.metrics import SourceCollector
from discovery.spark.progress.reports import SourceReport, line, read_reports
from discovery.spark.source.cuts.arbiter import TcpArbiter
from discovery.spark.source.cuts.coordinator import RangeCoordinator
from discovery.spark.source.cuts.ledger_file import FileLedger
from discovery.spark.source.cuts.planned import Cuts
from discovery.spark.source.cuts.rules import PlannedRange
from discovery.spark.source.cuts.server import CoordinatorServer
from discovery.spark.source.options.cuts import CutOptions
from discovery.spark.source.options.parse import parse_options
from discovery.spark.source.planning.planner import Planner
from discovery.spark.source.status import StatusFile, folder, plan_digest
from tests.support.fakes.feed import ScriptedFeed, partition_view, tp, view_of
from tests.support.fakes.ledger import FullDisk


def planner(feed: ScriptedFeed, **options: str) -> Planner:
    given = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", "sourceId": "dau", **options}
    return Planner(feed, parse_options(given), feed.clock)


def parked_feed() -> ScriptedFeed:
    reports = {
        BrokerAddress("b1", 9092): AddressReport(verdict=Verdict.ALIVE),
        BrokerAddress("b2", 9092): AddressReport(verdict=Verdict.SILENT),
        BrokerAddress("b3", 9092): AddressReport(verdict=Verdict.FOREIGN_CLUSTER),
    }
    partitions = {
        tp(0): partition_view(0, 40),
        tp(1): partition_view(0, 9, leader=None, parked_since_wall=1_700_000_000.0),
    }
    return ScriptedFeed(view_of(partitions, addresses=reports, sentence="fresh: 1 of 3 addresses alive"))


def seen(state_dir: Path) -> SourceReport:
    (report,) = read_reports(state_dir)
    return report


def test_given_a_query_that_stands_when_written_then_lag_parked_partitions_and_discovery_are_reported(
    tmp_path: Path,
) -> None:
    plan = planner(parked_feed())
    end = plan.latest_offsets({"t": {"0": 30, "1": 5}}, None)
    StatusFile(plan, tmp_path, plan.feed.clock).write_if_due()  # type: ignore[attr-defined]
    report = seen(tmp_path)
    assert (report.source, report.state, report.jvm_pid) == ("dau", "fresh", os.getppid())
    assert (report.lag_records, report.lag_unknown_partitions) == (14, 0)
    assert report.lagging == (("t-0", 10), ("t-1", 4))
    assert not report.plain_engine
    assert report.brokers == {"healthy": 1, "quarantined": 1, "rejected": 1, "unasked": 0}
    assert line(report) == (
        "source dau: fresh: 1 of 3 addresses alive; parked t-1 (it has no leader since 22:13:20 UTC)"
    )
    assert report.plans == {plan_digest(json.loads(json.dumps(end)))}


@pytest.mark.parametrize(
    ("ends", "query"),
    [
        ({"a": [2], "b": [9]}, "a"),
        ({"a": [9]}, ""),
        ({"a": [1, 2], "b": [1, 9]}, "a"),
        ({"a": [1, 2], "b": [1, 2]}, ""),
        ({}, ""),
    ],
    ids=["its batches", "another's", "parted after a common batch", "not parted yet", "no batch yet"],
)
def test_given_batches_of_queries_when_matched_then_a_source_is_of_the_one_that_alone_fits_best(
    tmp_path: Path, ends: dict[str, list[int]], query: str
) -> None:
    plan = planner(parked_feed())
    StatusFile(plan, tmp_path, plan.feed.clock).write_if_due()  # type: ignore[attr-defined]
    report = replace(seen(tmp_path), plans=frozenset({1, 2, 3}))
    assert query_of(report, [Batches(name=name, ends=deque(digests)) for name, digests in ends.items()]) == query


def test_given_nothing_new_when_asked_again_then_it_is_written_only_as_a_sign_of_life(tmp_path: Path) -> None:
    feed = parked_feed()
    status = StatusFile(planner(feed), tmp_path, feed.clock)
    assert status.write_if_due()
    assert not status.write_if_due()
    feed.clock.advance(10)
    assert status.write_if_due()
    feed.show_partitions({tp(0): partition_view(0, 41)})
    assert status.write_if_due()


def test_given_a_folder_that_cannot_be_written_when_reported_then_the_query_goes_on_and_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "status").write_text("a file, not a folder")
    feed = parked_feed()
    status = StatusFile(planner(feed), tmp_path, feed.clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            feed.clock.advance(10)
            status.write_if_due()
    assert caplog.text.count("the status of this source cannot be written") == 1


def test_given_files_of_dead_runners_and_broken_ones_when_read_then_only_the_living_are_reported(
    tmp_path: Path,
) -> None:
    feed = parked_feed()
    status = StatusFile(planner(feed), tmp_path, feed.clock)
    status.write_if_due()
    dead = folder(tmp_path) / f"{socket.gethostname()}-4194305-1.json"
    dead.write_bytes(status.path.read_bytes())
    (folder(tmp_path) / "elsewhere-7-1.json").write_text('{"schema": 1')
    (folder(tmp_path) / "elsewhere-8-1.json").write_text('{"schema": 99}')
    assert [report.key for report in read_reports(tmp_path)] == [status.path.stem]
    assert not dead.exists()
    assert read_reports(tmp_path, jvm_pid=1) == ()
    status.stop()
    assert read_reports(tmp_path) == ()


def test_given_reports_when_scraped_then_every_value_has_source_and_query_and_states_are_zero_or_one(
    tmp_path: Path,
) -> None:
    feed = parked_feed()
    feed.show(view_of(feed.view().partitions, state=LoopState.FAILSAFE))
    plan = planner(feed, commitOffsets="true", fetchEngine="python", **{"kafka.group.id": "g"})
    StatusFile(plan, tmp_path, feed.clock).write_if_due()
    registry = CollectorRegistry()
    registry.register(SourceCollector(lambda: [("daily", seen(tmp_path))], lambda: {"daily": 3}))
    text = generate_latest(registry).decode()  # type: ignore[no-untyped-call]
    assert 'kafka_discovery_source_lag_records{query="daily",source="dau"} 49.0' in text
    assert 'kafka_discovery_source_state{query="daily",source="dau",state="failsafe"} 1.0' in text
    assert 'kafka_discovery_source_state{query="daily",source="dau",state="fresh"} 0.0' in text
    assert 'kafka_discovery_source_group_commits_total{query="daily",result="failure",source="dau"} 0.0' in text
    assert 'kafka_discovery_source_plain_engine{query="daily",source="dau"} 1.0' in text
    assert 'kafka_discovery_query_late_rows_dropped_total{query="daily"} 3.0' in text


@pytest.mark.parametrize(("name", "query"), [("daily", "daily"), (None, str(uuid.UUID(int=7)))])
def test_given_a_query_without_a_batch_when_scraped_then_it_has_dropped_no_rows(name: str | None, query: str) -> None:
    no_spark: Any = None
    progress = SourceProgress(no_spark)
    registry = CollectorRegistry()
    registry.register(progress._collector)
    progress.onQueryStarted(QueryStartedEvent(uuid.UUID(int=7), uuid.UUID(int=8), name, "", set()))
    assert registry.get_sample_value("kafka_discovery_query_late_rows_dropped_total", {"query": query}) == 0


def test_given_sources_that_share_stores_when_scraped_then_each_certificate_has_its_end_once(tmp_path: Path) -> None:
    authority, ends = trustme.CA(), datetime(2031, 1, 2, tzinfo=UTC)
    trust, key = tmp_path / "trust.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(trust)
    authority.issue_cert("dau", not_after=ends).private_key_and_cert_chain_pem.write_to_path(key)
    plan = planner(parked_feed())
    stores = {"ssl.truststore.location": str(trust), "ssl.keystore.location": str(key), "ssl.keystore.type": "PEM"}
    service = ServiceFiles(ca=trust, certificate=key)
    plan.options = replace(plan.options, client=open_stores(map_client_options(stores)), discovery_files=service)
    StatusFile(plan, tmp_path, plan.feed.clock).write_if_due()  # type: ignore[attr-defined]
    registry = CollectorRegistry()
    registry.register(SourceCollector(lambda: [("daily", seen(tmp_path)), ("hourly", seen(tmp_path))], dict))
    name = "kafka_discovery_certificate_expiry_timestamp_seconds"
    for peer in ("kafka", "service"):
        identity = {"use": f"{peer}_identity", "file": str(key)}
        assert registry.get_sample_value(name, identity) == ends.timestamp()
        assert registry.get_sample_value(name, {"use": f"{peer}_trust", "file": str(trust)}) is not None
    text = generate_latest(registry).decode()  # type: ignore[no-untyped-call]
    assert text.count(f"\n{name}{{") == 4


def test_given_the_same_offsets_when_spaced_or_ordered_otherwise_then_they_have_one_digest() -> None:
    assert plan_digest({"a": {"1": 2, "0": 1}, "b": {}}) == plan_digest(json.loads('{"b":{},"a":{"0":1,"1":2}}'))


def test_given_a_batch_that_runs_for_long_when_written_then_log_and_metric_say_since_when(tmp_path: Path) -> None:
    feed = parked_feed()
    plan = planner(feed)
    end = plan.latest_offsets({"t": {"0": 30, "1": 5}}, None)
    status = StatusFile(plan, tmp_path, feed.clock)
    plan.tasks({"t": {"0": 30, "1": 5}}, end)
    began = feed.clock.wall()
    status.write_if_due()
    assert "its batch" not in line(seen(tmp_path))
    feed.clock.advance(61)
    status.write_if_due()
    assert f"its batch runs since {datetime.fromtimestamp(began, UTC):%H:%M:%S} UTC" in line(seen(tmp_path))
    registry = CollectorRegistry()
    registry.register(SourceCollector(lambda: [("daily", seen(tmp_path))], lambda: {"daily": 3}))
    text = generate_latest(registry).decode()  # type: ignore[no-untyped-call]
    assert 'batch_started_timestamp_seconds{query="daily",source="dau"} 1.7e+09' in text
    plan.latest_offsets(end, None)
    status.write_if_due()
    assert seen(tmp_path).batch_since is None


def test_given_a_batch_whose_leader_died_when_written_then_it_is_named_and_counted_until_it_was_read(
    tmp_path: Path,
) -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 40), tp(1): partition_view(0, 9)}))
    plan = planner(feed)
    status = StatusFile(plan, tmp_path, feed.clock)
    first = {"t": {"0": 30, "1": 5}}
    end = plan.latest_offsets(first, None)
    plan.tasks(first, end)
    feed.show_partitions({tp(0): partition_view(0, 40), tp(1): partition_view(0, 9, leader=None)})
    status.write_if_due()
    report = seen(tmp_path)
    assert (report.waiting_partitions, report.waiting, report.late_records) == (1, ("t-1",), 0)
    assert "tasks wait for t-1" in line(report)
    assert report.metrics == {
        "minOffsetsBehindLatest": "4", "maxOffsetsBehindLatest": "10", "avgOffsetsBehindLatest": "7.0"
    }  # fmt: skip
    plan.latest_offsets(end, None)
    feed.show_partitions({tp(0): partition_view(0, 50), tp(1): partition_view(0, 29)})
    plan.latest_offsets(end, None)
    status.write_if_due()
    report = seen(tmp_path)
    assert (report.waiting_partitions, report.late_records) == (0, 20)
    registry = CollectorRegistry()
    registry.register(SourceCollector(lambda: [("daily", report)], dict))
    labels = {"source": "dau", "query": "daily"}
    assert registry.get_sample_value("kafka_discovery_source_late_records_total", labels) == 20
    assert registry.get_sample_value("kafka_discovery_source_cuts_total", labels) == 0
    behind = {**labels, "stat": "max"}
    assert registry.get_sample_value("kafka_discovery_source_offsets_behind_latest", behind) == 20


def test_given_partitions_that_were_parked_from_the_start_when_they_are_first_read_then_none_is_late() -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 40), tp(1): partition_view(0, None)}))
    plan = planner(feed)
    start = {"t": {"0": 30, "1": 5}}
    plan.latest_offsets(start, None)
    feed.show_partitions({tp(0): partition_view(0, 40), tp(1): partition_view(0, 9)})
    plan.latest_offsets(start, None)
    assert plan.state.late_records == 0


def test_given_a_ledger_that_cannot_be_written_when_a_range_would_be_cut_then_it_is_reported_until_it_can(
    tmp_path: Path,
) -> None:
    ledger = FullDisk(tmp_path, "dau")
    coordinator = RangeCoordinator(ledger)
    coordinator.open()
    coordinator.begin({}, {})
    coordinator.open_plan({tp(0): PlannedRange(start=0, end=9)}, replayed=False)
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 40)}))
    options = parse_options({"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", "sourceId": "dau"})
    cuts = Cuts(coordinator, CoordinatorServer(coordinator), options.cuts or CutOptions())
    status = StatusFile(Planner(feed, options, feed.clock, cuts=cuts), tmp_path, feed.clock)
    registry = CollectorRegistry()
    registry.register(SourceCollector(lambda: [("daily", seen(tmp_path))], dict))
    labels = {"source": "dau", "query": "daily"}
    ledger.full = True
    with pytest.raises(StateError):
        coordinator.decide(1, {tp(0): 4})
    status.write_if_due()
    assert "nothing can be cut, its ledger is not written: no space left" in line(seen(tmp_path))
    assert registry.get_sample_value("kafka_discovery_source_ledger_failing", labels) == 1
    ledger.full = False
    assert coordinator.decide(1, {tp(0): 4}) == {tp(0): 4}
    status.write_if_due()
    assert "its ledger" not in line(seen(tmp_path))
    assert registry.get_sample_value("kafka_discovery_source_ledger_failing", labels) == 0
    coordinator.close()


def test_given_a_service_that_is_silent_when_written_then_the_fallback_is_reported(tmp_path: Path) -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 40)}))
    status = StatusFile(planner(feed), tmp_path, feed.clock)
    status.write_if_due()
    feed.show(replace(feed.view(), fallback="no answer"))
    assert status.write_if_due()
    registry = CollectorRegistry()
    registry.register(SourceCollector(lambda: [("daily", seen(tmp_path))], dict))
    labels = {"source": "dau", "query": "daily"}
    assert registry.get_sample_value("kafka_discovery_source_fallback", labels) == 1
    assert registry.get_sample_value("kafka_discovery_source_engine_fallback", labels) == 0


def test_given_a_worker_that_fell_back_and_cuts_when_scraped_then_engine_cuts_and_rewinds_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 9), tp(1): partition_view(0, 9)}))
    given = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", "startingOffsets": "earliest", "sourceId": "dau"}
    coordinator = RangeCoordinator(FileLedger(tmp_path, "dau"))
    cuts = Cuts(coordinator, CoordinatorServer(coordinator, host="127.0.0.1"), CutOptions(host="127.0.0.1"))
    plan = Planner(feed, parse_options(given), feed.clock, cuts=cuts)
    status = StatusFile(plan, tmp_path, feed.clock)
    registry = CollectorRegistry()
    registry.register(SourceCollector(lambda: [("daily", seen(tmp_path))], dict))

    def scraped() -> list[float | None]:
        status.write_if_due()
        labels = {"source": "dau", "query": "daily"}
        names = ("engine_fallback", "cuts_total", "rewinds_total")
        return [registry.get_sample_value(f"kafka_discovery_source_{name}", labels) for name in names]

    with contextlib.closing(cuts):
        cuts.open()
        start = plan.initial_offsets()
        end = plan.latest_offsets(start, None)
        tasks, _, ticket = plan.tasks(start, end)
        assert ticket is not None
        assert scraped() == [0, 0, 0]
        monkeypatch.setattr("discovery.spark.fetch.engine.fallbacks", ["ImportError: no compiler"])
        TcpArbiter(ticket).decide({r: 3 for task in tasks for r in task})
        assert scraped() == [1, 2, 0]
        assert "several times slower: ImportError: no compiler" in line(seen(tmp_path))
        plan.latest_offsets(end, None)
        assert scraped() == [1, 2, 2]
