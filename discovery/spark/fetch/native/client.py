"""A librdkafka consumer by its C API; hands over the same pieces as the plain one, several times faster."""

import ctypes
import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_int64
from typing import Any

from discovery.core.errors import ConfigError, FailureKind, GatewayError
from discovery.core.model import BrokerAddress, TopicName, TopicPartition
from discovery.spark.fetch.client import LINGER_SECONDS, OnError, Piece, TopicAnswer
from discovery.spark.fetch.heap import trim
from discovery.spark.fetch.native import layout as k
from discovery.spark.fetch.native.library import CONSUMER, EVENT_ERROR, EVENT_LOG, Library, Metadata, library
from discovery.spark.fetch.native.rows import Rows

_log = logging.getLogger("kafka_discovery.fetch")
_PARTITION_EOF, _AUTO_OFFSET_RESET, _OUT_OF_RANGE = -191, -140, 1
_LOG_EVERY_SECONDS = 10.0
_POINTER_BYTES = 8
MOST_ROWS = 100_000
"""Room for the pointers of one poll."""


class NativeClient:
    """See `Client`."""

    def __init__(
        self, client_options: Mapping[str, str], brokers: tuple[BrokerAddress, ...], *, headers: bool, on_error: OnError
    ) -> None:
        """See `ClientFactory`.

        Raises:
            NotUsableError: the library is not one we know.
        """
        self._lib: Library = library()
        # Before there is a client that would be left over if this failed.
        self._rows = Rows(self._lib, MOST_ROWS, headers=headers)
        options = {**client_options, "bootstrap.servers": ",".join(map(str, brokers)), "log.queue": "true"}
        try:
            # No Python callback is registered: librdkafka may not call into an interpreter that is going away.
            self._handle = self._lib.new(CONSUMER, options, EVENT_LOG | EVENT_ERROR)
        except ValueError as error:
            raise ConfigError(f"kafka options: {error}") from None
        self._on_error = on_error
        self._events = self._lib.queue_get_main(self._handle)
        self._queue = self._lib.queue_get_consumer(self._handle)
        self._lib.set_log_queue(self._handle, self._events)
        self._names: dict[str, bytes] = {}
        self._log_at = 0.0

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """See `Client.assign`."""
        self._change(self._lib.incremental_assign, starts.items())

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        """See `Client.unassign`."""
        self._change(self._lib.incremental_unassign, [(tp, 0) for tp in partitions])

    def _change(self, call: Any, partitions: Iterable[tuple[TopicPartition, int]]) -> None:
        lib = self._lib
        listed = lib.topic_partition_list_new(0)
        try:
            for tp, offset in partitions:
                lib.topic_partition_list_add(listed, tp.topic.encode(), tp.partition).contents.offset = offset
            error = call(self._handle, listed)
        finally:
            lib.topic_partition_list_destroy(listed)
        if error:
            text = lib.error_string(error).decode(errors="replace")
            lib.error_destroy(error)
            raise GatewayError(FailureKind.BUG, f"librdkafka refuses an assignment: {text}")

    def read(self, ends: Mapping[TopicPartition, int], max_rows: int, timeout_seconds: float) -> Piece:
        """See `Client.read`."""
        wanted, at = min(max_rows, MOST_ROWS), self._rows.pointers_at
        take = self._lib.consume_batch_queue
        count = take(self._queue, _milliseconds(timeout_seconds), at, 1)
        if count == 1 < wanted:
            count += max(take(self._queue, _milliseconds(LINGER_SECONDS), at + _POINTER_BYTES, wanted - 1), 0)
        if count < wanted:
            self._serve_events()
        if count <= 0:
            return Piece()
        try:
            return self._piece(count, ends)
        except BaseException:
            self._rows.give_back(count)
            raise

    def _piece(self, count: int, ends: Mapping[TopicPartition, int]) -> Piece:
        runs = self._rows.scan(count)
        sorted_ = _Sorted(self._lib, self._names)
        sorted_.sort(runs, ends)
        found = len(runs) - 1
        batch = self._rows.take(found, sorted_.rows, sorted_.topic_bytes)
        ends_out = zip(sorted_.partitions, runs[:found, k.DELIVERED].tolist(), strict=True)
        return Piece(
            batch=batch,
            delivered={tp: end for tp, end in ends_out if tp is not None and end},
            reached=sorted_.reached,
            caught_up=frozenset(sorted_.caught_up),
            out_of_range=tuple(sorted_.out_of_range),
            refused=sorted_.refused,
            heard=True,
        )

    def _serve_events(self) -> None:
        lib = self._lib
        while event := lib.queue_poll(self._events, 0):
            kind = lib.event_type(event)
            if kind == EVENT_ERROR:
                self._on_error(lib.event_error(event), _text(lib.event_error_string(event)))
            elif kind == EVENT_LOG:
                self._pass_on(event)
            lib.event_destroy(event)

    def _pass_on(self, event: int) -> None:
        """Log one line per 10 s; an outage writes dozens a second otherwise."""
        if time.monotonic() < self._log_at:
            return
        self._log_at = time.monotonic() + _LOG_EVERY_SECONDS
        facility, text, level = c_char_p(), c_char_p(), c_int()
        if self._lib.event_log(event, byref(facility), byref(text), byref(level)) == 0:
            _log.info("%s: %s", _text(facility.value), _text(text.value))

    def topic(self, topic: TopicName, timeout_seconds: float) -> TopicAnswer | None:
        """See `Client.topic`."""
        lib = self._lib
        handle = lib.topic_new(self._handle, topic.encode(), None)
        if not handle:
            return None
        found = POINTER(Metadata)()
        try:
            if lib.metadata(self._handle, 0, handle, byref(found), _milliseconds(timeout_seconds)):
                return None
            answer, brokers = found.contents.topics[0], found.contents.brokers[: found.contents.broker_cnt]
            hosts = {b.id: BrokerAddress(_text(b.host), b.port) for b in brokers}
            partitions = {p.id: hosts.get(p.leader) for p in answer.partitions[: answer.partition_cnt]}
            return TopicAnswer(partitions, answer.err, _text(lib.err2str(answer.err)) if answer.err else "")
        finally:
            if found:
                lib.metadata_destroy(found)
            lib.topic_destroy(handle)

    def watermarks(self, tp: TopicPartition, timeout_seconds: float) -> tuple[int, int] | None:
        """See `Client.watermarks`."""
        low, high, milliseconds = c_int64(-1), c_int64(-1), _milliseconds(timeout_seconds)
        failed = self._lib.query_watermark_offsets(
            self._handle, tp.topic.encode(), tp.partition, byref(low), byref(high), milliseconds
        )
        return None if failed or min(low.value, high.value) < 0 else (low.value, high.value)

    def known_end(self, tp: TopicPartition) -> int | None:
        """See `Client.known_end`."""
        low, high = c_int64(-1), c_int64(-1)
        failed = self._lib.get_watermark_offsets(self._handle, tp.topic.encode(), tp.partition, byref(low), byref(high))
        return None if failed or high.value < 0 else high.value

    def close(self) -> None:
        """See `Client.close`. Closing has no time limit of its own, so it happens on a thread that nobody awaits."""
        arguments = (self._lib, self._handle, self._queue, self._events)
        threading.Thread(target=_close, args=arguments, name="close-consumer", daemon=True).start()


