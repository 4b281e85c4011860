"""A worker's consumer on a scripted client: it moves only what has to move, and is kept from task to task."""

import time
from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa
import pytest

from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import BrokerAddress, TopicId, TopicName, TopicPartition
from discovery.spark.fetch import FetchSettings
from discovery.spark.fetch.cache import close_all, give_back, take
from discovery.spark.fetch.client import ClientFactory, OnError, Piece, TopicAnswer
from discovery.spark.fetch.consumers import CachedConsumer
from discovery.spark.fetch.native.client import NativeClient
from discovery.spark.fetch.python_client import PythonClient
from discovery.spark.fetch.tuning import complete, limits_of
from tests.support.fakes.clock import FakeClock

P0, P1 = (TopicPartition(TopicName("t"), partition) for partition in range(2))
BROKERS = (BrokerAddress("b1", 9092),)
OTHERS = (BrokerAddress("b2", 9092),)
AUTH, ALL_DOWN, DENIED = -169, -187, 29


class ScriptedClient:
    """See `Client`; notes its calls."""

    made: list["ScriptedClient"]

    def __init__(
        self, client_options: Mapping[str, str], brokers: tuple[BrokerAddress, ...], *, headers: bool, on_error: OnError
    ) -> None:
        self.options, self.brokers, self.on_error = dict(client_options), brokers, on_error
        self.log: list[str] = []
        self.pieces: list[Piece] = []
        self.asked_rows: list[int] = []
        self.ends: dict[TopicPartition, int] = {}
        self.answer: TopicAnswer | None = TopicAnswer({0: BROKERS[0], 1: None})
        self.made.append(self)

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self.log += [f"assign {tp} {at}" for tp, at in starts.items()]

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        self.log += [f"unassign {tp}" for tp in partitions]

    def read(self, ends: Mapping[TopicPartition, int], max_rows: int, timeout_seconds: float) -> Piece:
        self.asked_rows.append(max_rows)
        return self.pieces.pop(0)

    def topic(self, topic: TopicName, timeout_seconds: float) -> TopicAnswer | None:
        return self.answer

    def watermarks(self, tp: TopicPartition, timeout_seconds: float) -> tuple[int, int] | None:
        return None

    def known_end(self, tp: TopicPartition) -> int | None:
        return self.ends.get(tp)

    def close(self) -> None:
        self.log.append("close")


@pytest.fixture(autouse=True)
def _no_clients() -> Iterator[None]:
    ScriptedClient.made = []
    yield
    close_all()


def consumer(settings: FetchSettings | None = None) -> tuple[CachedConsumer, ScriptedClient]:
    made = CachedConsumer(settings or FetchSettings(), BROKERS, ScriptedClient)
    return made, ScriptedClient.made[-1]


def rows_of(count: int, row_bytes: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"x" * row_bytes] * count, pa.binary())})


def test_given_another_list_when_a_kept_client_is_rebuilt_then_it_is_the_present_one() -> None:
    settings = FetchSettings()
    kept = take(settings, BROKERS, ScriptedClient, {})
    give_back(kept)
    again = take(settings, OTHERS, ScriptedClient, {})
    assert again is kept
    assert ScriptedClient.made[-1].brokers == BROKERS, "a changed list alone is no reason to start over"
    again.assign({P0: 0})
    batch = pa.record_batch({"key": pa.array([b"k" * 10_000], pa.binary()), "value": pa.array([b""], pa.binary())})
    ScriptedClient.made[-1].pieces.append(Piece(batch=batch, reached={P0: 1}, heard=True))
    again.read({P0: 100}, None, 0.0)
    assert ScriptedClient.made[-1].brokers == OTHERS == again.brokers


