"""Planners over a scripted feed."""

from collections.abc import Mapping
from typing import Any

from discovery.core.model import TopicPartition
from discovery.feed.base import PartitionView
from discovery.spark.source.options.parse import parse_options
from discovery.spark.source.planning.planner import Planner
from discovery.store.topic_ids import TopicIdStore
from tests.support.fakes.feed import ScriptedFeed, view_of


def planner(feed: ScriptedFeed, **options: str) -> Planner:
    return named_planner(feed, None, **options)


def named_planner(feed: ScriptedFeed, ids: TopicIdStore | None, **options: str) -> Planner:
    given = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", **options}
    return Planner(feed, parse_options(given), feed.clock, ids=ids)


def feed_with(partitions: Mapping[TopicPartition, PartitionView], **more: Any) -> ScriptedFeed:
    return ScriptedFeed(view_of(partitions, **more))


def begin(plan: Planner) -> dict[str, Any]:
    """Return what stands in Spark's log after the first batch, which is empty where the start moves on."""
    return dict(plan.latest_offsets(plan.initial_offsets(), None))
