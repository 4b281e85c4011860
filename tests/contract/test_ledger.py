"""What every ledger of cuts must do, whether it is a file or a topic on real brokers."""

import contextlib
import hashlib
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner, Result

from discovery.cli.app import app
from discovery.core.errors import ArbiterError, ConfigError, LedgerDamagedError, StateError
from discovery.core.interest import CUT_LEDGER_TOPIC
from discovery.core.model import TopicId, TopicName, TopicPartition, parse_bootstrap_servers
from discovery.kafka.journal import Journal
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.fetch import FetchRange
from discovery.spark.source.cuts import arbiter
from discovery.spark.source.cuts.arbiter import TcpArbiter
from discovery.spark.source.cuts.coordinator import RangeCoordinator
from discovery.spark.source.cuts.ledger import KEPT_PLANS, Entry, Incarnation, Ledger, Where, fold, prune
from discovery.spark.source.cuts.ledger_file import FileLedger
from discovery.spark.source.cuts.ledger_kafka import KafkaLedger
from discovery.spark.source.cuts.rules import CutRecord, PlannedRange
from discovery.spark.source.feeds import no_cut_left_behind, opened_cuts
from discovery.spark.source.options.parse import parse_options
from tests.support.checkpoint import checkpoint
from tests.support.fakes.feed import ScriptedFeed, tp, view_of
from tests.support.helpers import eventually, numbered, produce
from tests.support.kafka_fixtures import KafkaFactory

FIRST = Incarnation(number=1, start={"t": {"0": 0}}, end={"t": {"0": 20}})
CUT = CutRecord(topic_partition=tp(0), topic_id=TopicId("id"), start=5, end=20, cut=8, plan=3, incarnation=1)
OTHER = replace(CUT, topic_partition=tp(1), topic_id=None)
MakeLedger = Callable[..., Ledger]


@pytest.fixture(params=["file", pytest.param("kafka", marks=pytest.mark.kafka)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeLedger]:
    """Make ledgers of one name, as one driver after the other would."""
    made: list[Ledger] = []
    name = uuid.uuid4().hex[:8]

    def in_file(source_id: str = name) -> Ledger:
        made.append(FileLedger(tmp_path, source_id, lock_wait_seconds=0.3))
        return made[-1]

    def in_kafka(source_id: str = name) -> Ledger:
        brokers = parse_bootstrap_servers(request.getfixturevalue("kafka_cluster").bootstrap_servers)
        made.append(KafkaLedger(TopicName("cuts"), source_id, properties=dict, brokers=lambda: brokers))
        return made[-1]

    yield in_file if request.param == "file" else in_kafka
    for ledger in made:
        ledger.close()


def test_given_nothing_when_opened_then_it_is_empty(make: MakeLedger) -> None:
    state = make().open()
    assert state.incarnation is None
    assert state.pending() == {}
    assert state.last_plan() == 0


def test_given_entries_when_opened_again_then_they_are_there_and_the_last_version_counts(make: MakeLedger) -> None:
    first = make()
    first.open()
    first.append([FIRST])
    first.append([CUT, OTHER])
    first.append([replace(CUT, applied=True)])
    first.append([OTHER])
    first.close()
    state = make().open()
    assert state.incarnation == FIRST
    assert state.pending() == {tp(1): OTHER}
    assert set(state.records.values()) == {replace(CUT, applied=True), OTHER}


def test_given_a_new_incarnation_when_opened_again_then_old_records_are_kept_and_out_of_force(make: MakeLedger) -> None:
    first = make()
    first.open()
    first.append([FIRST, CUT])
    first.append([Incarnation(number=2)])
    first.close()
    state = make().open()
    assert state.incarnation == Incarnation(number=2)
    assert state.pending() == {}
    assert set(state.records.values()) == {CUT}


def test_given_records_older_than_any_replay_when_opened_then_only_pending_ones_are_kept(make: MakeLedger) -> None:
    young = replace(CUT, plan=CUT.plan + KEPT_PLANS, applied=True)
    first = make()
    first.open()
    first.append([FIRST, replace(CUT, applied=True), OTHER, young])
    first.close()
    second = make()
    assert set(second.open().records.values()) == {OTHER, young}
    second.close()
    assert set(make().open().records.values()) == {OTHER, young}


def test_given_a_ledger_in_use_when_made_shorter_then_it_goes_on_and_the_next_holder_finds_the_rest(
    make: MakeLedger,
) -> None:
    young = replace(CUT, plan=CUT.plan + KEPT_PLANS, applied=True)
    entries: list[Entry] = [FIRST, replace(CUT, applied=True), OTHER, young]
    first = make()
    before = fold(first.open(), entries)
    first.append(entries)
    first.forget(before, prune(before))
    last = replace(CUT, plan=young.plan + 1)
    first.append([last])
    first.close()
    assert set(make().open().records.values()) == {OTHER, young, last}


def test_given_another_source_when_opened_then_it_sees_nothing_of_this_one(make: MakeLedger) -> None:
    first = make("a")
    first.open()
    first.append([FIRST, CUT])
    assert make("b").open().incarnation is None
    first.append([OTHER])


def test_given_a_second_holder_when_both_write_then_one_of_them_fails_and_names_the_source(make: MakeLedger) -> None:
    first = make()
    first.open()
    first.append([FIRST])
    with pytest.raises(StateError, match=r"sourceId '[0-9a-f]{8}' is in use"):
        _take_over_and_write(make(), first)


def _take_over_and_write(second: Ledger, first: Ledger) -> None:
    second.open()  # a file is locked: this fails
    second.append([CUT])
    first.append([OTHER])  # a topic is fenced: the first holder's next write fails


# -- only topics --------------------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_given_a_holder_that_was_replaced_when_it_still_writes_then_no_later_holder_takes_it_for_true(
    kafka_cluster: LocalKafka,
) -> None:
    name, brokers = uuid.uuid4().hex[:8], parse_bootstrap_servers(kafka_cluster.bootstrap_servers)

    def ledger() -> KafkaLedger:
        return KafkaLedger(TopicName("cuts"), name, properties=dict, brokers=lambda: brokers)

    replaced, holder = ledger(), ledger()
    replaced.open()
    replaced.append([FIRST])
    holder.open()
    with pytest.raises(StateError, match="is in use"):
        replaced.append([CUT, OTHER])
    holder.append([replace(OTHER, cut=9)])
    assert ledger().open().pending() == {tp(1): replace(OTHER, cut=9)}


