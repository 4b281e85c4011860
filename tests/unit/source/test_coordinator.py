"""The coordinator with its ledger, and over TCP with workers, liars and noise."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from discovery.core.errors import ArbiterError, LedgerFencedError, StateError, WireError
from discovery.core.model import BrokerId, TopicId, TopicName, TopicPartition
from discovery.spark.fetch import FetchRange
from discovery.spark.source.cuts.arbiter import TcpArbiter, Ticket, driver_host, for_ranges
from discovery.spark.source.cuts.coordinator import RangeCoordinator
from discovery.spark.source.cuts.ledger import Entry, Incarnation, LedgerState, Where, fold
from discovery.spark.source.cuts.ledger_file import FileLedger
from discovery.spark.source.cuts.rules import Batch, CutRecord, PlannedRange
from discovery.spark.source.cuts.server import CoordinatorServer
from discovery.spark.source.cuts.wire import MAGIC, receive
from tests.support.fakes.feed import tp
from tests.support.fakes.ledger import FullDisk
from tests.support.helpers import eventually

NOBODY = dict[TopicPartition, BrokerId]().get
"""Who leads is not known."""
RANGES = {tp(0): PlannedRange(start=5, end=20), tp(1): PlannedRange(start=0, end=4)}


def opened(tmp_path: Path) -> tuple[RangeCoordinator, FullDisk]:
    ledger = FullDisk(tmp_path, "s", lock_wait_seconds=0.1)
    coordinator = RangeCoordinator(ledger)
    coordinator.open()
    return coordinator, ledger


def planned(tmp_path: Path) -> tuple[RangeCoordinator, FullDisk]:
    coordinator, ledger = opened(tmp_path)
    coordinator.begin({}, {})
    coordinator.open_plan(RANGES, replayed=False)
    return coordinator, ledger


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[RangeCoordinator]:
    made, _ = opened(tmp_path)
    made.begin({"t": {"0": 5, "1": 0}}, {"t": {"0": 20, "1": 4}})
    yield made
    made.close()


@pytest.fixture
def server(coordinator: RangeCoordinator) -> Iterator[CoordinatorServer]:
    made = CoordinatorServer(coordinator, host="127.0.0.1")
    made.start()
    yield made
    made.stop()


def ticket(server: CoordinatorServer, plan: int = 1) -> Ticket:
    return Ticket(
        host="127.0.0.1",
        port=server.port,
        token=server.token,
        plan=plan,
        cut_after_seconds=1.0,
        undecided=frozenset(RANGES),
    )


def a_range(partition: int) -> FetchRange:
    planned = RANGES[tp(partition)]
    return FetchRange(topic_partition=tp(partition), start_offset=planned.start, end_offset=planned.end)


# -- the active plan ----------------------------------------------------------------------------------------------


def test_given_a_topic_recreated_under_a_plan_when_settled_then_nothing_is_delivered_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ids = {TopicName("t"): TopicId("first"), TopicName("u"): TopicId("other")}
    ledger = FullDisk(tmp_path, "s", lock_wait_seconds=0.1)
    coordinator = RangeCoordinator(ledger, topic_id_of=ids.get)
    coordinator.open()
    coordinator.begin({}, {})
    u0 = TopicPartition(TopicName("u"), 0)
    planned = {place: replace(range_, topic_id=ids[TopicName("t")]) for place, range_ in RANGES.items()}
    coordinator.open_plan({**planned, u0: PlannedRange(start=0, end=9, topic_id=ids[TopicName("u")])}, replayed=False)
    assert coordinator.decide(1, {tp(1): 4}) == {tp(1): 4}, "read before it was recreated"
    assert coordinator.known(1, [tp(0), tp(1)]) == {tp(1): 4}
    ids[TopicName("t")] = TopicId("second")
    assert coordinator.decide(1, {tp(0): 20, u0: 9}) == {tp(0): 5, u0: 9}, "what was read may be the new topic's"
    assert coordinator.known(1, [tp(0), tp(1), u0]) == {tp(0): 5, tp(1): 4, u0: 9}
    assert "cut, since their topics were recreated: t-0 (at offset 5 of [5, 20))" in caplog.text
    assert "nobody could be read from" not in caplog.text
    assert coordinator.held(NOBODY) == {}, "nothing rests for it"
    assert coordinator.advance({tp(0): 20, tp(1): 4, u0: 9}) == {tp(0): 5}
    coordinator.close()


@pytest.mark.parametrize(("read", "known"), [(10, {tp(0): 10}), (15, {})], ids=("a beginning", "one behind it"))
def test_given_a_topic_recreated_under_pieces_when_what_was_read_is_a_beginning_then_the_cut_lies_behind_it(
    tmp_path: Path, read: int, known: dict[TopicPartition, int]
) -> None:
    ids = {TopicName("t"): TopicId("first")}
    coordinator = RangeCoordinator(FullDisk(tmp_path, "s", lock_wait_seconds=0.1), topic_id_of=ids.get)
    coordinator.open()
    coordinator.begin({}, {})
    ranges = {tp(0): replace(RANGES[tp(0)], topic_id=TopicId("first"))}
    coordinator.open_plan(ranges, replayed=False, pieces={tp(0): (5, 10, 15)})
    assert coordinator.decide(1, {tp(0): read}, starts={tp(0): read - 5}) == {tp(0): read}
    ids[TopicName("t")] = TopicId("second")
    assert coordinator.known(1, [tp(0)], starts={tp(0): 15 if known else 5}) == dict.fromkeys(known, 15)
    assert coordinator.decide(1, {tp(0): 20}, starts={tp(0): 15}) == {tp(0): 15 if known else 20}
    assert {place: record.cut for place, record in coordinator.pending().items()} == known
    coordinator.close()


def test_given_a_topic_recreated_when_a_worker_begins_then_it_hears_that_its_ranges_are_empty(tmp_path: Path) -> None:
    ids: dict[TopicName, TopicId] = {}
    coordinator = RangeCoordinator(FullDisk(tmp_path, "s", lock_wait_seconds=0.1), topic_id_of=ids.get)
    coordinator.open()
    coordinator.begin({}, {})
    first, second = TopicId("first"), TopicId("second")
    ranges = {tp(0): replace(RANGES[tp(0)], topic_id=first), tp(1): RANGES[tp(1)]}
    coordinator.open_plan(ranges, replayed=False)
    assert coordinator.known(1, list(RANGES)) == {}, "its id is not known now"
    ids[TopicName("t")] = first
    assert coordinator.known(1, list(RANGES)) == {}
    ids[TopicName("t")] = second
    assert coordinator.known(1, list(RANGES)) == {tp(0): 5}, "of the other one no id was known"
    coordinator.close()


def test_given_cut_after_cut_when_a_query_runs_on_then_its_ledger_stays_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("discovery.spark.source.cuts.coordinator.FORGET_EVERY", 20)
    monkeypatch.setattr("discovery.spark.source.cuts.ledger.KEPT_PLANS", 10)
    coordinator, ledger = opened(tmp_path)
    coordinator.begin({}, {})
    for number in range(1, 60):
        coordinator.open_plan(RANGES, replayed=False)
        coordinator.decide(number, {tp(0): 9})
        coordinator.close_plan()
        coordinator.advance({tp(0): 9})
        coordinator.read_on([tp(0)])
    assert ledger.path.read_bytes().count(b"\n") <= 2 + 10 + 20
    coordinator.close()
    again, _ = opened(tmp_path)
    assert again.pending() == {}
    again.close()


def test_given_a_cut_when_the_driver_starts_again_then_it_is_still_known_and_goes_back(tmp_path: Path) -> None:
    first, _ = opened(tmp_path)
    first.begin({}, {})
    first.open_plan(RANGES, replayed=False)
    assert first.decide(1, {tp(0): 9}) == {tp(0): 9}
    first.close()
    second, _ = opened(tmp_path)
    assert second.delivered({tp(0): 20}) == {tp(0): 9}
    assert second.open_plan(RANGES, replayed=True).settled == {tp(0): 9, tp(1): 4}
    assert second.advance({tp(0): 20}) == {tp(0): 9}
    assert second.is_rewind(tp(0), 20, 9)
    assert second.advance({tp(0): 9}) == {}
    assert second.gone_back() == {tp(0): 20}
    assert set(second.held(NOBODY)) == {tp(0)}, "not read on before that is recorded"
    second.read_on([tp(0)])
    assert second.held(NOBODY) == {}
    second.close()
    third, _ = opened(tmp_path)
    assert third.pending() == {}
    assert not third.is_rewind(tp(0), 20, 9), "it has been read on"
    third.close()


def test_given_a_plan_that_is_over_when_a_zombie_asks_then_it_is_refused(coordinator: RangeCoordinator) -> None:
    coordinator.open_plan(RANGES, replayed=False)
    coordinator.close_plan()
    with pytest.raises(ArbiterError, match="plan 1 is not active any more"):
        coordinator.decide(1, {tp(0): 20})
    coordinator.open_plan(RANGES, replayed=False)
    with pytest.raises(ArbiterError, match="plan 1 is not active any more"):
        coordinator.known(1, [tp(0)])


def test_given_a_full_disk_when_a_range_is_cut_then_nothing_is_settled_and_it_cannot_become_full(
    tmp_path: Path,
) -> None:
    coordinator, ledger = planned(tmp_path)
    ledger.full = True
    with pytest.raises(StateError, match="no space left"):
        coordinator.decide(1, {tp(0): 9})
    assert coordinator.known(1, [tp(0)]) == {}
    ledger.full = False
    assert coordinator.decide(1, {tp(0): 20}) == {tp(0): 9}, "the record may be durable although writing it failed"
    coordinator.close()


def test_given_a_new_query_under_the_same_name_when_it_begins_then_old_cuts_are_out_of_force(tmp_path: Path) -> None:
    coordinator, _ = opened(tmp_path)
    coordinator.begin({}, {})
    coordinator.open_plan(RANGES, replayed=False)
    coordinator.decide(1, {tp(0): 9})
    coordinator.begin({"t": {"0": 0}}, {"t": {"0": 1}})
    assert coordinator.pending() == {}
    assert coordinator.advance({tp(0): 3}) == {}
    coordinator.close()


@pytest.mark.parametrize(
    ("planned", "query", "says"),
    [
        (PlannedRange(start=15, end=20), "q", r"cut at offset 8 of \[5, 15\).* with sourceId=old"),
        (PlannedRange(start=5, end=15), "q", "with sourceId=old"),
        (PlannedRange(start=8, end=15), "q", None),
        (PlannedRange(start=15, end=20), "another", None),
    ],
    ids=["goes on behind it", "replays it", "has gone back", "another query"],
)
def test_given_a_cut_in_another_ledger_when_a_worker_names_its_query_then_the_batch_is_refused(
    tmp_path: Path, planned: PlannedRange, query: str, says: str | None
) -> None:
    waiting = CutRecord(
        topic_partition=tp(0), topic_id=None, start=5, end=15, cut=8, plan=1, incarnation=1, query="q", batch=4
    )
    others = {Where("old"): fold(LedgerState(), [Incarnation(number=1), waiting])}
    coordinator = RangeCoordinator(FullDisk(tmp_path, "new"), others=lambda: others)
    coordinator.open()
    coordinator.begin({}, {})
    coordinator.open_plan({tp(0): planned}, replayed=False)
    try:
        if says is None:
            assert coordinator.known(1, [tp(0)], Batch(query, 5)) == {}
            # What the query has read on from is looked at no more: it may come to that offset by itself.
            coordinator.open_plan({tp(0): PlannedRange(start=15, end=20)}, replayed=False)
            assert coordinator.known(2, [tp(0)], Batch(query, 6)) == {}
            return
        with pytest.raises(ArbiterError, match=says):
            coordinator.known(1, [tp(0)], Batch(query, 5))
        with pytest.raises(ArbiterError, match=says):
            coordinator.decide(1, {tp(0): planned.end}, Batch(query, 5))
    finally:
        coordinator.close()


def test_given_other_ledgers_out_of_reach_when_workers_ask_then_they_wait_until_those_are_read(tmp_path: Path) -> None:
    def read() -> dict[Where, LedgerState]:
        if not in_reach:
            raise StateError("topic cuts cannot be read")
        reads.append(1)
        return {}

    in_reach: list[bool] = []
    reads: list[int] = []
    coordinator = RangeCoordinator(FullDisk(tmp_path, "s"), others=read)
    coordinator.open()
    coordinator.begin({}, {})
    coordinator.open_plan(RANGES, replayed=False)
    for ask in (partial(coordinator.known, 1, [tp(0)]), partial(coordinator.decide, 1, {tp(0): 20})):
        with pytest.raises(StateError, match="topic cuts cannot be read"):
            ask(Batch("q", 1))
    assert (coordinator.is_introduced(), coordinator.trouble) == (False, "topic cuts cannot be read")
    in_reach.append(True)
    assert coordinator.known(1, [tp(0)], Batch("q", 1)) == {}
    assert coordinator.trouble == ""
    assert coordinator.decide(1, {tp(0): 20}, Batch("q", 1)) == {tp(0): 20}
    assert len(reads) == 1
    coordinator.close()


def test_given_several_workers_when_they_ask_at_once_then_other_ledgers_are_read_once(tmp_path: Path) -> None:
    def read() -> dict[Where, LedgerState]:
        reads.append(1)
        together.wait(20)
        return {}

    reads: list[int] = []
    together, came = threading.Event(), threading.Semaphore(0)
    coordinator = RangeCoordinator(FullDisk(tmp_path, "s"), others=read)
    coordinator.open()
    coordinator.begin({}, {})
    coordinator.open_plan(RANGES, replayed=False)

    def ask() -> None:
        came.release()
        coordinator.known(1, [tp(0)], Batch("q", 1))

    workers = [threading.Thread(target=ask) for _ in range(5)]
    for worker in workers:
        worker.start()
    assert all(came.acquire(timeout=20) for _ in workers), "each is about to ask, and the first still reads"
    together.set()
    for worker in workers:
        worker.join(20)
    assert (len(reads), coordinator.is_introduced()) == (1, True)
    coordinator.close()


def test_given_no_ledger_when_a_checkpoint_goes_on_then_it_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    coordinator, ledger = opened(tmp_path)
    with pytest.raises(StateError, match="the checkpoint is not new, but no ledger of its cuts is at") as error:
        coordinator.resume()
    assert str(ledger.path) in str(error.value)
    coordinator.close()


class SlowDisk(FileLedger):
    """A ledger whose disk does not answer until released."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "s", lock_wait_seconds=0.1)
        self.asked, self.answer = threading.Event(), threading.Event()
        self.answer.set()
        self.writes = 0

    def append(self, entries: Sequence[Entry]) -> None:
        self.writes += 1
        self.asked.set()
        assert self.answer.wait(20)
        super().append(entries)