def _close(lib: Library, handle: int, queue: int, events: int) -> None:
    lib.consumer_close(handle)
    lib.queue_destroy(queue)
    lib.queue_destroy(events)
    lib.destroy(handle)
    trim()


class _Sorted:
    """Runs of one poll in their order: how much of each is wanted, how far each stream came, and what was said."""

    def __init__(self, lib: Library, names: dict[str, bytes]) -> None:
        self.partitions: list[TopicPartition | None] = []
        self.reached: dict[TopicPartition, int] = {}
        self.caught_up: set[TopicPartition] = set()
        self.out_of_range: list[TopicPartition] = []
        self.refused: dict[TopicPartition, int] = {}
        self.rows = 0
        self.topic_bytes = 0
        self._lib = lib
        self._names = names
        self._topics: dict[int, tuple[TopicName, int, int]] = {}

    def sort(self, runs: Any, ends: Mapping[TopicPartition, int]) -> None:
        """Fill in, for every run, the offset at which what is wanted ends, and where the topic's name lies."""
        words = runs.tolist()
        firsts = [run[k.FIRST] for run in words]
        for number, run in enumerate(words[:-1]):
            topic, index, error = run[k.TOPIC], run[k.INDEX], run[k.ERROR]
            name, at, length = self._name(topic) if topic else (None, 0, 0)
            tp = TopicPartition(name, index) if name is not None else None
            self.partitions.append(tp)
            limit = _NOTHING
            if error:
                self._note(tp, error, run[k.LAST])
            elif tp is not None:
                self.reached[tp] = run[k.LAST] + 1
                self.caught_up.discard(tp)
                limit = ends.get(tp, _NOTHING)
            runs[number, k.LIMIT : k.NAME_LEN + 1] = (limit, at, length)
            if limit != _NOTHING:
                count = firsts[number + 1] - firsts[number]
                self.rows += count
                self.topic_bytes += count * length

    def _note(self, tp: TopicPartition | None, error: int, offset: int) -> None:
        if tp is None:
            return
        if error == _PARTITION_EOF:
            self.reached[tp] = offset
            self.caught_up.add(tp)
        elif error in {_AUTO_OFFSET_RESET, _OUT_OF_RANGE}:
            self.out_of_range.append(tp)
        else:
            self.refused[tp] = error

    def _name(self, handle: int) -> tuple[TopicName, int, int]:
        """Name a topic; handles are good for one poll, names stay where they are for the client's life."""
        known = self._topics.get(handle)
        if known is None:
            name = TopicName(self._lib.topic_name(handle).decode())
            encoded = self._names.setdefault(name, name.encode())
            at = ctypes.cast(ctypes.c_char_p(encoded), ctypes.c_void_p).value or 0
            known = self._topics[handle] = (name, at, len(encoded))
        return known


_NOTHING = -(2**63)


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def _text(found: bytes | None) -> str:
    return (found or b"").decode(errors="replace")
