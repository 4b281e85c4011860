"""Markers and control record of one sink, read from and written to Kafka."""

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from discovery.core.errors import DiscoveryError, TransactionTimeoutError
from discovery.kafka.kept import last_values
from discovery.kafka.transactions import GroupNotes, Note, Transaction
from discovery.spark.sink.marker import Control, Marker, beginning
from discovery.spark.sink.options import SinkOptions, control_group, marker_group
from discovery.spark.sink.plan import SinkPlan

_ANSWER_SECONDS = 30.0
_CONTROL_PARTITION = 0
_MOST_KEPT = 4
_BATCH_BYTES = 1_000_000
_ANY_BYTES = "1000000000"
"""What a record may have is the topic's matter, and is checked before the client sees it."""
_kept: dict[object, "SinkLedger"] = {}
"""One per sink in a process of Spark's: its connections stay open over batches."""


class SinkLedger:
    """One thread at a time; the constructor connects to nobody."""

    def __init__(self, plan: SinkPlan, *, stable: bool = True) -> None:
        """Name the sink.

        Args:
            plan: How it is reached.
            stable: Wait for transactions that are open; False only to look, never to decide.
        """
        options = plan.options
        self._options, self.access = options, plan.access
        self._markers = GroupNotes(
            self.access, group=marker_group(options.sink_id), topic=options.marker_topic, stable=stable
        )
        self._glanced = GroupNotes(
            self.access, group=marker_group(options.sink_id), topic=options.marker_topic, stable=False
        )
        self._control = GroupNotes(self.access, group=control_group(options.sink_id), topic=options.marker_topic)

    def connect(self) -> "SinkLedger":
        """Begin to connect for everything at once; returns at once.

        Raises:
            ConfigError: librdkafka refuses a property.
        """
        for notes in (self._markers, self._control):
            notes.connect()
        return self

    def markers(self, lanes: Collection[int], *, timeout_seconds: float) -> Mapping[int, Marker]:
        """Return the markers of these lanes; a lane without one is absent.

        Raises:
            StateError: what stands there is no marker.
            TransactionError: no stable answer in time.

        Runs: workers and driver; blocks <= timeout_seconds.
        """
        return self._decoded(self._markers.read(lanes, timeout_seconds=timeout_seconds))

    def glance(self, lane: int, *, timeout_seconds: float) -> Marker | None:
        """Return a lane's marker as it stands, without waiting for a transaction that only a fence would end.

        Raises:
            StateError: what stands there is no marker.
            TransactionError: no answer in time.

        Runs: workers; blocks <= timeout_seconds.
        """
        return self._decoded(self._glanced.read([lane], timeout_seconds=timeout_seconds)).get(lane)

    def _decoded(self, found: Mapping[int, Note]) -> Mapping[int, Marker]:
        where = f"sinkId {self._options.sink_id!r}: group {self._options.group}, {self._options.marker_topic}"
        return {lane: Marker.decode(note.text, where=f"{where}-{lane}") for lane, note in found.items()}

    def control(self, *, timeout_seconds: float) -> Control | None:
        """Return the control record; None: there is none. Raises like `markers`."""
        found = self._control.read([_CONTROL_PARTITION], timeout_seconds=timeout_seconds).get(_CONTROL_PARTITION)
        where = f"sinkId {self._options.sink_id!r}: group {self._options.control_group}"
        return None if found is None else Control.decode(found.text, where=where)

    def write_control(self, control: Control, *, timeout_seconds: float) -> None:
        """Write the control record.

        Raises:
            TransactionError: not taken, or nobody knows.

        Runs: driver; blocks <= timeout_seconds.
        """
        note = Note(control.offset, control.encode())
        self._control.write(_CONTROL_PARTITION, note, timeout_seconds=timeout_seconds)

    def attach(self, transaction: Transaction, lane: int, marker: Marker, deadline: float) -> None:
        """Make a marker part of a transaction: as an offset, to be read at once, and as a record, which never expires.

        Raises:
            TransactionError: not taken.

        Runs: workers; blocks until `deadline` at most.
        """
        note = Note(marker.offset, marker.encode())
        if self._options.is_recorded:
            self.record(transaction, lane, self._options.sink_id, note.text, deadline)
        transaction.attach(self._options.marker_topic, lane, note, self._markers.metadata, deadline)

    def record(self, transaction: Transaction, lane: int, key: str, text: str | None, deadline: float) -> None:
        """Make a record of the marker topic part of a transaction, None to end what is there under its key.

        Raises:
            TransactionError: no room before `deadline`.

        Runs: workers and driver; as long as `Transaction.produce`.
        """
        transaction.produce(
            self._options.marker_topic,
            partition=lane,
            key=key.encode(),
            value=None if text is None else text.encode(),
            headers=None,
            deadline=deadline,
        )

    def recorded(self, *, timeout_seconds: float) -> Mapping[int, Marker]:
        """Return the last marker of each lane as it was recorded, however long ago.

        Raises:
            StateError: what stands there is no marker.
            TransactionError: not read to the end in time.

        Runs: driver; reads a topic, <= timeout_seconds.
        """
        options = self._options
        where = f"sinkId {options.sink_id!r}: record in {options.marker_topic}"
        return {
            lane: Marker.decode(text, where=f"{where}-{lane}")
            for (lane, key), text in self.records(timeout_seconds=timeout_seconds).items()
            if key == options.sink_id
        }

    def records(self, *, timeout_seconds: float, committed: bool = True) -> Mapping[tuple[int, str], str]:
        """Return all that is recorded of this sink, by partition and key: under its id, and under its id and a slash.

        Args:
            timeout_seconds: Bounds it.
            committed: Wait for open transactions; False only to see whether there is anything.

        Raises:
            TransactionError: not read to the end in time.

        Runs: driver; reads a topic, <= timeout_seconds.
        """
        sink_id = self._options.sink_id
        return last_values(
            self.access,
            self._options.marker_topic,
            lambda key: key == sink_id or key.startswith(f"{sink_id}/"),
            group=self._options.group,
            timeout_seconds=timeout_seconds,
            committed=committed,
        )