def test_given_a_slow_ledger_when_a_cut_is_written_then_others_are_answered_and_waiting_cuts_share_one_write(
    tmp_path: Path,
) -> None:
    ledger = SlowDisk(tmp_path)
    coordinator = RangeCoordinator(ledger)
    coordinator.open()
    coordinator.begin({}, {})
    ranges = {tp(number): PlannedRange(start=0, end=9) for number in range(8)}
    coordinator.open_plan(ranges, replayed=False, whole=[tp(7)])
    ledger.answer.clear()
    ledger.asked.clear()
    heard: list[dict[TopicPartition, int]] = []

    def cut(number: int) -> None:
        heard.append(coordinator.decide(1, {tp(number): 4}))

    threads = [threading.Thread(target=cut, args=(number,)) for number in range(6)]
    threads[0].start()
    assert ledger.asked.wait(20)
    for thread in threads[1:]:
        thread.start()
    assert coordinator.decide(1, {tp(6): 9}) == {tp(6): 9}
    assert coordinator.known(1, ranges) == {tp(6): 9, tp(7): 9}
    eventually(lambda: len(coordinator.held(NOBODY)) == 6, 20)
    ledger.answer.set()
    for thread in threads:
        thread.join(20)
    assert sorted(end for seen in heard for end in seen.values()) == [4] * 6
    assert ledger.writes == 3, "the incarnation, the first cut, and the five that waited"
    coordinator.close()