def test_given_large_keys_when_read_then_fewer_messages_are_prefetched_from_the_same_place() -> None:
    ours, client = consumer()
    ours.assign({P0: 0})
    keys = pa.array([b"k" * 10_000] * 10, pa.binary())
    batch = pa.record_batch({"key": keys, "value": pa.array([b""] * 10, pa.binary())})
    client.pieces.append(Piece(batch=batch, reached={P0: 10}, heard=True))
    ours.read({P0: 100}, None, 0.0)
    assert client.log[-1] == "close"
    again = ScriptedClient.made[-1]
    assert again.log == ["assign t-0 10"]
    assert int(again.options["queued.min.messages"]) * 10_400 <= 16 << 20
    again.pieces.append(Piece(batch=batch, reached={P0: 20}, heard=True))
    ours.read({P0: 100}, None, 0.0)
    assert ScriptedClient.made[-1] is again, "once is enough"


def test_given_a_variable_that_names_the_rack_when_built_then_it_is_this_workers_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = FetchSettings(rack_variable="NODE_ZONE")
    monkeypatch.setenv("NODE_ZONE", "eu-1a")
    assert consumer(settings)[1].options["client.rack"] == "eu-1a"
    assert "client.rack" not in consumer()[1].options
    monkeypatch.delenv("NODE_ZONE")
    assert "client.rack" not in consumer(settings)[1].options
    assert "clientRackVariable: NODE_ZONE is not set for this worker" in caplog.text


def test_given_a_stream_that_stands_there_when_aimed_then_it_is_not_touched() -> None:
    ours, client = consumer()
    ours.assign({P0: 0, P1: 5})
    client.pieces.append(Piece(reached={P0: 10}, heard=True))
    ours.read({P0: 10}, None, 0.0)
    client.log.clear()
    ours.assign({P0: 10, P1: 5})
    assert client.log == []
    ours.assign({P0: 10, P1: 7})
    assert client.log == ["unassign t-1", "assign t-1 7"]


def test_given_a_failed_partition_when_aimed_again_at_its_position_then_it_is_moved_all_the_same() -> None:
    ours, client = consumer()
    ours.assign({P0: 3})
    client.log.clear()
    ours.seek(P0, 3)
    assert client.log == ["unassign t-0", "assign t-0 3"]


def test_given_a_backlog_when_a_task_ends_then_only_that_stream_goes_on() -> None:
    ours, client = consumer()
    ours.assign({P0: 0, P1: 0})
    client.ends = {P0: 1_000_000, P1: 100}
    client.pieces.append(Piece(reached={P0: 100, P1: 100}, heard=True))
    ours.read({}, None, 0.0)
    client.log.clear()
    ours.keep_backlog()
    assert client.log == ["unassign t-1"]
    assert ours.positions == {P0: 100}


def test_given_a_slow_leader_when_its_range_was_cut_then_the_stream_goes_on_until_the_next_task() -> None:
    ours, client = consumer()
    ours.assign({P0: 0, P1: 0})
    client.log.clear()
    ours.awaited = frozenset({P0})
    ours.keep_backlog()
    assert client.log == ["unassign t-1"], "an answer is under way, which another question would wait behind"
    ours.assign({P0: 0})
    assert client.log == ["unassign t-1"]


def test_given_a_consumer_that_awaits_a_slow_leader_when_another_is_taken_then_it_gives_nothing_up() -> None:
    slow = take(FetchSettings(batch_rows=1), BROKERS, ScriptedClient, {})
    slow.assign({P0: 4})
    slow.awaited = frozenset({P0})
    give_back(slow)
    give_back(take(FetchSettings(batch_rows=2), BROKERS, ScriptedClient, {}))
    assert ScriptedClient.made[0].log == ["assign t-0 4"], "the answer under way would be thrown away"
    assert take(FetchSettings(batch_rows=1), BROKERS, ScriptedClient, {}).positions == {P0: 4}


def test_given_large_records_when_they_were_seen_then_fewer_are_asked_for() -> None:
    ours, client = consumer(FetchSettings(max_memory_bytes=64 << 20))
    client.pieces = [Piece(batch=rows_of(10, 100_000), heard=True), Piece(), Piece(), Piece()]
    for missing in (None, None, 7, 0):
        ours.read({}, missing, 0.0)
    assert client.asked_rows == [100, 41, 7, 1]


