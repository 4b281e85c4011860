"""The planner with cuts, over a scripted feed and a ledger in a file; tasks are what their tickets say."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from discovery.core.errors import ArbiterError, DataLossError, KafkaUnreachableError, StateError
from discovery.core.model import BrokerId, Generation, TopicId, TopicPartition
from discovery.feed.base import PartitionView
from discovery.spark.fetch import FetchRange
from discovery.spark.source.cuts.arbiter import for_ranges
from discovery.spark.source.cuts.coordinator import RangeCoordinator
from discovery.spark.source.cuts.ledger import Incarnation
from discovery.spark.source.cuts.planned import Cuts
from discovery.spark.source.cuts.rules import Batch
from discovery.spark.source.cuts.server import CoordinatorServer
from discovery.spark.source.feeds import current_topic_id
from discovery.spark.source.options.cuts import CutOptions
from discovery.spark.source.options.parse import parse_options
from discovery.spark.source.planning.confirmation import Confirmation
from discovery.spark.source.planning.planner import Planner
from discovery.spark.source.status import status_of
from tests.support.fakes.feed import ScriptedFeed, partition_view, tp, view_of
from tests.support.fakes.ledger import FullDisk

TWO = {tp(0): partition_view(0, 10), tp(1): partition_view(0, 10)}
START = {"t": {"0": 0, "1": 0}}


def a_range(partition: int) -> FetchRange:
    return FetchRange(topic_partition=tp(partition), start_offset=0, end_offset=10)


class Run:
    """One run of a query: a planner with its own coordinator over the ledger that all runs share."""

    def __init__(self, folder: Path, partitions: Mapping[TopicPartition, PartitionView], **options: str) -> None:
        self.feed = ScriptedFeed(view_of(partitions))
        self.ledger = FullDisk(folder, "s")
        self.coordinator = RangeCoordinator(
            self.ledger, topic_id_of=partial(current_topic_id, self.feed), now=self.feed.clock.monotonic
        )
        self.server = CoordinatorServer(self.coordinator, host="127.0.0.1")
        self.cuts = Cuts(self.coordinator, self.server, CutOptions(host="127.0.0.1"))
        self.cuts.open()
        given = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", "startingOffsets": "earliest", **options}
        self.aside: list[Callable[[], None]] | None = None
        """What waits to be asked beside planning; None: it is asked at once."""
        confirmation = Confirmation(
            self.feed.refresh, lambda work: work() if self.aside is None else self.aside.append(work)
        )
        self.planner = Planner(
            self.feed, parse_options(given), self.feed.clock, cuts=self.cuts, confirmation=confirmation
        )

    def latest(self, start: Mapping[str, Any], max_rows: int | None = None) -> Any:
        return self.planner.latest_offsets(start, max_rows)

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
        tasks, _, _ = self.planner.tasks(start, end)
        return {r.topic_partition.partition: (r.start_offset, r.end_offset) for task in tasks for r in task}

    def undecided(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> set[int]:
        ticket = self.planner.tasks(start, end)[2]
        return set() if ticket is None else {place.partition for place in ticket.undecided}

    def cut(self, partition: int, at: int, batch: Batch | None = None) -> None:
        plan = self.coordinator.current()
        assert plan is not None
        self.coordinator.decide(plan.number, {tp(partition): at}, batch)

    def ask(self, batch: Batch) -> None:
        """Do what every worker does first."""
        plan = self.coordinator.current()
        assert plan is not None
        self.coordinator.known(plan.number, [], batch)

    def first_batch(self, *, cut_at: int | None = None) -> Any:
        start = self.planner.initial_offsets()
        end = self.latest(start)
        self.planner.initial_offsets()
        self.planner.tasks(start, end)
        if cut_at is not None:
            self.cut(0, cut_at)
        return end


StartRun = Callable[..., Run]


@pytest.fixture
def start_run(tmp_path: Path) -> Iterator[StartRun]:
    runs: list[Run] = []

    def start(partitions: Mapping[TopicPartition, PartitionView] = TWO, **options: str) -> Run:
        for run in runs:
            run.cuts.close()
        runs.append(Run(tmp_path, partitions, **options))
        return runs[-1]

    yield start
    for run in runs:
        run.cuts.close()


def test_given_a_cut_when_nobody_answers_whether_it_reaches_as_far_then_the_others_are_read(
    start_run: StartRun,
) -> None:
    run = start_run()
    run.aside = []
    end = run.first_batch()
    run.cut(0, 3)
    run.feed.show_partitions({tp(0): partition_view(0, 30), tp(1): partition_view(0, 15)})
    back = run.latest(end)
    run.feed.show_partitions({tp(0): partition_view(0, 30), tp(1): partition_view(0, 16)})
    run.ranges(end, back)
    assert run.latest(back) == {"t": {"0": 3, "1": 16}}
    run.feed.clock.advance(5.0)
    run.feed.show_partitions({tp(0): partition_view(0, 30), tp(1): partition_view(0, 17)})
    assert run.latest(back) == {"t": {"0": 3, "1": 17}}
    (question,) = run.aside
    question()
    run.feed.clock.advance(0.2)
    assert run.latest(back) == {"t": {"0": 30, "1": 17}}


@pytest.mark.parametrize("trigger_seconds", [0.2, 1.0, 9.0])
def test_given_a_cut_when_the_answer_is_there_at_the_next_look_then_it_is_read_on_however_late_that_is(
    start_run: StartRun, trigger_seconds: float
) -> None:
    run = start_run()
    run.aside = []
    end = run.first_batch()
    run.cut(0, 3)
    back = run.latest(end)
    run.ranges(end, back)
    assert run.latest(back) == back
    run.aside.pop()()
    run.feed.clock.advance(trigger_seconds)
    run.feed.show_partitions(TWO)
    assert run.latest(back) == {"t": {"0": 10, "1": 10}}


def test_given_an_answer_nobody_took_when_the_partition_is_cut_again_then_it_does_not_count(
    start_run: StartRun,
) -> None:
    run = start_run(failOnDataLoss="false")
    run.aside = []
    end = run.first_batch()
    run.cut(0, 3)
    back = run.latest(end)
    run.ranges(end, back)
    run.latest(back)
    first = run.aside.pop()
    first()
    run.feed.show_partitions({tp(0): partition_view(0, 5), tp(1): partition_view(0, 10)})
    run.feed.clock.advance(1.0)
    on = run.latest(back)
    assert on == {"t": {"0": 5, "1": 10}}, "what is lost is asked for at once"
    run.ranges(back, on)
    run.cut(0, 4)
    again = run.latest(on)
    run.ranges(on, again)
    assert run.latest(again) == {"t": {"0": 4, "1": 10}}
    assert len(run.aside) == 1


def test_given_one_end_cut_twice_when_asked_in_between_then_only_a_later_answer_counts(
    start_run: StartRun,
) -> None:
    run = start_run()
    asked_at = [0.0]

    def look(start: Any) -> Any:
        """Plan with a view of now whose leader was asked at `asked_at`."""
        run.feed.show(replace(run.feed.view(), answered={BrokerId(1): (asked_at[0], set(TWO))}))
        return run.latest(start)

    end = run.first_batch()
    for at in (3, 5):
        run.feed.clock.advance(1.0)
        run.cut(0, at)
        back = look(end)
        run.ranges(end, back)
        asked_at[0] = run.feed.clock.monotonic() - 0.1
        assert look(back)["t"]["0"] == at, "asked before the cut was seen"
        run.feed.clock.advance(1.0)
        asked_at[0] = run.feed.clock.monotonic()
        end = look(back)
        assert end["t"]["0"] == 10
        run.ranges(back, end)
    assert run.feed.refreshes == 0


def test_given_a_cut_when_the_trigger_is_long_then_the_look_waits_for_the_answer(start_run: StartRun) -> None:
    run = start_run()
    run.aside = []
    end = run.first_batch()
    run.cut(0, 3)
    run.feed.clock.advance(10.0)
    back = run.latest(end)
    run.ranges(end, back)
    run.feed.clock.advance(10.0)
    assert run.latest(back) == {"t": {"0": 10, "1": 10}}
    assert run.aside == []


@pytest.mark.parametrize("one_batch", [False, True])
def test_given_a_cut_when_a_bounded_run_plans_then_it_waits_for_the_answer(
    start_run: StartRun, *, one_batch: bool
) -> None:
    first = start_run()
    end = first.first_batch()
    first.cut(0, 3)
    back = first.latest(end)
    first.ranges(end, back)
    run = start_run()
    run.aside = []
    run.planner.fix_target(one_batch=one_batch)
    assert run.latest(back) == {"t": {"0": 10, "1": 10}}
    assert run.aside == []


def test_given_a_cut_when_it_is_parked_before_the_answer_is_seen_then_it_waits_for_another(start_run: StartRun) -> None:
    run = start_run()
    run.aside = []
    end = run.first_batch()
    run.cut(0, 3)
    back = run.latest(end)
    run.ranges(end, back)
    run.latest(back)
    run.aside.pop()()
    run.feed.show_partitions({tp(0): partition_view(0, 30, parked_reason="it is silent"), tp(1): partition_view(0, 12)})
    assert run.latest(back) == {"t": {"0": 3, "1": 12}}
    run.feed.clock.advance(1.0)
    run.feed.show_partitions({tp(0): partition_view(0, 30), tp(1): partition_view(0, 12)})
    assert run.latest(back) == {"t": {"0": 3, "1": 12}}
    run.aside.pop()()
    run.feed.clock.advance(0.2)
    assert run.latest(back) == {"t": {"0": 30, "1": 12}}


def test_given_a_cut_when_the_next_batches_are_planned_then_it_goes_back_and_is_read_on(start_run: StartRun) -> None:
    run = start_run()
    end = run.first_batch()
    assert end == {"t": {"0": 10, "1": 10}}
    run.cut(0, 3)
    run.feed.show_partitions({tp(0): partition_view(0, 30), tp(1): partition_view(0, 15)})
    back = run.latest(end)
    assert back == {"t": {"0": 3, "1": 15}}, "the others go on in the same batch"
    assert run.ranges(end, back) == {1: (10, 15)}
    on = run.latest(back)
    assert on == {"t": {"0": 30, "1": 15}}
    assert run.ranges(back, on) == {0: (3, 30)}


def waiting(run: Run) -> object:
    """What the status says that tasks wait for, now that the leader of t-0 is dead."""
    run.feed.show_partitions({tp(0): partition_view(0, 10, leader=None), tp(1): TWO[tp(1)]})
    return status_of(run.planner, run.feed.view(), wall=0.0)["waiting"]


@pytest.mark.parametrize(("end", "left"), [(3, []), (10, []), (None, ["t-0"])], ids=("cut", "read", "undecided"))
def test_given_a_dead_leader_when_its_range_is_cut_or_read_then_no_task_is_said_to_wait_for_it(
    start_run: StartRun, end: int | None, left: list[str]
) -> None:
    run = start_run()
    run.first_batch(cut_at=end)
    assert waiting(run) == left


@pytest.mark.parametrize("cut_at", [None, 3])
def test_given_a_dead_leader_when_its_batch_is_replayed_then_tasks_are_said_to_wait_for_it(
    start_run: StartRun, cut_at: int | None
) -> None:
    end = start_run().first_batch(cut_at=cut_at)
    again = start_run()
    again.ranges(START, end)
    assert waiting(again) == ["t-0"]


def test_given_a_dead_leader_when_its_batch_is_never_cut_then_tasks_are_said_to_wait_for_it(
    start_run: StartRun,
) -> None:
    run = start_run(onParked="hold")
    run.first_batch()
    assert waiting(run) == ["t-0"]


def test_given_a_dead_leader_when_a_later_piece_was_read_then_tasks_are_said_to_wait_for_it(
    start_run: StartRun,
) -> None:
    run = start_run(maxRecordsPerPartition="5")
    run.first_batch()
    assert run.coordinator.decide(1, {tp(0): 10}, starts={tp(0): 5}) == {tp(0): 10}
    assert run.coordinator.decide(1, {tp(0): 2}, starts={tp(0): 0}) == {tp(0): 5}, "not cut: it must be read on"
    assert waiting(run) == ["t-0"]


def test_given_a_cut_when_rows_are_limited_or_the_query_holds_then_it_still_goes_back(start_run: StartRun) -> None:
    run = start_run()
    end = run.first_batch(cut_at=3)
    again = start_run({tp(0): partition_view(None, None, leader=None), tp(1): TWO[tp(1)]}, onParked="hold")
    assert again.ranges(START, end) == {0: (0, 3), 1: (0, 10)}
    back = again.latest(end, max_rows=1)
    assert back == {"t": {"0": 3, "1": 10}}
    assert again.undecided(end, back) == set()
    assert again.latest(back) is back


def test_given_a_cut_when_the_log_lost_records_since_then_the_rewind_comes_before_the_loss(start_run: StartRun) -> None:
    run = start_run()
    end = run.first_batch(cut_at=3)
    run.feed.show_partitions({tp(0): partition_view(5, 8), tp(1): TWO[tp(1)]})
    back = run.latest(end)
    assert back == {"t": {"0": 3, "1": 10}}
    with pytest.raises(DataLossError, match="t-0 begins at offset 5 but the query is at offset 3"):
        run.latest(back)


def test_given_a_cut_when_its_topic_is_recreated_then_it_goes_back_and_then_begins_with_the_new_one(
    start_run: StartRun,
) -> None:
    run = start_run(onTopicRecreated="restart")
    end = run.first_batch(cut_at=3)
    new = partition_view(0, 8, topic_id=TopicId("id-2"))
    run.feed.show(view_of({tp(0): new, tp(1): new}, generation=Generation(2)))
    back = run.latest(end)
    assert back == {"t": {"0": 3, "1": 0}}
    again = run.latest(back)
    assert again == {"t": {"0": 0, "1": 8}}, "the rewind has not made it forget which topic it read"
    assert run.ranges(back, again) == {1: (0, 8)}
    assert run.latest(again) == {"t": {"0": 8, "1": 8}}


def test_given_a_topic_recreated_under_a_batch_when_its_range_was_read_then_it_counts_for_nothing(
    start_run: StartRun,
) -> None:
    run = start_run(onTopicRecreated="restart")
    run.first_batch()
    run.cut(0, 10)
    run.cut(1, 10)
    run.feed.show_partitions({tp(0): partition_view(0, 20), tp(1): TWO[tp(1)]})
    end = run.latest({"t": {"0": 10, "1": 10}})
    assert run.ranges({"t": {"0": 10, "1": 10}}, end) == {0: (10, 20)}
    run.feed.show(view_of({tp(0): partition_view(0, 30, topic_id=TopicId("id-2"))}, generation=Generation(2)))
    run.cut(0, 20)  # it was read to its end: records of the new topic
    back = run.latest(end)
    assert back["t"]["0"] == 10
    again = run.latest(back)
    assert again["t"]["0"] == 0, "the new topic is read from its beginning, for the first time"
    assert run.ranges(again, run.latest(again)) == {0: (0, 30)}


def test_given_a_driver_that_died_after_a_cut_when_the_batch_is_replayed_then_it_ends_there_again(
    start_run: StartRun,
) -> None:
    run = start_run()
    end = run.first_batch(cut_at=3)
    again = start_run()
    assert again.ranges(START, end) == {0: (0, 3), 1: (0, 10)}
    assert again.undecided(START, end) == set(), "what was not cut then is full now"
    back = again.latest(end)
    assert back == {"t": {"0": 3, "1": 10}}
    third = start_run()
    assert third.ranges(end, back) == {}, "the rewind itself, replayed"
    assert third.latest(back) == {"t": {"0": 10, "1": 10}}


def test_given_a_very_first_batch_when_it_is_replayed_then_it_begins_where_it_began(start_run: StartRun) -> None:
    run = start_run()
    end = run.first_batch()
    again = start_run({tp(0): partition_view(4, 40), tp(1): partition_view(4, 40)})
    forgotten = again.planner.initial_offsets()
    assert forgotten == {"t": {"0": 4, "1": 4}}, "retention moved on, and Spark asks again"
    assert again.ranges(forgotten, end) == {0: (0, 10), 1: (0, 10)}
    assert again.latest(end) == {"t": {"0": 40, "1": 40}}


@pytest.mark.parametrize("options", [{}, {"onParked": "hold"}])
def test_given_nothing_to_read_at_first_when_the_first_batch_with_rows_is_replayed_then_it_is_known(
    start_run: StartRun, options: dict[str, str]
) -> None:
    other = partition_view(None, None, leader=None) if options else partition_view(0, 0)
    run = start_run({tp(0): partition_view(0, 0), tp(1): other}, **options)
    start = run.planner.initial_offsets()
    assert run.latest(start) is start
    run.feed.show_partitions(TWO)
    end = run.latest(start)
    assert run.ranges(start, end) == {0: (0, 10), 1: (0, 10)}
    again = start_run(**options)
    assert again.ranges(again.planner.initial_offsets(), end) == {0: (0, 10), 1: (0, 10)}
    assert again.latest(end) is end


def test_given_a_new_partition_that_was_cut_when_replayed_then_its_beginning_is_the_recorded_one(
    start_run: StartRun,
) -> None:
    run = start_run({tp(0): partition_view(0, 10)})
    end = run.first_batch()
    run.feed.show_partitions({tp(0): partition_view(0, 10), tp(1): partition_view(4, 10)})
    more = run.latest(end)
    run.planner.tasks(end, more)
    run.cut(1, 6)
    again = start_run({tp(0): partition_view(0, 10), tp(1): partition_view(None, None, leader=None)})
    assert again.ranges(end, more) == {1: (4, 6)}


def test_given_two_scans_of_one_batch_when_leaders_move_between_them_then_both_get_the_same_plan(
    start_run: StartRun,
) -> None:
    run = start_run()
    end = run.first_batch()
    number = run.coordinator.current()
    run.feed.show_partitions({place: partition_view(0, 10, leader=2) for place in TWO})
    assert run.ranges(START, end) == {0: (0, 10), 1: (0, 10)}
    assert run.coordinator.current() is number
    run.cut(0, 3)
    assert run.ranges(START, end) == {0: (0, 3), 1: (0, 10)}, "a later scan learns what was cut"
    assert run.undecided(START, end) == {1}


def test_given_a_partition_read_in_pieces_when_the_first_one_is_cut_then_the_later_ones_are_empty(
    start_run: StartRun,
) -> None:
    run = start_run({tp(0): partition_view(0, 1000), tp(1): partition_view(0, 10)}, minPartitions="6")
    start = run.planner.initial_offsets()
    end = run.latest(start)
    tasks, _, ticket = run.planner.tasks(start, end)
    pieces = sorted((r.start_offset, r.end_offset) for task in tasks for r in task if r.topic_partition == tp(0))
    first, second, *_, (_, last) = pieces
    assert ticket is not None
    assert ticket.undecided == {tp(0), tp(1)}
    assert ticket.split == {tp(0)}
    number = ticket.plan
    assert run.coordinator.decide(number, {tp(0): first[1]}, starts={tp(0): first[0]}) == {tp(0): first[1]}
    cut = second[0] + 3
    assert run.coordinator.decide(number, {tp(0): cut}, starts={tp(0): second[0]}) == {tp(0): cut}
    assert run.coordinator.known(number, [tp(0)], starts={tp(0): first[0]}) == {tp(0): first[1]}
    assert run.coordinator.decide(number, {tp(0): last}, starts={tp(0): pieces[-1][0]}) == {tp(0): pieces[-1][0]}
    shorter = [(r.start_offset, r.end_offset) for task in run.planner.tasks(start, end)[0] for r in task]
    assert {first, (second[0], cut)} == set(shorter) - {(0, 10)}, "another scan reads no later piece at all"
    assert run.latest(end)["t"]["0"] == cut


def test_given_a_leader_that_is_slow_and_not_dead_when_cut_again_and_again_then_it_gets_more_time_and_rests_between(
    start_run: StartRun,
) -> None:
    run = start_run()
    start, end = START, run.first_batch()
    waits, rests = [], []
    for number in range(4):
        ticket = run.planner.tasks(start, end)[2]
        assert ticket is not None
        tasks = [for_ranges(ticket, [r]) for r in (a_range(0), a_range(1))]
        waits.append([task.cut_after_seconds for task in tasks if task])
        run.cut(0, 0)
        run.cut(0, 0)  # asked twice, counted once
        run.feed.show_partitions({tp(0): TWO[tp(0)], tp(1): partition_view(0, 11 + number)})
        back = run.latest(end)
        began = run.feed.clock.monotonic()
        while (more := run.latest(back)) is back:
            assert "workers could not read it" in run.planner.state.parked[tp(0)]
            run.feed.clock.advance(0.25)
        rests.append(run.feed.clock.monotonic() - began)
        start, end = back, more
    assert waits == [[1.0, 1.0], [2.0, 1.0], [4.0, 1.0], [4.0, 1.0]], "a batch waits no longer than that"
    assert rests == [1.0, 2.0, 4.0, 8.0], "the others go on meanwhile"


def test_given_a_leader_that_is_never_heard_when_a_run_is_bounded_then_it_ends_with_an_error_in_bounded_time(
    start_run: StartRun,
) -> None:
    run = start_run()
    run.planner.fix_target()
    start, end, began = START, run.first_batch(), run.feed.clock.monotonic()
    for number in range(7):
        run.planner.tasks(start, end)
        run.cut(0, 0)
        start = run.latest(end)
        if number < 6:
            end = run.latest(start)
    with pytest.raises(KafkaUnreachableError, match=r"cannot reach its end: .*t-0 \(workers could not read it"):
        run.latest(start)
    assert run.feed.clock.monotonic() - began < 200


@pytest.mark.parametrize("bounded", [False, True])
def test_given_a_ledger_that_cannot_be_written_when_a_query_is_new_then_it_begins_as_soon_as_it_can(
    start_run: StartRun, *, bounded: bool
) -> None:
    run = start_run()
    if bounded:
        run.planner.fix_target()
    start = run.planner.initial_offsets()
    run.ledger.full = True
    if bounded:
        with pytest.raises(StateError, match="no space left"):
            run.latest(start)
    else:
        assert run.latest(start) is start
    run.ledger.full = False
    run.feed.clock.advance(1.0)
    end = run.latest(start)
    assert run.ranges(start, end) == {0: (0, 10), 1: (0, 10)}
    again = start_run()
    assert again.ranges(again.planner.initial_offsets(), end) == {0: (0, 10), 1: (0, 10)}


def test_given_a_truncation_in_flight_when_the_partition_was_cut_then_it_is_data_loss(start_run: StartRun) -> None:
    run = start_run()
    end = run.first_batch(cut_at=3)
    back = run.latest(end)
    run.feed.show_partitions({tp(0): partition_view(0, 3), tp(1): TWO[tp(1)]})
    with pytest.raises(DataLossError, match="t-0 ends at offset 3, but a batch was planned to 10 and cut at 3"):
        run.latest(back)
    again = start_run({tp(0): partition_view(0, 5), tp(1): TWO[tp(1)]})
    with pytest.raises(DataLossError, match="t-0 ends at offset 5, but a batch was planned to 10 and cut at 3"):
        again.latest(back)
    accepting = start_run({tp(0): partition_view(0, 5), tp(1): TWO[tp(1)]}, failOnDataLoss="false")
    assert accepting.latest(back) == {"t": {"0": 5, "1": 10}}
    assert accepting.ranges(back, accepting.latest(back)) == {0: (3, 5)}


def test_given_a_view_of_before_the_cut_when_the_partition_is_read_on_then_a_fresh_answer_is_asked_for(
    start_run: StartRun,
) -> None:
    run = start_run()
    end = run.first_batch(cut_at=3)
    back = run.latest(end)
    run.feed.reachable = False
    assert run.latest(back) is back
    assert "not confirmed" in run.planner.state.parked[tp(0)]
    run.feed.reachable = True
    run.feed.clock.advance(1.5)
    assert run.latest(back) == end


A5, A6, A7 = Batch("a", 5), Batch("a", 6), Batch("a", 7)


def test_given_a_copy_of_a_checkpoint_when_the_ledger_has_gone_on_since_then_its_workers_are_refused(
    start_run: StartRun,
) -> None:
    run = start_run()
    end = run.first_batch()
    run.cut(0, 3, A5)
    back = run.latest(end)
    run.planner.tasks(end, back)
    on = run.latest(back)
    assert on == end
    run.planner.tasks(back, on)
    run.ask(A7)
    more = {tp(0): partition_view(0, 12), tp(1): TWO[tp(1)]}
    restored = start_run(more)
    restored.planner.tasks(end, restored.latest(end))
    with pytest.raises(ArbiterError, match=r"t-0 was cut at offset 3 of .* in batch 5, .* only at batch 6: it was res"):
        restored.ask(A6)
    with pytest.raises(ArbiterError, match="restore the ledger too, or, knowing that nothing is missing, adopt this"):
        restored.ask(A6)
    replayed = start_run(more)
    assert replayed.undecided(START, end) == set()
    with pytest.raises(ArbiterError, match="only at batch 5"):
        replayed.ask(A5)
    right = start_run(more)
    right.planner.tasks(on, right.latest(on))
    right.ask(Batch("a", 8))
    adopted = start_run(more)
    adopted.coordinator._append([Incarnation(number=2)])
    adopted.planner.tasks(end, adopted.latest(end))
    adopted.ask(A6)


def test_given_two_checkpoints_under_one_name_when_one_was_cut_then_the_other_goes_on_only_if_it_is_not_concerned(
    start_run: StartRun,
) -> None:
    older = start_run()
    end = older.first_batch()
    older.cut(0, 3, A5)
    newer = start_run()
    assert newer.first_batch() == end
    newer.ask(Batch("b", 0))
    more = {tp(0): partition_view(0, 12), tp(1): TWO[tp(1)]}
    again = start_run(more)
    assert again.latest(end) == {"t": {"0": 12, "1": 10}}, "it stands where the other one was cut, and was not"
    again.planner.tasks(end, again.latest(end))
    again.ask(Batch("b", 1))
    replayed = start_run(more)
    replayed.planner.tasks(START, end)
    with pytest.raises(ArbiterError, match="only at batch 5: it was restored from a copy"):
        replayed.ask(A5)
    restored = start_run(more)
    restored.planner.tasks(end, restored.latest(end))
    with pytest.raises(ArbiterError, match="only at batch 6: it was restored from a copy"):
        restored.ask(A6)


def test_given_another_query_when_it_stands_just_where_one_was_cut_then_it_is_refused_before_it_reads(
    start_run: StartRun,
) -> None:
    run = start_run()
    end = run.first_batch()
    run.cut(0, 3, A5)
    other = start_run({tp(0): TWO[tp(0)], tp(1): partition_view(0, 12)})
    other.planner.tasks(end, other.latest(end))
    with pytest.raises(ArbiterError, match="by query a, and this is query b: its checkpoint is not the one that used"):
        other.ask(Batch("b", 9))


def test_given_a_bounded_run_when_cut_then_it_ends_with_an_error_and_never_as_a_success(start_run: StartRun) -> None:
    run = start_run(startupTimeout="5s")
    run.planner.fix_target()
    end = run.first_batch(cut_at=3)
    run.feed.show_partitions({tp(0): partition_view(None, None, leader=None), tp(1): TWO[tp(1)]})
    back = run.latest(end)
    assert back == {"t": {"0": 3, "1": 10}}
    with pytest.raises(KafkaUnreachableError, match=r"Trigger.AvailableNow cannot reach its end: .* t-0"):
        run.latest(back)


def test_given_no_ledger_when_a_checkpoint_goes_on_then_nothing_is_planned(start_run: StartRun) -> None:
    with pytest.raises(StateError, match="the checkpoint is not new, but no ledger of its cuts is at"):
        start_run().latest({"t": {"0": 5}})
    with pytest.raises(StateError, match="the checkpoint is not new, but no ledger of its cuts is at"):
        start_run().ranges({"t": {"0": 5}}, {"t": {"0": 6}})


def test_given_a_checkpoint_that_was_edited_when_planning_then_it_fails_closed(start_run: StartRun) -> None:
    run = start_run()
    run.first_batch()
    run.cut(0, 3)
    with pytest.raises(StateError, match="the checkpoint was rolled back or edited"):
        start_run().latest({"t": {"0": 7, "1": 10}})


def test_given_a_first_batch_of_another_query_when_replayed_then_it_fails_closed(start_run: StartRun) -> None:
    start_run().first_batch()
    run = start_run()
    start = run.planner.initial_offsets()
    with pytest.raises(StateError, match="the checkpoint's first batch is not the one in the ledger"):
        run.ranges(start, {"t": {"0": 2}})


def test_given_a_plan_that_goes_back_without_a_cut_when_made_into_tasks_then_it_is_refused(start_run: StartRun) -> None:
    run = start_run()
    end = run.first_batch()
    with pytest.raises(DataLossError, match="the checkpoint plans t-0 back from offset 10 to 4"):
        run.ranges(end, {"t": {"0": 4, "1": 10}})