def test_given_a_ledger_that_cannot_be_written_when_a_partition_went_back_then_it_waits_and_the_query_does_not_fail(
    tmp_path: Path,
) -> None:
    coordinator, ledger = planned(tmp_path)
    coordinator.decide(1, {tp(0): 9})
    coordinator.close_plan()
    assert coordinator.advance({tp(0): 9}) == {}
    ledger.full = True
    coordinator.read_on([tp(0)])
    assert coordinator.advance({tp(0): 9}) == {}
    assert coordinator.held(NOBODY) == {tp(0): "no space left"}
    ledger.full = False
    coordinator.read_on([tp(0)])
    assert coordinator.held(NOBODY) == {}
    coordinator.close()


def test_given_a_ledger_that_another_took_when_a_partition_went_back_then_the_query_fails(tmp_path: Path) -> None:
    coordinator, ledger = planned(tmp_path)
    coordinator.decide(1, {tp(0): 9})
    coordinator.advance({tp(0): 9})
    ledger.taken = True
    with pytest.raises(LedgerFencedError, match="in use"):
        coordinator.read_on([tp(0)])
    coordinator.close()


def test_given_a_write_that_hangs_when_closed_then_its_file_is_not_closed_under_it(tmp_path: Path) -> None:
    ledger = SlowDisk(tmp_path)
    coordinator = RangeCoordinator(ledger)
    coordinator.open()
    coordinator.begin({}, {})
    coordinator.open_plan(RANGES, replayed=False)
    ledger.answer.clear()
    ledger.asked.clear()

    def cut() -> None:
        with pytest.raises(ArbiterError, match="not active"):
            coordinator.decide(1, {tp(0): 9})

    thread = threading.Thread(target=cut)
    thread.start()
    assert ledger.asked.wait(20)
    coordinator.close()
    assert ledger._handle is not None
    ledger.answer.set()
    thread.join(20)
    coordinator.close()
    assert ledger._handle is None