def test_given_errors_when_something_comes_then_they_are_forgotten() -> None:
    ours, client = consumer()
    client.on_error(AUTH, "no")
    client.on_error(ALL_DOWN, "down")
    assert ours.failure is not None
    assert ours.failure.kind is FailureKind.AUTH
    client.pieces = [Piece(), Piece(heard=True)]
    states = [ours.all_down]
    for _ in range(2):
        ours.read({}, None, 0.0)
        states.append(ours.all_down and ours.failure is not None)
    assert states == [True, True, False]


def test_given_partitions_when_their_leaders_are_asked_for_then_one_without_an_answer_is_left_out() -> None:
    ours, client = consumer()
    assert ours.leaders([P0, P1, TopicPartition(P0.topic, 9)], 1.0) == {P0: BROKERS[0], P1: None}
    client.answer = None
    assert ours.leaders([P0], 1.0) == {}


def test_given_answers_about_a_topic_when_asked_then_a_denial_is_an_error_and_silence_says_nothing() -> None:
    ours, client = consumer()
    assert ours.exists(P1, 1.0) is True
    client.answer = TopicAnswer({0: None})
    assert ours.exists(P1, 1.0) is False
    client.answer = TopicAnswer({}, 3, "unknown topic")
    assert ours.exists(P1, 1.0) is False
    client.answer = TopicAnswer({}, 5, "leader not available")
    assert ours.exists(P1, 1.0) is None
    client.answer = None
    assert ours.exists(P1, 1.0) is None
    client.answer = TopicAnswer({}, DENIED, "denied")
    with pytest.raises(GatewayError, match="t-1: denied; grant this user READ on the topic"):
        ours.exists(P1, 1.0)


def test_given_the_same_settings_when_taken_again_then_the_list_of_brokers_does_not_matter() -> None:
    settings = FetchSettings()
    first = take(settings, BROKERS, ScriptedClient, {})
    give_back(first)
    assert take(settings, OTHERS, ScriptedClient, {}) is first
    give_back(first)
    assert take(FetchSettings(client_options={"client.id": "x"}), BROKERS, ScriptedClient, {}) is not first
    assert take(FetchSettings(engine="python"), BROKERS, ScriptedClient, {}) is not first


@pytest.mark.parametrize("listed", [BROKERS, OTHERS], ids=["the-same-list", "another-list"])
def test_given_a_consumer_whose_brokers_are_all_down_when_taken_then_it_starts_over(
    listed: tuple[BrokerAddress, ...],
) -> None:
    first = take(FetchSettings(), BROKERS, ScriptedClient, {})
    first.assign({P0: 4})
    ScriptedClient.made[-1].on_error(ALL_DOWN, "down")
    ScriptedClient.made[-1].ends = {P0: 1_000_000}
    give_back(first)
    assert take(FetchSettings(), listed, ScriptedClient, {}) is first
    assert ScriptedClient.made[0].log[-1] == "close"
    assert ScriptedClient.made[1].brokers == listed
    assert first.positions == {}


