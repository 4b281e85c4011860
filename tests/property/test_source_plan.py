"""Properties of offsets, limits and packing over any cluster."""

import json
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from discovery.core.model import BrokerId, TopicPartition
from discovery.feed.base import PartitionView
from discovery.spark.fetch import FetchRange
from discovery.spark.source.planning.offsets import EARLIEST, LATEST, parse_offsets, to_json
from discovery.spark.source.planning.plan import Limits, OnParked, plan_end
from discovery.spark.source.planning.tasks import RECORDS_PER_TASK, pack, split
from tests.support.fakes.feed import partition_view, tp

partitions = st.builds(tp, st.integers(0, 12), st.sampled_from(["a", "b", "topic-c"]))
offsets = st.dictionaries(partitions, st.integers(0, 2**62))


@st.composite
def views(draw: st.DrawFn) -> PartitionView:
    start = draw(st.none() | st.integers(0, 50))
    end = draw(st.none() | st.integers(start or 0, 500))
    return partition_view(start, end, leader=draw(st.none() | st.integers(1, 4)))


clusters = st.dictionaries(partitions, views())
starts = st.dictionaries(partitions, st.integers(0, 600) | st.just(LATEST))


@given(offsets)
def test_given_any_offsets_when_written_and_read_then_they_are_the_same(
    given_offsets: dict[TopicPartition, int],
) -> None:
    assert parse_offsets(json.dumps(to_json(given_offsets)), what="x") == given_offsets