@pytest.mark.kafka
def test_given_a_topic_that_forgets_or_loses_entries_when_opened_then_one_line_says_what_to_set(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    brokers = parse_bootstrap_servers(kafka_cluster.bootstrap_servers)
    kafka_cluster.create_topic(topic_name, config={"cleanup.policy": "compact,delete"})
    kafka_cluster.create_topic(f"{topic_name}-2", replication_factor=3, config={"cleanup.policy": "compact"})
    with pytest.raises(ConfigError, match=r"cleanup.policy=compact,delete, .* retention.ms \(\d+\); set it to compact"):
        KafkaLedger(TopicName(topic_name), "s", properties=dict, brokers=lambda: brokers).open()
    with pytest.raises(ConfigError, match=r"min.insync.replicas=1 with 3 replicas, .*; set it to 2, or name another"):
        KafkaLedger(TopicName(f"{topic_name}-2"), "s", properties=dict, brokers=lambda: brokers).open()


@pytest.mark.long
@pytest.mark.kafka
def test_given_five_brokers_when_two_die_then_the_ledger_is_still_written(kafka_factory: KafkaFactory) -> None:
    cluster = kafka_factory(5, extra_properties={"transaction.state.log.min.isr": "1"})
    brokers = parse_bootstrap_servers(cluster.bootstrap_servers)
    ledger = KafkaLedger(TopicName("cuts"), "s", properties=dict, brokers=lambda: brokers)
    ledger.open()
    ledger.append([FIRST])
    cluster.kill([4, 5])
    ledger.append([CUT])
    ledger.close()
    assert KafkaLedger(TopicName("cuts"), "s", properties=dict, brokers=lambda: brokers).open().pending() == {
        tp(0): CUT
    }


@pytest.mark.kafka
def test_given_a_cut_whose_leader_dies_at_once_when_looked_for_then_it_is_found(kafka_factory: KafkaFactory) -> None:
    cluster = kafka_factory(3)
    brokers = parse_bootstrap_servers(cluster.bootstrap_servers)
    holder, other = (KafkaLedger(TopicName("cuts"), "s", properties=dict, brokers=lambda: brokers) for _ in range(2))
    holder.open()
    holder.append([FIRST, CUT])
    known = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics("cuts", timeout=10)
    cluster.kill([known.topics["cuts"].partitions[0].leader])
    found = other.look()
    assert found is not None
    assert found.pending() == {tp(0): CUT}
    holder.close()


@pytest.mark.kafka
def test_given_a_transaction_log_below_its_min_isr_when_a_range_is_cut_then_the_trouble_names_it(
    kafka_factory: KafkaFactory,
) -> None:
    cluster = kafka_factory(3)
    brokers = parse_bootstrap_servers(cluster.bootstrap_servers)
    ledger = KafkaLedger(TopicName("cuts"), "s", properties=dict, brokers=lambda: brokers, timeout_seconds=8)
    coordinator = RangeCoordinator(ledger)
    coordinator.open()
    coordinator.begin({}, {})
    coordinator.open_plan({tp(0): PlannedRange(start=5, end=20)}, replayed=False)
    cluster.kill([2, 3])
    with pytest.raises(StateError):
        coordinator.decide(1, {tp(0): 8})
    assert coordinator.trouble.startswith("Kafka did not let us begin to write in time: ")
    assert "__transaction_state, whose partitions need as many replicas in sync as its" in coordinator.trouble
    assert "min.insync.replicas (transaction.state.log.min.isr, 2 by default): bring back" in coordinator.trouble
    assert "\n" not in coordinator.trouble
    cluster.restart([2, 3])
    eventually(partial(_is_cut, coordinator), deadline_seconds=60)
    assert (coordinator.trouble, coordinator.pending()[tp(0)].cut) == ("", 8)
    coordinator.close()


def _is_cut(coordinator: RangeCoordinator) -> bool:
    with contextlib.suppress(StateError):
        return coordinator.decide(1, {tp(0): 8}) == {tp(0): 8}
    return False


@pytest.mark.kafka
def test_given_an_entry_that_nobody_wrote_when_looked_at_then_it_is_reported_and_an_operator_may_give_it_up(
    kafka_cluster: LocalKafka, tmp_path: Path
) -> None:
    name, brokers = uuid.uuid4().hex[:8], parse_bootstrap_servers(kafka_cluster.bootstrap_servers)

    def ledger() -> KafkaLedger:
        return KafkaLedger(TopicName("cuts"), name, properties=dict, brokers=lambda: brokers)

    def amend(what: str, *more: str) -> Result:
        options = ["--source-id", name, "--cut-ledger", "kafka", "--cut-ledger-topic", "cuts"]
        where = ["--bootstrap", kafka_cluster.bootstrap_servers]
        return CliRunner().invoke(app, ["checkpoint", what, str(folder), *options, *where, *more])

    folder = checkpoint(tmp_path, {3: '{"t": {"0": 15}}', 4: '{"t": {"0": 40}}'}, [3])
    assert "would adopt" in amend("adopt").output
    assert ledger().look() is None, "a look changes nothing"
    assert "in topic cuts" in amend("adopt", "--yes").output
    holder = ledger()
    holder.open()
    assert "nothing was changed" in amend("cut", "--partition", "t-0", "--at", "20").output
    holder.append([OTHER])
    amend("cut", "--partition", "t-0", "--at", "20", "--yes")
    assert "t-0 (read to 20 of 40)" in amend("verify").output
    journal = Journal(TopicName("cuts"), name, properties=dict, brokers=lambda: brokers)
    journal.open()
    journal.append({"cut/1/1/t-0": "no entry"})
    with pytest.raises(LedgerDamagedError, match=f"topic cuts: entry cut/1/1/t-0 of sourceId '{name}' is damaged"):
        ledger().open()
    assert "would be given up: topic cuts: entry" in amend("adopt").output
    assert "its entries are forgotten" in amend("adopt", "--yes").output
    assert ledger().open().records == {}


# -- only files ---------------------------------------------------------------------------------------------------


def a_file(tmp_path: Path) -> FileLedger:
    ledger = FileLedger(tmp_path, "s")
    ledger.open()
    ledger.append([FIRST, CUT])
    ledger.close()
    return ledger


@pytest.mark.parametrize("cut_bytes", [1, 5, 40])
def test_given_a_line_that_was_cut_short_when_opened_then_it_is_dropped_and_writing_goes_on(
    tmp_path: Path, cut_bytes: int
) -> None:
    path = a_file(tmp_path).path
    path.write_bytes(path.read_bytes()[:-cut_bytes])
    ledger = FileLedger(tmp_path, "s")
    assert ledger.open().pending() == {}
    ledger.append([OTHER])
    ledger.close()
    again = FileLedger(tmp_path, "s")
    assert again.open().pending() == {tp(1): OTHER}
    again.close()


def test_given_a_damaged_line_when_opened_then_it_is_an_error_and_not_an_empty_ledger(tmp_path: Path) -> None:
    path = a_file(tmp_path).path
    path.write_bytes(path.read_bytes().replace(b'"cut":8', b'"cut":9'))
    with pytest.raises(StateError, match="is damaged in line 3; restore it from a copy"):
        FileLedger(tmp_path, "s").open()


@pytest.mark.parametrize("first", ["", '{"ledger":2}'])
def test_given_a_ledger_of_another_version_when_opened_then_it_is_an_error(tmp_path: Path, first: str) -> None:
    path = a_file(tmp_path).path
    header = f"{hashlib.sha256(first.encode()).hexdigest()[:16]} {first}\n" if first else ""
    _, *lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, *lines]))
    before = path.read_bytes()
    with pytest.raises(StateError, match="another version wrote it"):
        FileLedger(tmp_path, "s").open()
    assert path.read_bytes() == before