@pytest.mark.parametrize("seconds", [59, 60])
def test_given_a_consumer_that_stood_still_when_taken_then_it_starts_over_after_a_minute(
    monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    now = time.monotonic()
    first = take(FetchSettings(), BROKERS, ScriptedClient, {})
    first.stood_still = True
    give_back(first)
    monkeypatch.setattr("discovery.spark.fetch.consumers.time.monotonic", lambda: now + seconds + 0.5)
    assert take(FetchSettings(), BROKERS, ScriptedClient, {}) is first
    assert len(ScriptedClient.made) == (2 if seconds == 60 else 1)
    assert first.stood_still == (seconds != 60)


def test_given_a_consumer_that_stands_still_again_and_again_when_taken_then_it_is_doubted_more_and_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("discovery.spark.fetch.consumers.time.monotonic", lambda: clock[0])
    stream = take(FetchSettings(), BROKERS, ScriptedClient, {})
    built = []
    for minute in range(60):
        clock[0] = 1000.0 + 60 * minute
        stream.stood_still = True
        give_back(stream)
        before = len(ScriptedClient.made)
        assert take(FetchSettings(), BROKERS, ScriptedClient, {}) is stream
        built += [minute] * (len(ScriptedClient.made) - before)
    assert built == [1, 3, 7, 15, 30, 45], "and at last every quarter of an hour"


def test_given_a_consumer_that_fetched_ahead_when_another_querys_is_taken_then_it_makes_room_once() -> None:
    first = take(FetchSettings(batch_rows=1), BROKERS, ScriptedClient, {})
    first.assign({P0: 4})
    (client,) = ScriptedClient.made
    client.ends, client.pieces = {P0: 1_000_000}, [Piece()]
    give_back(first)
    assert client.log == ["assign t-0 4"], "a backlog is left, so it reads on"
    for _ in range(2):
        give_back(take(FetchSettings(batch_rows=2), BROKERS, ScriptedClient, {}))
    assert client.log == ["assign t-0 4", "unassign t-0"]
    assert client.pieces == [], "what is outdated is dropped by the next poll alone"
    assert take(FetchSettings(batch_rows=1), BROKERS, ScriptedClient, {}) is first


def test_given_many_configurations_when_given_back_then_the_oldest_is_closed() -> None:
    for number in range(6):
        give_back(take(FetchSettings(batch_rows=number + 1), BROKERS, ScriptedClient, {}))
    assert [client.log for client in ScriptedClient.made] == [["close"], ["close"], [], [], [], []]


def test_given_a_consumer_unused_for_a_minute_when_another_is_given_back_then_it_is_closed() -> None:
    clock = FakeClock()
    give_back(take(FetchSettings(batch_rows=1), BROKERS, ScriptedClient, {}), clock)
    clock.advance(59)
    give_back(take(FetchSettings(batch_rows=2), BROKERS, ScriptedClient, {}), clock)
    clock.advance(2)
    give_back(take(FetchSettings(batch_rows=2), BROKERS, ScriptedClient, {}), clock)
    assert [client.log for client in ScriptedClient.made] == [["close"], []]


@pytest.mark.parametrize("mebibytes", [8, 64, 4096])
def test_given_a_bound_when_shared_out_then_the_shares_of_two_leaders_fit_in(mebibytes: int) -> None:
    memory = mebibytes << 20
    limits = limits_of(FetchSettings(max_memory_bytes=memory))
    assert limits.queue_bytes + 2 * limits.answer_bytes + 2 * limits.batch_bytes <= memory
    options = complete({"fetch.max.bytes": "7", "enable.auto.commit": "true"}, limits)
    assert options["fetch.max.bytes"] == "7"
    assert options["enable.auto.commit"] == "false"
    assert options["queued.max.messages.kbytes"] == str(limits.queue_bytes // 1024)


@pytest.mark.parametrize(
    "given",
    [
        {"reconnect.backoff.ms": "5000"},
        {"message.max.bytes": "10000000"},
        {"receive.message.max.bytes": "2000000"},
    ],
)
@pytest.mark.parametrize("factory", [PythonClient, NativeClient])
def test_given_one_of_two_options_that_must_agree_when_completed_then_librdkafka_takes_both(
    given: dict[str, str], factory: ClientFactory
) -> None:
    options = complete(given, limits_of(FetchSettings()))
    assert given.items() <= options.items()
    factory(options, BROKERS, headers=False, on_error=lambda *_: None).close()


def test_given_a_topic_under_another_id_when_taken_then_the_client_starts_over_and_only_then() -> None:
    first, second = TopicId("first"), TopicId("second")
    t, u = TopicName("t"), TopicName("u")
    ours = take(FetchSettings(), BROKERS, ScriptedClient, {t: first})
    ours.assign({P0: 4})
    known: dict[TopicName, TopicId]
    for known in ({}, {t: first}, {u: second}):
        give_back(ours)
        assert take(FetchSettings(), BROKERS, ScriptedClient, known) is ours
        assert len(ScriptedClient.made) == 1
    give_back(ours)
    assert take(FetchSettings(), BROKERS, ScriptedClient, {t: second}) is ours
    assert len(ScriptedClient.made) == 2
    assert not ours.positions
    give_back(ours)
    take(FetchSettings(), BROKERS, ScriptedClient, {t: second, u: first})
    assert len(ScriptedClient.made) == 2, "what the client before knew of the other topic does not count"