def test_given_a_partition_nobody_could_read_when_another_broker_leads_it_then_it_does_not_rest(tmp_path: Path) -> None:
    coordinator, _ = opened(tmp_path)
    coordinator.begin({}, {})
    coordinator.open_plan(RANGES, replayed=False, leaders={tp(0): BrokerId(1), tp(1): BrokerId(2)})
    coordinator.decide(1, {tp(0): RANGES[tp(0)].start, tp(1): 4})
    coordinator.close_plan()
    assert coordinator.advance({tp(0): RANGES[tp(0)].start}) == {}
    coordinator.read_on([tp(0)])
    assert set(coordinator.held({tp(0): BrokerId(1), tp(1): BrokerId(9)}.get)) == {tp(0)}
    assert coordinator.held({tp(0): BrokerId(3)}.get) == {}
    coordinator.close()


# -- over TCP -----------------------------------------------------------------------------------------------------


def test_given_two_workers_when_one_cuts_then_both_hear_the_same_end(
    coordinator: RangeCoordinator, server: CoordinatorServer
) -> None:
    coordinator.open_plan(RANGES, replayed=False)
    first, second = TcpArbiter(ticket(server)), TcpArbiter(ticket(server))
    assert first.known([a_range(0), a_range(1)]) == {}
    assert first.decide({a_range(0): 8, a_range(1): 4}) == {a_range(0): 8, a_range(1): 4}
    assert second.known([a_range(0)]) == {a_range(0): 8}
    assert second.decide({a_range(0): 20}) == {a_range(0): 8}