def test_given_a_folder_that_cannot_be_made_when_opened_then_the_option_is_named(tmp_path: Path) -> None:
    (tmp_path / "ledgers").write_text("a file in the way")
    with pytest.raises(StateError, match="stateDir: the ledger cannot be kept"):
        FileLedger(tmp_path, "s").open()


@pytest.mark.kafka
def test_given_a_cut_of_another_name_in_kafka_when_verified_or_adopted_with_bootstrap_then_it_is_found(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    bootstrap = kafka_cluster.bootstrap_servers
    brokers = parse_bootstrap_servers(bootstrap)
    kafka_cluster.create_topic(topic_name, 1)
    produce(bootstrap, topic_name, *numbered(20))
    cut = replace(CUT, topic_partition=TopicPartition(TopicName(topic_name), 0), query="f2ac99fe", batch=4)
    source_id = uuid.uuid4().hex[:8]
    ledger = KafkaLedger(CUT_LEDGER_TOPIC, source_id, properties=dict, brokers=lambda: brokers)
    ledger.open()
    ledger.append([FIRST, cut])
    logged = {3: f'{{"{topic_name}": {{"0": 5}}}}', 4: f'{{"{topic_name}": {{"0": 20}}}}'}
    folder = checkpoint(tmp_path / "c", logged, [3, 4])
    for command in (("verify",), ("adopt", "--source-id", "new")):
        given = ["checkpoint", command[0], str(folder), *command[1:], "--state-dir", str(tmp_path / "state")]
        result = CliRunner().invoke(app, [*given, "--bootstrap", bootstrap])
        said = f"{result.output}{result.exception}"
        assert f"under sourceId {source_id}, and a start of it without that ledger loses [8, 20)" in said
        assert result.exit_code == 1
        assert f"checkpoint adopt DIR --source-id {source_id} --cut-ledger kafka --bootstrap HOST:PORT --yes" in said
    ledger.append([replace(cut, applied=True)])
    assert CliRunner().invoke(app, [*given, "--bootstrap", bootstrap]).exit_code == 0


@pytest.mark.kafka
def test_given_a_cut_in_the_ledger_in_kafka_when_its_source_starts_with_a_file_then_it_is_refused(
    kafka_cluster: LocalKafka, tmp_path: Path
) -> None:
    brokers = parse_bootstrap_servers(kafka_cluster.bootstrap_servers)
    source_id = uuid.uuid4().hex[:8]
    ledger = KafkaLedger(CUT_LEDGER_TOPIC, source_id, properties=dict, brokers=lambda: brokers)
    ledger.open()
    ledger.append([FIRST, CUT])
    options = {"kafka.bootstrap.servers": str(brokers[0]), "subscribe": "t", "stateDir": str(tmp_path)}
    feed = ScriptedFeed(view_of({}, bootstrap=brokers))
    refuse = no_cut_left_behind(parse_options({**options, "sourceId": source_id}), feed)
    with pytest.raises(StateError, match=f"start once more with sourceId={source_id} and cutLedger=kafka"):
        refuse({tp(0): 20}, None)
    no_cut_left_behind(parse_options({**options, "sourceId": "another"}), feed)({tp(0): 20}, None)


@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["kafka", "file"])
def test_given_a_cut_of_another_name_in_kafka_when_a_renamed_source_asks_then_it_is_refused(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def ask(query: str) -> None:
        monkeypatch.setattr(arbiter, "own_batch", lambda: {"query": query, "batch": 5})
        cuts = opened_cuts(parse_options(given), feed)
        assert cuts is not None
        try:
            cuts.rewinds({tp(0): 20, tp(1): 20})
            _, ticket = cuts.activate(begin, end, feed.view(), lambda: (ranges,), hold=False)
            assert ticket is not None
            TcpArbiter(replace(ticket, host="127.0.0.1")).known(ranges)
        finally:
            cuts.close()

    brokers = parse_bootstrap_servers(kafka_cluster.bootstrap_servers)
    topic = TopicName(topic_name) if kind == "kafka" else CUT_LEDGER_TOPIC
    old, new = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("old", "new"))
    given = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribe": "t", "stateDir": str(tmp_path)}
    given |= {"sourceId": new, "cutLedger": kind, "coordinatorHost": "127.0.0.1"}
    given |= {"cutLedgerTopic": topic_name} if kind == "kafka" else {}
    feed = ScriptedFeed(view_of({}, bootstrap=brokers))
    ranges = tuple(FetchRange(topic_partition=tp(n), start_offset=20, end_offset=30) for n in (0, 1))
    begin, end = ({"t": {"0": at, "1": at}} for at in (20, 30))
    dead = KafkaLedger(topic, old, properties=dict, brokers=lambda: brokers)
    own = (
        FileLedger(tmp_path, new)
        if kind == "file"
        else KafkaLedger(topic, new, properties=dict, brokers=lambda: brokers)
    )
    dead.open()
    dead.append([FIRST, replace(CUT, query="mine", batch=4), OTHER])
    own.open()
    own.append([FIRST])
    own.close()
    ask("mine")  # what a living process holds is of another source of this query
    dead.close()
    ask("another")
    with pytest.raises(
        ArbiterError, match=rf"loses \[8, 20\); start once more with sourceId={old} and cutLedger=kafka"
    ):
        ask("mine")
    dead.open()
    dead.append([replace(CUT, query="mine", batch=4, applied=True)])
    dead.close()
    ask("mine")


