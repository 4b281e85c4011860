"""Which feed a reader follows."""

from typing import Protocol

from discovery.core.policy import Policy
from discovery.feed.base import OffsetService, PartitionFeed
from discovery.feed.embedded import EmbeddedFeed
from spark_jobs.source.options import SourceOptions


class Feed(PartitionFeed, OffsetService, Protocol):
    """Both questions a source has: what is there now, and where is an offset."""


class FeedFactory(Protocol):
    """Makes the feed of one reader; does no I/O. Picklable, since readers are."""

    def __call__(self, options: SourceOptions) -> PartitionFeed:
        """Build it, unstarted."""
        ...


def embedded_feed(options: SourceOptions) -> PartitionFeed:
    """Build a feed that runs its discovery loop in this process.

    Runs: Spark's driver-side source runner; no I/O.
    """
    return EmbeddedFeed(
        bootstrap=options.bootstrap,
        interest=options.interest,
        client_options=options.client,
        policy=Policy(),
        state_dir=options.state_dir,
        source_id=options.source_id,
        cluster_id=options.cluster_id,
    )