def test_given_ranges_that_were_settled_at_planning_when_asked_then_they_end_as_planned(
    coordinator: RangeCoordinator, server: CoordinatorServer
) -> None:
    coordinator.open_plan(RANGES, replayed=False, whole=[tp(1)])
    arbiter = TcpArbiter(replace(ticket(server), undecided=frozenset({tp(0)})))
    assert arbiter.known([a_range(0), a_range(1)]) == {a_range(1): 4}


def test_given_a_stale_plan_when_a_worker_asks_then_it_fails_at_once(
    coordinator: RangeCoordinator, server: CoordinatorServer
) -> None:
    coordinator.open_plan(RANGES, replayed=False)
    with pytest.raises(ArbiterError, match="plan 7 is not active any more: its batch is over; this task is not"):
        TcpArbiter(ticket(server, plan=7)).decide({a_range(0): 20})


def test_given_nobody_listens_when_a_worker_asks_then_it_names_the_options(server: CoordinatorServer) -> None:
    wrong = ticket(server)
    server.stop()
    with pytest.raises(ArbiterError, match="set coordinatorHost and coordinatorPort to what they can reach"):
        TcpArbiter(wrong, deadline_seconds=0.3).decide({a_range(0): 20})


def test_given_a_wrong_token_when_asked_then_nothing_is_answered(
    coordinator: RangeCoordinator, server: CoordinatorServer
) -> None:
    coordinator.open_plan(RANGES, replayed=False)
    liar = replace(ticket(server), token=bytes(32))
    with pytest.raises(ArbiterError, match="the driver did not say"):
        TcpArbiter(liar, deadline_seconds=0.3).decide({a_range(0): 6})
    assert coordinator.known(1, [tp(0)]) == {}


