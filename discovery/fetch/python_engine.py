"""The plain engine: `Consumer.consume` and Arrow, no compiled code. Correct first; the fast twin must equal it."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError

from discovery.core.errors import DataLossError
from discovery.core.model import BrokerAddress, TopicPartition
from discovery.fetch.arbiter import Arbiter
from discovery.fetch.columns import to_batch
from discovery.fetch.consumers import CachedConsumer, give_back, partition_of, take
from discovery.fetch.ranges import FetchRange, FetchSettings

_log = logging.getLogger("kafka_discovery.fetch")

_POLL_SECONDS = 0.05
_FIRST_POLL_ROWS = 500
_BATCH_BYTES = 16 << 20
"""Messages of one poll, decompressed, held at once; the number of messages per poll follows from their size."""
_WAITING_AFTER_SECONDS = 2.0
_REPEAT_SECONDS = 10.0
_CHECK_SECONDS = 2.0
_FAIL_AFTER_SECONDS = 3.0
"""How long one refused login may be one broker's mistake."""
_REBUILD_AFTER_SECONDS = 5.0
_LASTING_SECONDS = 5.0
_ANSWER_SECONDS = 3.0


def fetch_with_python(
    ranges: Sequence[FetchRange],
    brokers: Sequence[BrokerAddress],
    settings: FetchSettings,
    *,
    on_waiting: Callable[[str], None],
    arbiter: Arbiter | None = None,  # noqa: ARG001 - not honoured yet
) -> Iterator[pa.RecordBatch]:
    """Read every range to its end; the contract is `discovery.fetch.api.fetch`.

    Runs: Spark's Python worker, once per task; blocks as long as a range cannot be read.
    """
    wanted = [r for r in ranges if r.start_offset < r.end_offset]
    if not wanted:
        return
    consumer = take(settings.client_options, brokers)
    try:
        yield from _Task(consumer, wanted, tuple(brokers), settings, on_waiting).batches()
    except GeneratorExit:
        give_back(consumer)
        raise
    except BaseException:
        consumer.close()  # what it delivered last may not have been counted: its position is not to be trusted
        raise
    give_back(consumer)


@dataclass(slots=True)
class _Open:
    """A range that is not at its end."""

    end: int
    position: int
    progress_at: float
    caught_up: bool = False
    """The broker said: no more records for now, although the end is not reached."""
    bad_since: float | None = None
    """Since when the cluster says that the rest of it does not exist."""


