"""The task of the data plane on a scripted consumer, clock and arbiter: where ranges end, and whom it waits for."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from discovery.core.errors import ArbiterError, DataLossError, FailureKind, GatewayError, StaleAttemptError
from discovery.core.model import BrokerAddress, BrokerId, TopicName, TopicPartition
from discovery.spark.fetch import FetchRange, FetchSettings, fetch
from discovery.spark.fetch.client import Piece
from discovery.spark.fetch.endings import Endings
from discovery.spark.fetch.evidence import FIRST_CHECK_SECONDS, Evidence
from discovery.spark.fetch.task import Task
from tests.support.fakes.clock import FakeClock
from tests.support.fakes.stream import ScriptedArbiter, ScriptedChecks, ScriptedStream

P0, P1, P2 = (TopicPartition(TopicName("t"), partition) for partition in range(3))
BROKERS = (BrokerAddress("b1", 9092),)
D1, D2 = BrokerAddress("d1", 9092), BrokerAddress("d2", 9092)


def range_of(tp: TopicPartition, start: int = 0, end: int = 10) -> FetchRange:
    return FetchRange(topic_partition=tp, start_offset=start, end_offset=end)


A, B, C = range_of(P0), range_of(P1), range_of(P2)


class Scene:
    """One task over a scripted stream."""

    def __init__(
        self, *ranges: FetchRange, arbiter: ScriptedArbiter | None = None, settings: FetchSettings | None = None
    ) -> None:
        self.clock = FakeClock()
        self.stream = ScriptedStream(self.clock)
        self.stream.brokers = BROKERS
        self.checks = ScriptedChecks()
        self.arbiter = arbiter
        self.said: list[str] = []
        self.ranges = ranges
        self.settings = settings or FetchSettings()
        self.began = self.clock.monotonic()

    def batches(self) -> Iterator[pa.RecordBatch]:
        task = Task(
            self.stream, Endings(self.ranges, self.arbiter), self.settings,
            brokers=BROKERS, on_waiting=self.said.append, clock=self.clock,
            evidence=Evidence(self.checks.begin),
        )  # fmt: skip
        return task.batches()

    def read(self) -> int:
        return len(list(self.batches()))

    @property
    def elapsed(self) -> float:
        return self.clock.monotonic() - self.began

    def after(self, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        """Script polls that bring nothing for so long."""
        due = self.clock.monotonic() + seconds

        def wait() -> None:
            if self.clock.monotonic() < due:
                self.clock.advance(0.05)
                self.stream.script.appendleft(wait)
                self.stream.script.appendleft(Piece())
            else:
                then()

        self.stream.script.append(wait)


def test_given_no_arbiter_when_all_is_read_then_it_ends() -> None:
    scene = Scene(A, B)
    scene.stream.rows(P0, 10)
    scene.stream.gap(P1, 10)
    assert scene.read() == 1


def test_given_all_read_when_it_ends_then_one_request_settles_all_as_full() -> None:
    arbiter = ScriptedArbiter()
    scene = Scene(A, B, arbiter=arbiter)
    scene.stream.rows(P0, 10)
    scene.stream.rows(P1, 8, end=11)
    assert scene.read() == 2
    assert arbiter.asked == [(A, B)]
    assert arbiter.proposed == [{A: 10, B: 10}]


def test_given_a_known_cut_when_read_then_the_range_ends_there_and_is_not_asked_for_again() -> None:
    arbiter = ScriptedArbiter(cuts={A: 4, B: 0})
    scene = Scene(A, B, C, arbiter=arbiter)
    scene.stream.rows(P0, 4)
    scene.stream.rows(P2, 10)
    assert scene.read() == 2
    assert P1 not in scene.stream.positions
    assert arbiter.proposed == [{C: 10}]


def test_given_only_known_cuts_when_read_then_nothing_is_asked_at_the_end() -> None:
    arbiter = ScriptedArbiter(cuts={A: 4})
    scene = Scene(A, arbiter=arbiter)
    scene.stream.rows(P0, 4)
    assert scene.read() == 1
    assert arbiter.proposed == []


@pytest.mark.parametrize("ranges", [[], [range_of(P0, 5, 5)]])
def test_given_nothing_to_read_when_fetched_then_nobody_is_asked(ranges: list[FetchRange]) -> None:
    arbiter = ScriptedArbiter()
    assert list(fetch(ranges, BROKERS, FetchSettings(), on_waiting=print, arbiter=arbiter)) == []
    assert arbiter.asked == []
    assert arbiter.proposed == []


def test_given_ranges_cut_to_nothing_when_fetched_then_no_consumer_is_needed() -> None:
    arbiter = ScriptedArbiter(cuts={A: 0})
    refused = FetchSettings(client_options={"no.such": "option"})
    assert list(fetch([A], BROKERS, refused, on_waiting=print, arbiter=arbiter)) == []
    assert arbiter.proposed == []


def test_given_a_dead_leader_when_the_rest_is_read_then_a_cut_is_proposed_after_its_time() -> None:
    arbiter = ScriptedArbiter()
    scene = Scene(A, B, C, arbiter=arbiter)
    scene.stream.rows(P1, 3)
    scene.stream.rows(P0, 10)
    assert scene.read() == 2
    assert arbiter.proposed == [{A: 10, B: 3, C: 0}]
    assert scene.elapsed == pytest.approx(1.0, abs=0.06)
    assert scene.stream.stood_still


def test_given_a_slow_leader_when_its_range_is_cut_then_its_answer_is_awaited_and_the_client_is_not_doubted() -> None:
    scene = Scene(A, replace(B, answer_seconds=20.0), arbiter=ScriptedArbiter())
    scene.stream.rows(P0, 10)
    scene.read()
    assert scene.stream.awaited == {P1}
    assert not scene.stream.stood_still


def led_by(tp: TopicPartition, leader: BrokerAddress | None) -> FetchRange:
    return replace(range_of(tp), leader_address=leader)


def test_given_leaders_that_refuse_connections_when_the_rest_is_read_then_a_cut_is_proposed_at_once() -> None:
    """A cut decides only where a batch ends: what is cut for nothing comes later, and costs time, never rows."""
    arbiter = ScriptedArbiter()
    dead, other = led_by(P1, D1), led_by(P2, D2)
    scene = Scene(A, dead, other, arbiter=arbiter)
    scene.checks.refuses = {D1: True, D2: True}
    scene.stream.leads = {P1: D1, P2: D2}
    scene.stream.rows(P1, 3)
    scene.stream.rows(P0, 10)
    assert scene.read() == 2
    assert arbiter.proposed == [{A: 10, dead: 3, other: 0}]
    assert scene.elapsed == pytest.approx(FIRST_CHECK_SECONDS, abs=0.06)


@pytest.mark.parametrize("shown", [{D1: True}, {D1: True, D2: False}, {}, {D1: False, D2: False}])
def test_given_a_leader_that_does_not_refuse_when_nothing_comes_then_its_time_is_waited_for(
    shown: dict[BrokerAddress, bool],
) -> None:
    arbiter = ScriptedArbiter()
    scene = Scene(led_by(P1, D1), led_by(P2, D2), arbiter=arbiter)
    scene.checks.refuses = shown
    scene.read()
    assert scene.elapsed == pytest.approx(1.0, abs=0.06)
    assert len(arbiter.proposed) == 1


def moved(*, answers: bool | None) -> tuple[Scene, ScriptedArbiter]:
    """One range whose leader was D1, which refuses, when it was planned, and is D2 now."""
    arbiter = ScriptedArbiter()
    arbiter.cut_after_seconds = 300.0
    scene = Scene(led_by(P1, D1), arbiter=arbiter)
    scene.checks.refuses = {D1: True} if answers is None else {D1: True, D2: not answers}
    scene.stream.leads = {P1: D2}
    return scene, arbiter


@pytest.mark.parametrize("answers", [True, None])
def test_given_a_leader_that_moved_when_its_former_host_refuses_then_the_new_one_is_waited_for(
    *, answers: bool | None
) -> None:
    scene, arbiter = moved(answers=answers)
    scene.after(0.3, lambda: scene.stream.rows(P1, 3))
    scene.after(30, lambda: scene.stream.rows(P1, 10))
    assert scene.read() == 2
    assert arbiter.proposed == [{led_by(P1, D1): 10}]
    assert len(scene.checks.begun) <= 20


def test_given_a_leader_that_moved_when_the_new_one_refuses_too_then_a_cut_is_proposed_at_once() -> None:
    scene, arbiter = moved(answers=False)
    scene.read()
    assert arbiter.proposed == [{led_by(P1, D1): 0}]
    assert scene.elapsed < 1


def test_given_leaders_that_refuse_when_nobody_tells_who_leads_then_they_are_waited_for() -> None:
    scene, arbiter = moved(answers=True)
    scene.stream.leads = {}
    scene.after(30, lambda: scene.stream.rows(P1, 10))
    assert scene.read() == 1
    assert arbiter.proposed == [{led_by(P1, D1): 10}]
    assert len(scene.checks.begun) <= 10


def test_given_a_leader_that_refuses_when_the_brokers_name_none_then_a_cut_is_proposed_at_once() -> None:
    scene, arbiter = moved(answers=True)
    scene.stream.leads = {P1: None}
    scene.read()
    assert arbiter.proposed == [{led_by(P1, D1): 0}]
    assert scene.elapsed < 1


def test_given_a_leader_nobody_knows_when_another_refuses_then_its_time_is_waited_for() -> None:
    arbiter = ScriptedArbiter()
    scene = Scene(led_by(P1, D1), led_by(P2, None), arbiter=arbiter)
    scene.checks.refuses = {D1: True}
    scene.read()
    assert scene.elapsed == pytest.approx(1.0, abs=0.06)


def test_given_a_plan_that_was_settled_when_its_leader_refuses_then_it_is_waited_for_and_not_asked_any_more() -> None:
    dead = led_by(P1, D1)
    arbiter = ScriptedArbiter(ends={dead: 10})
    scene = Scene(dead, arbiter=arbiter)
    scene.checks.refuses = {D1: True}
    scene.stream.leads = {P1: D1}
    scene.after(30, lambda: scene.stream.rows(P1, 10))
    assert scene.read() == 1
    assert len(arbiter.proposed) == len(scene.checks.begun) == 1


def test_given_no_arbiter_when_nothing_comes_then_no_leader_is_checked() -> None:
    scene = Scene(led_by(P1, D1))
    scene.after(30, lambda: scene.stream.rows(P1, 10))
    assert scene.read() == 1
    assert scene.checks.begun == []


def test_given_one_range_that_moves_when_another_stands_still_then_nothing_is_proposed() -> None:
    arbiter = ScriptedArbiter()
    scene = Scene(A, B, arbiter=arbiter)
    for offset in range(1, 11):
        scene.after(0.9 * offset)
        scene.stream.rows(P0, offset)
    assert scene.read() == 10
    assert arbiter.proposed == [{A: 10, B: 0}]
    assert scene.elapsed == pytest.approx(10.0, abs=0.7)


def test_given_a_slow_taker_when_it_comes_back_then_that_time_is_not_held_against_the_leader() -> None:
    arbiter = ScriptedArbiter()
    scene = Scene(A, B, arbiter=arbiter)
    scene.stream.rows(P0, 10)
    batches = scene.batches()
    next(batches)
    scene.clock.advance(60)
    scene.after(0.5, lambda: scene.stream.rows(P1, 10))
    assert len(list(batches)) == 1
    assert arbiter.proposed == [{A: 10, B: 10}]


def test_given_a_cut_refused_when_the_leader_returns_then_it_reads_on_to_the_answer() -> None:
    arbiter = ScriptedArbiter(ends={B: 7})
    scene = Scene(A, B, arbiter=arbiter)
    scene.stream.rows(P0, 10)
    scene.stream.rows(P1, 3)
    scene.after(100, lambda: scene.stream.rows(P1, 7))
    assert scene.read() == 3
    assert arbiter.proposed == [{A: 10, B: 3}]
    assert scene.elapsed == pytest.approx(100, abs=0.1)
    assert scene.said


def test_given_an_answer_below_what_was_handed_out_when_it_ends_then_the_attempt_fails() -> None:
    arbiter = ScriptedArbiter(ends={A: 6})
    scene = Scene(A, arbiter=arbiter)
    scene.stream.rows(P0, 10)
    batches = scene.batches()
    next(batches)
    with pytest.raises(StaleAttemptError, match=r"t-0 was settled to end at offset 6, and this attempt has read to 10"):
        next(batches)


def test_given_an_answer_below_the_position_but_no_record_beyond_it_when_it_ends_then_all_is_well() -> None:
    arbiter = ScriptedArbiter(ends={A: 6, B: 3})
    scene = Scene(A, B, arbiter=arbiter)
    scene.stream.rows(P0, 6, end=10)
    scene.stream.gap(P1, 5)
    assert scene.read() == 1


def test_given_the_earliest_offset_unknown_when_its_leader_is_dead_then_the_cut_stands_there() -> None:
    unknown = range_of(P0, -2, 10)
    arbiter = ScriptedArbiter()
    scene = Scene(unknown, arbiter=arbiter)
    assert scene.read() == 0
    assert arbiter.proposed == [{unknown: -2}]


@pytest.mark.parametrize("end", [11, -1])
def test_given_an_end_outside_the_plan_when_answered_then_it_is_refused(end: int) -> None:
    with pytest.raises(ArbiterError, match=f"cannot end at offset {end}: the plan reads 0 to 10"):
        Scene(A, arbiter=ScriptedArbiter(ends={A: end})).read()
    with pytest.raises(ArbiterError, match="cannot end"):
        Scene(A, arbiter=ScriptedArbiter(cuts={A: end})).read()


def test_given_an_answer_that_leaves_a_range_out_when_it_ends_then_it_is_refused() -> None:
    arbiter = ScriptedArbiter()
    arbiter.decide = lambda proposed: {}  # type: ignore[method-assign]
    with pytest.raises(ArbiterError, match="did not say where t-0 ends"):
        Scene(A, arbiter=arbiter).read()


def test_given_an_iterator_closed_early_when_it_goes_then_nothing_is_decided() -> None:
    arbiter = ScriptedArbiter()
    scene = Scene(A, arbiter=arbiter)
    scene.stream.rows(P0, 10)
    batches = scene.batches()
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert arbiter.proposed == []


def test_given_a_refused_login_when_nothing_moves_then_it_fails_and_proposes_no_cut() -> None:
    arbiter = ScriptedArbiter()
    scene = Scene(A, arbiter=arbiter)
    scene.stream.failure = GatewayError(FailureKind.AUTH, "auth: no")
    with pytest.raises(GatewayError, match="auth: no"):
        scene.read()
    assert arbiter.proposed == []


def test_given_long_patience_when_a_question_is_asked_then_it_does_not_delay_the_proposal() -> None:
    arbiter = ScriptedArbiter()
    arbiter.cut_after_seconds = 4.0
    scene = Scene(A, arbiter=arbiter)
    scene.read()
    assert 0 < scene.stream.waited_seconds <= 2.0
    assert scene.elapsed == pytest.approx(4.0, abs=0.06)


def test_given_a_log_that_ends_early_when_that_lasts_then_it_is_data_loss() -> None:
    scene = Scene(A)
    scene.stream.gap(P0, 5, caught_up=True)
    scene.stream.marks[P0] = (0, 5)
    with pytest.raises(DataLossError, match="t-0 ends at offset 5, below the planned end 10: it was truncated"):
        scene.read()


def test_given_data_loss_accepted_when_a_topic_is_gone_then_the_range_is_settled_as_full() -> None:
    arbiter = ScriptedArbiter()
    arbiter.cut_after_seconds = 60.0
    scene = Scene(A, arbiter=arbiter, settings=FetchSettings(fail_on_data_loss=False))
    scene.stream.there = False
    assert scene.read() == 0
    assert arbiter.proposed == [{A: 10}]


def test_given_deleted_records_when_loss_is_accepted_then_it_goes_on_behind_them() -> None:
    scene = Scene(A, settings=FetchSettings(fail_on_data_loss=False))
    scene.stream.marks[P0] = (4, 20)
    scene.stream.script.append(Piece(out_of_range=(P0,), heard=True))
    scene.stream.rows(P0, 10)
    assert scene.read() == 1
    assert scene.stream.log == ["seek t-0 to 4"]


def test_given_a_stream_beyond_its_range_when_others_are_open_then_it_is_left() -> None:
    scene = Scene(A, B)
    scene.stream.rows(P0, 10)
    scene.stream.gap(P0, 15)
    scene.stream.rows(P1, 10, end=12)
    assert scene.read() == 2
    assert scene.stream.log == ["unassign t-0"]


def test_given_silence_when_another_list_is_at_hand_then_the_consumer_is_rebuilt_with_it() -> None:
    scene = Scene(A)
    scene.stream.brokers = (BrokerAddress("gone", 9092),)
    scene.after(30, lambda: scene.stream.rows(P0, 10))
    assert scene.read() == 1
    assert scene.stream.log == ["rebuild on 1"]
    assert scene.said[0] == "waiting for the leader of t-0 at offset 0 of 10"


def test_given_a_leader_that_has_records_when_none_come_for_long_then_the_consumer_is_rebuilt_ever_more_seldom() -> (
    None
):
    scene = Scene(A)
    scene.stream.marks[P0] = (0, 10)
    scene.after(75, lambda: scene.stream.rows(P0, 10))
    assert scene.read() == 1
    assert scene.stream.log == ["rebuild on 1"] * 3


def test_given_a_leader_without_an_answer_or_without_records_when_none_come_then_the_consumer_is_kept() -> None:
    for marks in (None, (0, 0)):
        scene = Scene(A)
        scene.stream.marks |= {} if marks is None else {P0: marks}
        scene.after(75, lambda scene=scene: scene.stream.rows(P0, 10))  # type: ignore[misc]
        assert scene.read() == 1
        assert scene.stream.log == []


def test_given_two_silent_partitions_when_the_leader_of_the_second_has_records_then_the_consumer_is_rebuilt() -> None:
    scene = Scene(A, B)
    scene.stream.marks |= {P0: (0, 0), P1: (0, 10)}
    scene.after(15, lambda: scene.stream.rows(P0, 10))
    scene.after(15, lambda: scene.stream.rows(P1, 10))
    assert scene.read() == 2
    assert scene.stream.log[0] == "rebuild on 1"


def test_given_a_taker_that_was_away_when_it_comes_back_then_the_consumer_is_not_doubted() -> None:
    scene = Scene(A)
    scene.stream.marks[P0] = (0, 10)
    scene.stream.rows(P0, 5)
    scene.after(4, lambda: scene.stream.rows(P0, 10))
    batches = scene.batches()
    next(batches)
    scene.clock.advance(300)
    assert len(list(batches)) == 1
    assert scene.stream.log == []


DENIED, MOVED = 29, 6


def test_given_a_topic_that_may_not_be_read_when_that_lasts_then_it_fails_in_one_line_and_nothing_is_cut() -> None:
    arbiter = ScriptedArbiter()
    scene = Scene(A, B, arbiter=arbiter)
    scene.stream.rows(P1, 10)
    scene.stream.refusals[P0] = DENIED
    scene.stream.refuse(P0)
    with pytest.raises(
        GatewayError, match=r"t-0 cannot be read: .*authorization failed; grant this user READ"
    ) as error:
        scene.read()
    assert error.value.kind is FailureKind.AUTH
    assert 5 <= scene.elapsed <= 10
    assert arbiter.proposed == []
    assert "t-0 at offset 0 of 10 (Broker: Topic authorization failed)" in scene.said[0]


def test_given_a_refusal_that_is_over_when_asked_again_then_it_is_read() -> None:
    scene = Scene(A)
    scene.stream.refusals[P0] = DENIED
    scene.stream.refuse(P0)
    scene.after(3, scene.stream.refusals.clear)
    scene.after(30, lambda: scene.stream.rows(P0, 10))
    assert scene.read() == 1


def test_given_an_error_that_librdkafka_deals_with_when_nothing_comes_then_it_is_reported_and_the_range_is_cut() -> (
    None
):
    arbiter = ScriptedArbiter()
    arbiter.cut_after_seconds = 3.0
    scene = Scene(A, arbiter=arbiter)
    scene.stream.refusals[P0] = MOVED
    scene.stream.refuse(P0)
    assert scene.read() == 0
    assert arbiter.proposed == [{A: 0}]
    assert scene.said[0].endswith("of 10 (Broker: Not leader for partition)")


def test_given_a_stalled_task_when_its_time_is_up_then_it_fails_and_names_broker_and_option() -> None:
    led = FetchRange(topic_partition=P0, start_offset=0, end_offset=10, leader=BrokerId(7))
    scene = Scene(led, B, settings=FetchSettings(stall_seconds=120.0))
    scene.stream.rows(P1, 10)
    with pytest.raises(
        GatewayError, match=r"^stallTimeout: no record came for 120 s .*t-0 at offset 0 of 10 \(broker 7\)"
    ):
        scene.read()
    assert scene.elapsed == pytest.approx(120, abs=0.1)


def test_given_a_task_of_a_batch_read_when_it_stalls_then_the_error_names_where_the_leader_was() -> None:
    led = FetchRange(topic_partition=P0, start_offset=0, end_offset=10, leader_address=BrokerAddress("b7", 9092))
    with pytest.raises(GatewayError, match=r"t-0 at offset 0 of 10 \(broker b7:9092\)"):
        Scene(led, settings=FetchSettings(stall_seconds=5.0)).read()


def test_given_a_slow_leader_when_something_comes_in_time_then_the_task_goes_on() -> None:
    scene = Scene(A, settings=FetchSettings(stall_seconds=5.0))
    for offset in range(1, 11):
        scene.after(4.0, partial(scene.stream.rows, P0, offset))
    assert scene.read() == 10