@given(offsets, st.randoms())
def test_given_any_order_when_written_then_the_text_is_one(
    given_offsets: dict[TopicPartition, int], random: object
) -> None:
    items = list(given_offsets.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert json.dumps(to_json(dict(items))) == json.dumps(to_json(given_offsets))


@given(starts, clusters, st.none() | st.integers(1, 1_000))
def test_given_any_cluster_when_planned_then_no_partition_is_dropped_or_goes_back(
    start: dict[TopicPartition, int], cluster: dict[TopicPartition, PartitionView], limit: int | None
) -> None:
    end = plan_end(start, cluster, Limits(max_offsets=limit)).end
    assert set(start) <= set(end)
    assert all(end[p] >= start[p] for p in start)


@given(starts, clusters, st.none() | st.integers(1, 1_000))
def test_given_any_cluster_when_planned_then_parked_partitions_stay_and_none_passes_its_end(
    start: dict[TopicPartition, int], cluster: dict[TopicPartition, PartitionView], limit: int | None
) -> None:
    plan = plan_end(start, cluster, Limits(max_offsets=limit))
    for p, view in cluster.items():
        if view.parked_reason is not None or view.high_watermark is None:
            assert plan.end.get(p) == start.get(p)
            assert p in plan.parked
        elif p in plan.end:
            assert plan.end[p] <= max(view.high_watermark, start.get(p, 0))


@given(starts, clusters, st.integers(1, 1_000))
def test_given_a_limit_when_planned_then_it_holds_and_no_backlog_starves(
    start: dict[TopicPartition, int], cluster: dict[TopicPartition, PartitionView], limit: int
) -> None:
    free = plan_end(start, cluster, Limits()).end
    end = plan_end(start, cluster, Limits(max_offsets=limit)).end

    def begin(p: TopicPartition) -> int:
        at = start.get(p, LATEST if p not in cluster else cluster[p].start_offset or 0)
        return free[p] if at == LATEST else at

    sizes = {p: end[p] - begin(p) for p in end}
    assert sum(sizes.values()) <= limit + len(sizes)
    assert all(sizes[p] > 0 for p in sizes if free[p] > begin(p))


@given(starts, clusters)
def test_given_hold_when_anything_is_parked_then_nothing_is_planned(
    start: dict[TopicPartition, int], cluster: dict[TopicPartition, PartitionView]
) -> None:
    plan = plan_end(start, cluster, Limits(on_parked=OnParked.HOLD))
    assert not plan.parked or plan.end == start


@given(starts, clusters, st.integers(1, 300))
def test_given_plans_in_a_row_when_nothing_is_new_then_the_offsets_stop_changing(
    start: dict[TopicPartition, int], cluster: dict[TopicPartition, PartitionView], limit: int
) -> None:
    position, steps = dict(start), 0
    while (end := plan_end(position, cluster, Limits(max_offsets=limit)).end) != position:
        position, steps = end, steps + 1
        assert steps < 10_000
    assert to_json(position) == to_json(end)


@st.composite
def led(draw: st.DrawFn) -> list[FetchRange]:
    found = draw(st.lists(partitions, unique=True, max_size=20))
    return [
        FetchRange(
            topic_partition=p,
            start_offset=(a := draw(st.integers(0, 100))),
            end_offset=a + draw(sizes),
            leader=draw(st.none() | st.integers(1, 5).map(BrokerId)),
        )
        for p in found
    ]


sizes = st.integers(0, 3) | st.integers(0, 100_000)


def covered(ranges: list[FetchRange]) -> dict[TopicPartition, list[tuple[int, int]]]:
    joined: dict[TopicPartition, list[tuple[int, int]]] = {}
    for r in sorted(ranges, key=lambda r: (r.topic_partition, r.start_offset)):
        spans = joined.setdefault(r.topic_partition, [])
        if spans and spans[-1][1] == r.start_offset:
            spans[-1] = (spans[-1][0], r.end_offset)
        else:
            spans.append((r.start_offset, r.end_offset))
    return joined


@given(led(), st.none() | st.integers(1, 40))
def test_given_any_ranges_when_packed_then_each_offset_is_read_exactly_once(
    ranges: list[FetchRange], min_partitions: int | None
) -> None:
    tasks = pack(ranges, min_partitions=min_partitions)
    flat = [r for task in tasks for r in task]
    assert covered(flat) == covered([x for x in ranges if x.end_offset > x.start_offset])
    assert sum(r.end_offset - r.start_offset for r in flat) == sum(x.end_offset - x.start_offset for x in ranges)
    assert all(tasks)
    assert all(max(Counter(r.topic_partition for r in task).values()) == 1 for task in tasks)


@given(led())
def test_given_any_ranges_when_packed_then_tasks_follow_the_work_and_ranges_stay_whole(
    ranges: list[FetchRange],
) -> None:
    readable = [x for x in ranges if x.end_offset > x.start_offset]
    tasks = pack(ranges)
    total = sum(x.end_offset - x.start_offset for x in readable)
    assert len(tasks) == min(-(-total // RECORDS_PER_TASK), len(readable))
    assert {r for task in tasks for r in task} == set(readable)


@given(led())
def test_given_any_ranges_when_packed_then_leaders_share_no_task_that_could_be_apart(ranges: list[FetchRange]) -> None:
    leader_of = {x.topic_partition: str(x.topic_partition if x.leader is None else x.leader) for x in ranges}
    tasks = pack(ranges)
    met = [{leader_of[r.topic_partition] for r in task} for task in tasks]
    leaders = set().union(*met)
    if len(tasks) <= len(leaders):
        assert sum(map(len, met)) == len(leaders), "a leader reaches one task"
    else:
        assert all(len(names) == 1 for names in met), "a task knows one leader"


@given(led(), st.sets(st.integers(1, 5).map(BrokerId)), st.none() | st.integers(1, 40))
def test_given_slow_leaders_when_packed_then_none_shares_a_task_with_another_leader(
    ranges: list[FetchRange], slow: set[BrokerId], least: int | None
) -> None:
    mixed = [replace(r, answer_seconds=3.0 if r.leader in slow else 0.0) for r in ranges]
    tasks = pack(mixed, min_partitions=least)
    assert all(len({r.leader for r in task}) == 1 for task in tasks if any(r.is_slow for r in task))
    readable = {r for r in ranges if r.end_offset > r.start_offset}
    assert covered([r for task in tasks for r in task]) == covered(list(readable))
    assert len(tasks) >= len(pack(ranges, min_partitions=least)), "slots that wait are added, not taken"


@given(led(), st.integers(1, 40), st.integers(0, 20))
def test_given_min_partitions_when_packed_then_only_too_few_partitions_make_pieces(
    ranges: list[FetchRange], wanted: int, idle: int
) -> None:
    readable = [x for x in ranges if x.end_offset > x.start_offset]
    tasks = pack(ranges, partitions=len(readable) + idle, min_partitions=wanted)
    if wanted > len(readable) + idle and readable:
        assert len(tasks) == len(split(readable, wanted))
    else:
        assert sum(map(len, tasks)) == len(readable)
        assert len(tasks) >= min(wanted, len(readable))


@given(led(), st.integers(50, 5_000), st.none() | st.integers(1, 40))
def test_given_a_most_per_task_when_packed_then_no_task_exceeds_it(
    ranges: list[FetchRange], most: int, least_tasks: int | None
) -> None:
    tasks = pack(ranges, min_partitions=least_tasks, max_records=most)
    assert all(sum(r.end_offset - r.start_offset for r in task) <= most for task in tasks)
    assert all(max(Counter(r.topic_partition for r in task).values()) == 1 for task in tasks)
    wanted = [x for x in ranges if x.end_offset > x.start_offset]
    assert covered([r for task in tasks for r in task]) == covered(wanted)


@given(st.integers(1, 10**6), st.integers(1, 50))
def test_given_one_large_range_when_split_then_the_pieces_are_even(size: int, wanted: int) -> None:
    whole = FetchRange(topic_partition=tp(0), start_offset=7, end_offset=7 + size)
    lengths = [x.end_offset - x.start_offset for x in split([whole], wanted)]
    assert len(lengths) == min(wanted, size)
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(1, 10**6), st.integers(2, 50))
def test_given_a_range_whose_beginning_nobody_knows_when_split_then_it_stays_whole(end: int, wanted: int) -> None:
    whole = FetchRange(topic_partition=tp(0), start_offset=EARLIEST, end_offset=end)
    assert split([whole], wanted) == [whole]
    assert pack([whole], max_records=1) == ((whole,),)