@dataclass(slots=True)
class _Task:
    """One call of `fetch`: what is still open, and the patience spent on it."""

    consumer: CachedConsumer
    ranges: Sequence[FetchRange]
    brokers: tuple[BrokerAddress, ...]
    settings: FetchSettings
    on_waiting: Callable[[str], None]
    open: dict[tuple[str, int], _Open] = field(default_factory=dict)
    events_at: float = 0.0
    checked_at: float = 0.0
    said: tuple[str, ...] = ()
    said_at: float = 0.0
    poll_rows: int = _FIRST_POLL_ROWS

    def batches(self) -> Iterator[pa.RecordBatch]:
        now = time.monotonic()
        self.events_at = self.checked_at = now
        for r in self.ranges:
            tp = r.topic_partition
            self.open[tp.topic, tp.partition] = _Open(r.end_offset, r.start_offset, now)
        self.consumer.aim({r.topic_partition: r.start_offset for r in self.ranges})
        while self.open:
            rows = self._poll()
            if rows:
                yield to_batch(rows, include_headers=self.settings.include_headers)
            else:
                self._be_patient()

    def _poll(self) -> list[Any]:
        # Never more than is still missing, so that the stream seldom runs beyond the end of its range.
        missing = sum(r.end - r.position for r in self.open.values() if r.position >= 0) or self.poll_rows
        messages = self.consumer.consume(min(self.poll_rows, self.settings.batch_rows, missing), _POLL_SECONDS)
        if messages:
            self.events_at = time.monotonic()
        rows = self._sort_out(messages)
        if rows:
            self._adapt(rows)
        return rows

    def _sort_out(self, messages: Sequence[Any]) -> list[Any]:
        """Keep the rows of open ranges; note how far each stream came, and act on events."""
        rows, last = [], dict[tuple[str, int], int]()
        open_ranges = self.open
        for message in messages:
            if message.error() is not None:
                self._settle(last)
                last = {}
                self._on_event(message)
                continue
            key = (message.topic(), message.partition())
            offset = message.offset()
            last[key] = offset
            range_ = open_ranges.get(key)
            if range_ is not None and offset < range_.end:
                rows.append(message)
        self._settle(last)
        return rows

    def _settle(self, last: dict[tuple[str, int], int]) -> None:
        for key, offset in last.items():
            self._advance(key, offset + 1)

    def _advance(self, key: tuple[str, int], position: int) -> None:
        tp = TopicPartition(*key)  # type: ignore[arg-type]
        if tp in self.consumer.positions:
            self.consumer.positions[tp] = position
        range_ = self.open.get(key)
        if range_ is None:
            return
        if position > range_.position:
            range_.position, range_.progress_at = position, self.events_at
            range_.caught_up, range_.bad_since = False, None
        if position >= range_.end:
            del self.open[key]

    def _adapt(self, rows: Sequence[Any]) -> None:
        sample = rows[:: max(len(rows) // 50, 1)]
        size = sum(len(m.value() or b"") + len(m.key() or b"") + 64 for m in sample) / len(sample)
        self.poll_rows = max(1, min(self.settings.batch_rows, int(_BATCH_BYTES / size)))

    def _on_event(self, event: Any) -> None:
        code = event.error().code()
        if event.topic() is None:
            return
        tp = partition_of(event)
        key = (event.topic(), event.partition())
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - confluent-kafka's public name
            self._advance(key, event.offset())
            if key in self.open:
                self.open[key].caught_up = True
        elif key not in self.open:
            return
        elif code == KafkaError._AUTO_OFFSET_RESET or code == KafkaError.OFFSET_OUT_OF_RANGE:  # noqa: SLF001, PLR1714
            self._on_out_of_range(tp, key)

    def _on_out_of_range(self, tp: TopicPartition, key: tuple[str, int]) -> None:
        """The broker has no such offset: below its earliest (skip up to it), above its end (nothing to read)."""
        range_ = self.open[key]
        found = self.consumer.watermarks(tp, _ANSWER_SECONDS)
        earliest, end = found or (range_.position, range_.end)
        if range_.position < 0:
            self._aim_again(tp, range_.position)
        elif range_.position < earliest:
            lost = f"offsets {range_.position} to {min(earliest, range_.end) - 1} of {tp} were deleted"
            self._lose(key, f"{lost} (it begins at {earliest} now)", resume_at=earliest)
        elif range_.position > end:
            self._lose(key, f"{tp} ends at offset {end}, below the planned offset {range_.position}: it was truncated")
        else:
            self._aim_again(tp, range_.position)

    def _aim_again(self, tp: TopicPartition, offset: int) -> None:
        # An equal position would be taken for "stands there already", but a failed partition stands still.
        self.consumer.positions[tp] = -1
        self.consumer.move(tp, offset)

    def _lose(self, key: tuple[str, int], text: str, *, resume_at: int | None = None) -> None:
        """Records of a range are gone: fail, or go on behind them."""
        if self.settings.fail_on_data_loss:
            raise DataLossError(
                f'data loss: {text}; set failOnDataLoss to "false" to go on without these records, '
                "or start with a new checkpoint"
            )
        _log.warning("data loss accepted (failOnDataLoss=false): %s", text)
        range_ = self.open[key]
        if resume_at is None or resume_at >= range_.end:
            del self.open[key]
            return
        range_.position = resume_at
        self._aim_again(TopicPartition(*key), resume_at)  # type: ignore[arg-type]

    def _be_patient(self) -> None:
        """Nothing came: say who is waited for, and every few seconds look for what waiting will not cure."""
        now = time.monotonic()
        waiting = sorted(key for key, r in self.open.items() if now - r.progress_at >= _WAITING_AFTER_SECONDS)
        if not waiting:
            return
        failure = self.consumer.failure
        if failure is not None and now - self.events_at >= _FAIL_AFTER_SECONDS:
            raise failure
        self._say(waiting, now)
        if now - self.checked_at >= _CHECK_SECONDS:
            self.checked_at = now
            self._check(waiting, now)

    def _say(self, waiting: Sequence[tuple[str, int]], now: float) -> None:
        names = tuple(f"{topic}-{partition}" for topic, partition in waiting)
        if names == self.said and now - self.said_at < _REPEAT_SECONDS:
            return
        self.said, self.said_at = names, now
        at = ", ".join(f"{t}-{p} at offset {self.open[t, p].position} of {self.open[t, p].end}" for t, p in waiting[:5])
        more = f" and {len(waiting) - 5} more" if len(waiting) > 5 else ""  # noqa: PLR2004
        self.on_waiting(f"waiting for the leader of {at}{more}")

    def _check(self, waiting: Sequence[tuple[str, int]], now: float) -> None:
        for key in waiting:
            if self.open[key].caught_up:
                self._check_log_end(TopicPartition(*key), key, now)  # type: ignore[arg-type]
        first = next((key for key in waiting if key in self.open and not self.open[key].caught_up), None)
        if first is not None:
            # One question a round: metadata comes from any broker, so a dead leader does not delay it.
            self._check_existence(TopicPartition(*first), first, now)  # type: ignore[arg-type]
        silent = now - self.events_at
        other_list = self.consumer.brokers != self.brokers
        if silent >= _REBUILD_AFTER_SECONDS and (other_list or (self.consumer.all_down and silent >= _REPEAT_SECONDS)):
            self.consumer.rebuild(self.brokers)
            self.events_at = now

    def _check_log_end(self, tp: TopicPartition, key: tuple[str, int], now: float) -> None:
        """At the end of the log before the end of the range: a new leader may catch up, a truncated log never does."""
        found = self.consumer.watermarks(tp, _ANSWER_SECONDS)
        if self._is_lasting(key, now, bad=found is not None and found[1] < self.open[key].end) and found:
            end = self.open[key].end
            self._lose(key, f"{tp} ends at offset {found[1]}, below the planned end {end}: it was truncated")

    def _check_existence(self, tp: TopicPartition, key: tuple[str, int], now: float) -> None:
        """A broker that has just started may not know the topic yet, so one denial is not enough."""
        if self._is_lasting(key, now, bad=self.consumer.exists(tp, _ANSWER_SECONDS) is False):
            self._lose(key, f"{tp} does not exist any more; it was read up to offset {self.open[key].position}")

    def _is_lasting(self, key: tuple[str, int], now: float, *, bad: bool) -> bool:
        range_ = self.open[key]
        if not bad:
            range_.bad_since = None
            return False
        if range_.bad_since is None:
            range_.bad_since = now
        return now - range_.bad_since >= _LASTING_SECONDS