@pytest.mark.kafka
def test_given_a_foreign_record_in_the_topic_when_all_ledgers_are_looked_at_then_the_others_are_found(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    brokers = parse_bootstrap_servers(kafka_cluster.bootstrap_servers)
    ledger = KafkaLedger(TopicName(topic_name), "mine", properties=dict, brokers=lambda: brokers)
    ledger.open()
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    producer.produce(topic_name, key=b"foreign", value=b"\xff\x00")
    assert producer.flush(30) == 0
    ledger.append([FIRST, CUT])
    found = ledger.look_all()
    assert found[Where("mine", in_kafka=True)].pending() == {CUT.topic_partition: CUT}


@pytest.mark.kafka
def test_given_a_ledger_in_kafka_when_the_doctor_looks_then_it_says_how_many_dead_brokers_stop_cuts(
    kafka_cluster: LocalKafka,
) -> None:
    bootstrap = kafka_cluster.bootstrap_servers
    brokers = parse_bootstrap_servers(bootstrap)
    KafkaLedger(CUT_LEDGER_TOPIC, "dau", properties=dict, brokers=lambda: brokers).open()
    said = CliRunner().invoke(app, ["doctor", "--bootstrap", bootstrap]).output
    found = re.search(r"cut nothing once 2 brokers with a replica of (\S+ and )?__transaction_state are dead", said)
    assert found is not None, said