@contextmanager
def kept_ledger(plan: SinkPlan) -> Iterator[SinkLedger]:
    """Lend the ledger of this process, made at its first use; after a failure the next attempt begins with a fresh one.

    Few are kept: a process that serves other queries now gives the oldest connection up. The vetted brokers are not
    part of the key, since a connected client knows better than a list; the configured ones are: they say which cluster.

    Runs: workers, and the process that confirms batches; connects in the background.
    """
    options = plan.options
    key = (options.sink_id, options.marker_topic, options.bootstrap, options.cluster_id)
    if key in _kept and _kept[key].access.connection != plan.access.connection:
        del _kept[key]  # a renewed key, authority or password
    if key not in _kept:
        while len(_kept) >= _MOST_KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = SinkLedger(plan).connect()
    try:
        yield _kept[key]
    except DiscoveryError:
        _kept.clear()
        raise


def transaction_of(plan: SinkPlan, lane: int) -> Transaction:
    """Return a new producer for one lane.

    Raises:
        ConfigError: librdkafka refuses a property.

    Runs: workers and operators' commands; connects in the background.
    """
    options = plan.options
    return Transaction(
        plan.access,
        transactional_id=options.transactional_id(lane),
        topic=options.topic or options.marker_topic,
        timeout_seconds=options.transaction_timeout_seconds,
        options={"message.max.bytes": _ANY_BYTES, "batch.size": str(batch_bytes(plan)), **options.producer},
    )


def recording(plan: SinkPlan) -> Transaction:
    """Return a new producer for what a driver or an operator writes to the ledger, under an id that no lane has.

    Raises:
        ConfigError: librdkafka refuses a property.

    Runs: driver and operators' commands; connects in the background.
    """
    options = plan.options
    return Transaction(
        plan.access,
        transactional_id=f"{options.sink_id}-preflight",
        topic=options.marker_topic,
        timeout_seconds=options.transaction_timeout_seconds,
        options=options.producer,
    )


def fence_lanes(plan: SinkPlan, lanes: int) -> list[Transaction]:
    """End the open transactions of all lanes, and keep their holders from committing.

    Returns:
        What fenced them, in order: a transaction of it fails once somebody else has begun in that lane.

    Raises:
        TransactionError: a lane did not answer in time.

    Runs: driver and operators' commands; blocks for about 0.1-0.6 s per lane.
    """
    fences = [transaction_of(plan, lane) for lane in range(lanes)]
    for fence in fences:
        fence.fence(until(_ANSWER_SECONDS))
    return fences


def commit_marker(
    ledger: SinkLedger,
    fence: Transaction,
    lane: int,
    marker: Marker,
    words: Mapping[str, str | None] = MappingProxyType({}),
) -> None:
    """Leave a marker by a transaction of its own: whoever has begun in that lane since the fence has fenced it.

    Args:
        ledger: The sink's.
        fence: What fenced the lane; used once.
        lane: Its number.
        marker: What it says.
        words: Records that are committed with it, by key; None ends what is there.

    Raises:
        TransactionError: somebody has, or no answer in time.

    Runs: driver; blocks for about 10 ms, 30 s at most.
    """
    deadline = until(_ANSWER_SECONDS)
    fence.begin()
    ledger.attach(fence, lane, marker, deadline)
    for key, text in words.items():
        ledger.record(fence, _CONTROL_PARTITION, key, text, deadline)
    fence.commit(deadline)


def half_key(sink_id: str) -> str:
    """Return the key of the record that a lane's marker may not be a record yet.

    Runs: anywhere (pure).
    """
    return f"{sink_id}/half"


def begin_lane(ledger: SinkLedger, fence: Transaction, lane: int, control: Control, *ended: str) -> None:
    """Leave in a fenced lane the marker of a generation that begins, unless it has one of that generation.

    Args:
        ledger: The sink's.
        fence: What fenced the lane; used once.
        lane: Its number.
        control: Of the generation that begins.
        ended: Keys of records that end with the generation before.

    Raises:
        TransactionError: somebody has begun in the lane since it was fenced, or no answer in time.

    Runs: driver and operators' commands; blocks for about 10 ms.
    """
    marker = ledger.markers([lane], timeout_seconds=_ANSWER_SECONDS).get(lane)
    if marker is None or marker.generation < control.generation:
        commit_marker(ledger, fence, lane, beginning(control), dict.fromkeys(ended))


def batch_bytes(plan: SinkPlan) -> int:
    """Return what the client gathers before it sends: it has to fit into the smallest limit of the plan's topics.

    librdkafka does not split a batch.

    Runs: anywhere (pure).
    """
    return min((*plan.largest_bytes.values(), _BATCH_BYTES))


def until(seconds: float) -> float:
    """Return a deadline.

    Runs: anywhere.
    """
    return time.monotonic() + seconds


@contextmanager
def naming_limit(options: SinkOptions) -> Iterator[None]:
    """Name the option that a task's deadlines are made of in the error of one that has passed.

    Runs: a worker, around a task.
    """
    try:
        yield
    except TransactionTimeoutError as error:
        raise TransactionTimeoutError(
            f"{error}; transactionTimeout is {options.transaction_timeout_seconds:g} s: raise it, or find out why the "
            "brokers are slow"
        ) from error
