"""The embedded feed over a fake cluster: what its reader's own questions do to the view."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from discovery.config.clock import SystemClock
from discovery.core.interest import Interest
from discovery.core.model import BrokerAddress, TopicName, TopicPartition
from discovery.feed.base import PartitionView
from discovery.feed.embedded import EmbeddedFeed
from tests.support.fakes.cluster import FakeCluster, FakeNetwork
from tests.support.fakes.gateway import FakeGateway, FakeVetter
from tests.support.helpers import eventually

TOPIC = TopicName("t")
T0 = TopicPartition(TOPIC, 0)


class ShiftedClock(SystemClock):
    """The system's clock, which a slow answer moves forward."""

    shift_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.shift_seconds


class Leader:
    """How long each answer of the one leader takes by the feed's clock, and whether it answers at all."""

    def __init__(self, took_seconds: float) -> None:
        self.clock = ShiftedClock()
        self.took_seconds = took_seconds
        self.answers = threading.Event()
        self.answers.set()


@contextmanager
def followed(leader: Leader) -> Iterator[EmbeddedFeed]:
    """A feed whose one partition was seen readable."""
    network = FakeNetwork()
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 1)

    class Slow(FakeGateway):
        def list_offsets(self, *arguments: Any, **more: Any) -> Any:
            leader.answers.wait(20)
            leader.clock.shift_seconds += leader.took_seconds
            return super().list_offsets(*arguments, **more)

    def factory(bootstrap: Sequence[BrokerAddress]) -> FakeGateway:
        return Slow(network, bootstrap)

    feed = EmbeddedFeed(
        bootstrap=tuple(cluster.addresses.values()),
        interest=Interest(topics=(TOPIC,)),
        factory=factory,
        vetter=FakeVetter(network),
        clock=leader.clock,
    )
    try:
        feed.start()
        eventually(lambda: partition(feed) is not None and partition(feed).high_watermark == 0, 20)  # type: ignore[union-attr]
        yield feed
    finally:
        leader.answers.set()
        feed.stop()


def partition(feed: EmbeddedFeed) -> PartitionView | None:
    return feed.view().partitions.get(T0)


def test_given_a_slow_leader_when_a_refresh_ends_before_its_answer_then_it_is_parked_in_that_view_alone() -> None:
    leader = Leader(took_seconds=3.0)
    with followed(leader) as feed:
        leader.answers.clear()
        refreshed = feed.refresh(0.5).partitions[T0]
        assert "is slow: no answer in time for a refresh" in (refreshed.parked_reason or "")
        known = partition(feed)
        assert known is not None
        assert (known.parked_reason, known.answer_seconds) == (None, 3.0)


def test_given_a_quick_leader_when_a_refresh_ends_before_its_answer_then_it_is_parked() -> None:
    leader = Leader(took_seconds=0.0)
    with followed(leader) as feed:
        leader.answers.clear()
        refreshed = feed.refresh(0.5).partitions[T0]
        assert refreshed.parked_reason is not None
        assert "no answer in time for a refresh" in refreshed.parked_reason
        assert refreshed.answer_seconds == 0.0
