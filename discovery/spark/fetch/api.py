"""What the data plane promises, whichever engine runs it."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from discovery.config.clock import SystemClock
from discovery.core.errors import ArbiterError, StaleAttemptError
from discovery.core.model import BrokerAddress
from discovery.spark.fetch.arbiter import Arbiter
from discovery.spark.fetch.cache import give_back, take
from discovery.spark.fetch.endings import Endings
from discovery.spark.fetch.engine import client_factory
from discovery.spark.fetch.evidence import Evidence, begin_check
from discovery.spark.fetch.ranges import FetchRange, FetchSettings
from discovery.spark.fetch.task import Task

__all__ = ["Arbiter", "FetchRange", "FetchSettings", "fetch"]


def fetch(
    ranges: Sequence[FetchRange],
    brokers: Sequence[BrokerAddress],
    settings: FetchSettings,
    *,
    on_waiting: Callable[[str], None],
    arbiter: Arbiter | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read every range to its end, readable ones first.

    A range whose leader is gone is retried until it is back; meanwhile `on_waiting` gets one sentence
    whenever the set of waiting partitions changes and every 10 s, and the generator keeps its slot.

    Args:
        ranges: 0..n ranges of different partitions; an empty range yields nothing and needs no broker.
        brokers: 1..n vetted addresses of this moment; a changed list does not drop cached consumers.
        settings: See `FetchSettings`.
        on_waiting: Called on the caller's thread.
        arbiter: Settles where ranges end; None: nothing is ever cut.

    Yields:
        Batches with exactly `schema(settings.include_headers)`; rows of one partition in offset order.

    Raises:
        DataLossError: `fail_on_data_loss` and records of a range were deleted or truncated.
        GatewayError: authentication or TLS failure, or an answer that is not retriable.
        ArbiterError: the end of a range could not be settled.
        StaleAttemptError: records were handed out beyond an end that another attempt had settled.

    Runs: Spark's Python worker, once per task; blocks as long as a range cannot be read.
    """
    endings = Endings([r for r in ranges if r.start_offset < r.end_offset], arbiter)
    if not endings.to_read():
        return
    topic_ids = {r.topic_partition.topic: r.topic_id for r in endings.to_read() if r.topic_id is not None}
    consumer = take(settings, brokers, client_factory(settings.engine), topic_ids)
    try:
        evidence = Evidence(begin_check)
        task = Task(
            consumer, endings, settings, brokers=brokers, on_waiting=on_waiting, clock=SystemClock(), evidence=evidence
        )
        yield from task.batches()
    except (GeneratorExit, ArbiterError, StaleAttemptError):
        give_back(consumer)
        raise
    except BaseException:
        consumer.close()  # what it delivered last may not have been counted: its position is not to be trusted
        raise
    give_back(consumer)
