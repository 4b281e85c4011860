"""A feed whose views a test writes: no thread, no Kafka."""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from discovery.core.errors import KafkaUnreachableError
from discovery.core.model import (
    BrokerAddress,
    BrokerId,
    ClusterId,
    Generation,
    LoopState,
    TopicId,
    TopicName,
    TopicPartition,
)
from discovery.feed.base import FeedView, PartitionView
from tests.support.fakes.clock import FakeClock

BROKER = BrokerAddress("b1", 9092)


def tp(partition: int, topic: str = "t") -> TopicPartition:
    """Name a partition."""
    return TopicPartition(TopicName(topic), partition)


def partition_view(start: int | None = 0, end: int | None = 0, *, leader: int | None = 1, **more: Any) -> PartitionView:
    """Make a partition with both ends equal; no leader or no end parks it."""
    parked = "it has no leader" if leader is None else "its end offset is unknown" if end is None else None
    return PartitionView(
        **{
            "topic_id": TopicId("id-1"),
            "leader_id": None if leader is None else BrokerId(leader),
            "leader": None if leader is None else BrokerAddress(f"b{leader}", 9092),
            "start_offset": start,
            "high_watermark": end,
            "last_stable_offset": end,
            "parked_reason": parked,
            **more,
        }
    )


def view_of(partitions: Mapping[TopicPartition, PartitionView], **more: Any) -> FeedView:
    """Make a fresh view of one living broker."""
    return FeedView(
        **{
            "version": 1,
            "generation": Generation(1),
            "state": LoopState.FRESH,
            "cluster_id": ClusterId("c"),
            "age_seconds": 0.0,
            "bootstrap": (BROKER,),
            "partitions": MappingProxyType(dict(partitions)),
            **more,
        }
    )


COLD = view_of({}, version=0, generation=Generation(0), state=LoopState.COLD, cluster_id=None, bootstrap=())


class ScriptedFeed:
    """Shows what a test sets. `wait` takes the next scripted view, or lets the fake time pass."""

    def __init__(self, view: FeedView = COLD, *, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.script: deque[FeedView] = deque()
        """Views that `wait` shows one by one."""
        self.refreshed: deque[FeedView] = deque()
        """Views that `refresh` shows one by one; afterwards it answers with the current one."""
        self.reachable = True
        self.by_time: dict[TopicPartition, int] = {}
        """What `resolve` tells for any time; partitions that are not here have a silent leader."""
        self.asked: list[dict[TopicPartition, int]] = []
        self.started = self.stopped = self.refreshes = self.waits = self.plans = 0
        self.acked: list[Generation] = []
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        """Committed offsets by group."""
        self.commits: list[dict[TopicPartition, int]] = []
        """What was asked to be committed, in this order, refused or not."""
        self.refusal: str | None = None
        """Why a group's coordinator refuses; None: it does not."""
        self._view = view

    def show(self, view: FeedView) -> None:
        """Replace the picture; its version grows."""
        self._view = replace(view, version=self._view.version + 1)

    def show_partitions(self, partitions: Mapping[TopicPartition, PartitionView]) -> None:
        """Replace the partitions alone."""
        self.show(replace(self._view, partitions=MappingProxyType(dict(partitions))))

    def start(self) -> None:
        self.started += 1

    def view(self) -> FeedView:
        return self._view

    def wait(self, version: int, timeout_seconds: float) -> FeedView:
        self.waits += 1
        if self._view.version <= version:
            if self.script:
                self.show(self.script.popleft())
            else:
                self.clock.advance(max(timeout_seconds, 0.001))
        return self._view

    def refresh(self, timeout_seconds: float) -> FeedView:
        self.refreshes += 1
        if not self.reachable:
            self.clock.advance(max(timeout_seconds, 0.001))
            raise KafkaUnreachableError("no living broker answered; addresses: b1:9092: silent")
        if self.refreshed:
            self.show(self.refreshed.popleft())
        return self._view

    def resolve(
        self, wanted: Mapping[TopicPartition, int], *, timeout_seconds: float, by_timestamp: bool = False
    ) -> Mapping[TopicPartition, int]:
        assert by_timestamp
        self.asked.append(dict(wanted))
        if not self.reachable:
            self.clock.advance(max(timeout_seconds, 0.001))
            raise KafkaUnreachableError("no leader reported an offset")
        return {tp: self.by_time[tp] for tp in wanted if tp in self.by_time}

    def note_plan(self) -> None:
        self.plans += 1

    def report(self, positions: Mapping[TopicPartition, int]) -> None:
        self.positions = positions

    def ack(self, generation: Generation) -> None:
        self.acked.append(generation)

    def committed(
        self, group: str, partitions: Collection[TopicPartition], *, timeout_seconds: float
    ) -> Mapping[TopicPartition, int]:
        self._ask_coordinator(timeout_seconds)
        return {tp: offset for tp, offset in self.groups.get(group, {}).items() if tp in partitions}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_seconds: float) -> None:
        self.commits.append(dict(offsets))
        self._ask_coordinator(timeout_seconds)
        self.groups.setdefault(group, {}).update(offsets)

    def _ask_coordinator(self, timeout_seconds: float) -> None:
        if self.refusal is not None:
            self.clock.advance(timeout_seconds)
            raise KafkaUnreachableError(self.refusal)

    def stop(self) -> None:
        self.stopped += 1