@pytest.mark.parametrize(
    "noise",
    [b"", b"GET / HTTP/1.1\r\n\r\n" * 9, MAGIC, MAGIC + bytes(40)],
    ids=["nothing", "http", "half", "no token"],
)
def test_given_noise_when_it_is_over_then_workers_are_still_answered(
    coordinator: RangeCoordinator, server: CoordinatorServer, noise: bytes
) -> None:
    coordinator.open_plan(RANGES, replayed=False)
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
        connection.sendall(noise)
    assert TcpArbiter(ticket(server)).decide({a_range(0): 20}) == {a_range(0): 20}


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("!I", 1 << 31),
        struct.pack("!I", 3) + b"[1]",
        struct.pack("!I", 2) + b"{}",
        struct.pack("!I", 4) + b"\xff\xff\xff\xff",
        struct.pack("!I", 41) + b'{"do":"decide","plan":1,"ranges":[["t"]]}',
        struct.pack("!I", 6000) + b"[" * 6000,
    ],
    ids=["too long", "no object", "no question", "no text", "no ranges", "deep"],
)
def test_given_a_frame_that_makes_no_sense_when_sent_with_the_token_then_it_costs_only_its_connection(
    coordinator: RangeCoordinator, server: CoordinatorServer, frame: bytes
) -> None:
    coordinator.open_plan(RANGES, replayed=False)
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
        connection.sendall(MAGIC + server.token + frame)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert TcpArbiter(ticket(server)).decide({a_range(0): 20}) == {a_range(0): 20}


