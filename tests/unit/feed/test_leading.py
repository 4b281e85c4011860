"""Whose view is shown: the service's, or an embedded loop's; and what an embedded loop's view takes over."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from discovery.core.model import Generation, LoopState, TopicId, TopicName, TopicPartition
from discovery.feed.base import FeedView, PartitionView
from discovery.feed.carry import covers_all, with_carried
from discovery.feed.leading import Heard, Limits, Mode, choose, embedded_loop_is_due

INF = float("inf")
LIMITS = Limits(silence_seconds=3.0, age_seconds=10.0, return_seconds=2.0)
N, S, O = Mode.NOBODY, Mode.SERVICE, Mode.EMBEDDED_LOOP  # noqa: E741


# What was heard of the service: seconds of silence, age of what it says, seconds since it is fresh again.
@pytest.mark.parametrize(
    ("mode", "service", "own_usable", "expected"),
    [
        (N, (0.0, 0.5, 0.0), False, S),
        (N, (INF, INF, 0.0), False, N),
        (N, (INF, INF, 0.0), True, O),
        (N, (0.0, 0.5, 0.0), True, S),
        (N, (0.0, INF, 0.0), False, S),
        (N, (0.0, INF, 0.0), True, O),
        (S, (2.9, 3.4, 0.0), True, S),
        (S, (3.1, 3.6, 0.0), True, O),
        (S, (3.1, 3.6, 0.0), False, S),
        (S, (0.0, 10.1, 0.0), True, O),
        (S, (0.0, 10.1, 0.0), False, S),
        (O, (0.0, 0.5, 1.9), True, O),
        (O, (0.0, 0.5, 2.0), True, S),
        (O, (0.0, 0.5, 0.0), False, S),
        (O, (9.0, 9.5, 0.0), False, O),
        (O, (0.0, 10.1, 0.0), True, O),
        (O, (0.0, 10.1, 0.0), False, O),
    ],
)
def test_given_what_was_heard_when_chosen_then_the_service_leads_while_fresh_and_only_a_usable_view_replaces_it(
    mode: Mode,
    service: tuple[float, float, float],
    own_usable: bool,  # noqa: FBT001 - pytest passes it by name
    expected: Mode,
) -> None:
    heard = Heard(
        service_silent_seconds=service[0],
        service_age_seconds=service[1],
        service_steady_seconds=service[2],
        embedded_loop_usable=own_usable,
    )
    assert choose(mode, heard, LIMITS) is expected


@pytest.mark.parametrize(
    ("silent", "age", "running", "due"),
    [
        (INF, INF, 2.9, False),
        (INF, INF, 3.1, True),
        (0.1, INF, 2.9, False),
        (0.1, INF, 3.1, True),
        (0.1, 9.9, 600.0, False),
        (0.1, 10.1, 600.0, True),
        (3.1, 3.5, 600.0, True),
    ],
)
def test_given_a_silent_or_old_service_when_judged_then_an_embedded_loop_is_due_after_its_time(
    silent: float,
    age: float,
    running: float,
    due: bool,  # noqa: FBT001
) -> None:
    heard = Heard(service_silent_seconds=silent, service_age_seconds=age)
    assert embedded_loop_is_due(heard, running_seconds=running, limits=LIMITS) is due


def tp(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)


def row(topic_id: str, *, gone: bool = False) -> PartitionView:
    parked = "its topic is gone" if gone else None
    return PartitionView(
        topic_id=TopicId(topic_id), leader_id=None, leader=None, high_watermark=5, gone=gone, parked_reason=parked
    )


def view(rows: dict[TopicPartition, PartitionView], *missing: str) -> FeedView:
    return FeedView(
        version=1,
        generation=Generation(1),
        state=LoopState.FRESH,
        cluster_id=None,
        age_seconds=0.0,
        bootstrap=(),
        partitions=MappingProxyType(rows),
        missing_topics=tuple(map(TopicName, missing)),
    )


def test_given_a_deleted_topic_of_the_service_when_the_embedded_loop_has_all_else_then_it_can_stand_in() -> None:
    shown = view({tp("a"): row("1"), tp("old"): row("2", gone=True)})
    own = view({tp("a"): row("1"), tp("b"): row("3")})
    assert covers_all(own, shown)
    merged = with_carried(own, shown, wall=7.0)
    assert list(merged.partitions) == [tp("a"), tp("b"), tp("old")]
    assert merged.partitions[tp("old")] == shown.partitions[tp("old")]


def test_given_a_topic_deleted_meanwhile_when_the_embedded_loop_says_so_then_it_stands_in_and_shows_it_gone() -> None:
    shown = view({tp("a"): row("1"), tp("b"): row("2")})
    own = view({tp("a"): row("1")}, "b")
    assert covers_all(own, shown)
    carried = with_carried(own, shown, wall=7.0).partitions[tp("b")]
    assert (carried.gone, carried.parked_reason, carried.high_watermark) == (True, "its topic is gone", 5)


def test_given_a_partition_the_embedded_loop_lacks_when_it_stands_in_then_it_is_parked_and_not_lost() -> None:
    shown = view({tp("a"): row("1"), tp("a", 1): row("1")})
    own = view({tp("a"): row("1")})
    assert not covers_all(own, shown)
    merged = with_carried(own, shown, wall=7.0)
    carried = merged.partitions[tp("a", 1)]
    assert (carried.gone, carried.parked_reason, carried.parked_since_wall) == (
        False,
        "the service knew it, the embedded loop has not found it",
        7.0,
    )
    again = with_carried(own, merged, wall=9.0)
    assert again.partitions[tp("a", 1)].parked_since_wall == 7.0
    assert with_carried(replace(shown, generation=Generation(2)), merged, wall=9.0).partitions == shown.partitions


def test_given_a_topic_recreated_with_fewer_partitions_when_taken_over_then_the_old_ones_are_not_carried() -> None:
    shown = view({tp("a"): row("1"), tp("a", 1): row("1")})
    own = view({tp("a"): row("2")})
    assert list(with_carried(own, shown, wall=7.0).partitions) == [tp("a")]