def test_given_more_silent_peers_than_there_are_slots_when_a_worker_asks_then_it_is_answered(
    coordinator: RangeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("discovery.spark.source.cuts.server._MAX_CONNECTIONS", 4)
    crowded = CoordinatorServer(coordinator, host="127.0.0.1")
    crowded.start()
    coordinator.open_plan(RANGES, replayed=False)
    try:
        with contextlib.ExitStack() as peers:
            silent = [peers.enter_context(socket.create_connection(("127.0.0.1", crowded.port), 5)) for _ in range(12)]
            for peer in silent[:-4]:
                assert peer.recv(1) == b"", "the oldest go first"
            arbiter = TcpArbiter(ticket(crowded), deadline_seconds=0.1)
            assert arbiter.decide({a_range(0): 20}) == {a_range(0): 20}
    finally:
        crowded.stop()


def test_given_a_worker_without_the_fast_engine_when_it_asks_then_the_driver_hears_why(
    coordinator: RangeCoordinator, server: CoordinatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.open_plan(RANGES, replayed=False)
    TcpArbiter(ticket(server)).known([a_range(0)])
    said = [coordinator.plain_engine]
    monkeypatch.setattr("discovery.spark.fetch.engine.fallbacks", ["ModuleNotFoundError: No module named 'llvmlite'"])
    TcpArbiter(ticket(server)).decide({a_range(0): 8})
    said.append(coordinator.plain_engine)
    assert said == ["", "ModuleNotFoundError: No module named 'llvmlite'"]
    assert (coordinator.cuts_made, coordinator.rewinds_made) == (1, 0)
    coordinator.close_plan()
    coordinator.advance({tp(0): 20, tp(1): 4})
    coordinator.advance({tp(0): 20, tp(1): 4})
    assert (coordinator.cuts_made, coordinator.rewinds_made) == (1, 1)


@pytest.mark.parametrize("pause_seconds", [0.01, 60])
def test_given_a_peer_that_trickles_or_falls_silent_when_its_time_is_up_then_it_is_cut_off(
    pause_seconds: float,
) -> None:
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.settimeout(0.05)
        over = threading.Event()

        def trickle() -> None:
            while not over.wait(pause_seconds):
                writer.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        with pytest.raises(WireError, match=r"of 100000 bytes came in 0\.05 s"):
            receive(reader, 100_000)
        over.set()
        thread.join(5)


def test_given_forty_workers_at_once_when_they_disagree_then_all_hear_one_end(
    coordinator: RangeCoordinator, server: CoordinatorServer
) -> None:
    coordinator.open_plan(RANGES, replayed=False)
    heard: list[int] = []

    def ask(end: int) -> None:
        heard.extend(TcpArbiter(ticket(server)).decide({a_range(0): end}).values())

    threads = [threading.Thread(target=ask, args=(5 + number % 16,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(heard) == 40
    assert len(set(heard)) == 1


def test_given_a_port_in_use_when_started_then_the_option_is_named(
    coordinator: RangeCoordinator, server: CoordinatorServer
) -> None:
    with pytest.raises(StateError, match=f"coordinatorPort: cannot listen on {server.port}"):
        CoordinatorServer(coordinator, host="127.0.0.1", port=server.port).start()


def test_given_no_task_when_the_drivers_host_is_wanted_then_the_option_is_named() -> None:
    with pytest.raises(ArbiterError, match="coordinatorHost: Spark does not say where the driver is"):
        driver_host()


def test_given_a_ticket_when_it_goes_to_a_task_then_it_names_that_tasks_partitions_alone(
    server: CoordinatorServer,
) -> None:
    assert for_ranges(None, [a_range(0)]) is None
    mine = for_ranges(ticket(server), [a_range(0)])
    assert mine is not None
    assert mine.undecided == {tp(0)}
    assert for_ranges(replace(ticket(server), undecided=frozenset({tp(1)})), [a_range(0)]) is None


def test_given_a_ticket_when_shown_then_the_token_is_not(server: CoordinatorServer) -> None:
    assert "token" not in repr(ticket(server))


def test_given_a_ledger_that_cannot_be_written_when_a_worker_cuts_then_it_waits_for_it_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator, ledger = planned(tmp_path)
    server = CoordinatorServer(coordinator, host="127.0.0.1")
    server.start()
    ledger.full = True
    heard: list[int] = []

    def ask() -> None:
        heard.extend(TcpArbiter(ticket(server), deadline_seconds=0.3).decide({a_range(0): 9}).values())

    thread = threading.Thread(target=ask)
    with caplog.at_level("WARNING"):
        thread.start()
        eventually(lambda: "where ranges end cannot be settled yet: no space left" in caplog.text, 20)
        thread.join(1.0)
        assert thread.is_alive(), "the driver answers, so the task is not given up"
        ledger.full = False
        thread.join(20)
    assert heard == [9]
    ledger.taken = True
    with pytest.raises(ArbiterError, match="in use"):
        TcpArbiter(ticket(server), deadline_seconds=0.3).decide({a_range(1): 2})
    with pytest.raises(LedgerFencedError):
        coordinator.read_on([])
    server.stop()
    coordinator.close()


def test_given_slow_partitions_when_a_ticket_goes_to_a_task_then_only_theirs_wait_longer(
    server: CoordinatorServer,
) -> None:
    slow = replace(ticket(server), slow={tp(1): 4})
    assert [t.cut_after_seconds for n in (0, 1) if (t := for_ranges(slow, [a_range(n)]))] == [1.0, 4.0]
    both = for_ranges(slow, [a_range(0), a_range(1)])
    assert both is not None
    assert both.cut_after_seconds == 4.0


def test_given_a_leader_known_to_be_slow_when_a_ticket_goes_to_a_task_then_it_gets_the_time_of_four_answers(
    server: CoordinatorServer,
) -> None:
    ranges = [a_range(0), replace(a_range(1), answer_seconds=20.0)]
    slow = replace(ticket(server), slow={tp(1): 4})
    assert [t.cut_after_seconds for r in ranges if (t := for_ranges(slow, [r]))] == [1.0, 80.0]
    patient = for_ranges(replace(slow, cut_after_seconds=300.0), ranges)
    assert patient is not None
    assert patient.cut_after_seconds == 1_200.0, "what the user set is never shortened"
    only = for_ranges(replace(slow, undecided=frozenset({tp(0)})), ranges)
    assert only is not None
    assert only.cut_after_seconds == 1.0, "the end of the slow one is settled"
