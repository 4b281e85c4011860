"""One call of `fetch`, whichever engine reads: what is still open, what the brokers said of it, and where it ends."""

import logging
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from discovery.core.clock import Clock
from discovery.core.errors import DataLossError, FailureKind, GatewayError
from discovery.core.model import BrokerAddress, TopicPartition
from discovery.spark.fetch.client import Piece
from discovery.spark.fetch.endings import Endings
from discovery.spark.fetch.evidence import Evidence
from discovery.spark.fetch.open_range import OpenRange
from discovery.spark.fetch.patience import ANSWER_SECONDS, Patience, stalled
from discovery.spark.fetch.ranges import FetchSettings
from discovery.spark.fetch.stream import Stream

_log = logging.getLogger("kafka_discovery.fetch")
_POLL_SECONDS = 0.05
_NEVER = 2**63


class Task:
    """Reads ranges to their ends over one stream. One thread; lives as long as the iterator."""

    def __init__(
        self,
        stream: Stream,
        endings: Endings,
        settings: FetchSettings,
        *,
        brokers: Sequence[BrokerAddress],
        on_waiting: Callable[[str], None],
        clock: Clock,
        evidence: Evidence,
    ) -> None:
        """Begin with everything open; no I/O."""
        self.stream = stream
        self.endings = endings
        self.settings = settings
        self.open: dict[TopicPartition, OpenRange] = {}
        self.handed_out: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._closed_at: dict[TopicPartition, int] = {}
        self._clock = clock
        self._evidence = evidence
        self._patience = Patience(stream, tuple(brokers), on_waiting, self._end_at_loss)
        self._still_since = 0.0
        """Since when nothing moves although we poll; the time in which Spark holds the iterator is not counted."""
        self._asked_at = 0.0
        """When the brokers were asked last who leads what is open."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what the ranges hold; returns when the end of each is settled.

        Runs: worker; see `discovery.spark.fetch.api.fetch`.
        """
        ranges = self.endings.to_read()
        self.stream.stood_still, self.stream.awaited = False, frozenset()
        self.stream.assign({r.topic_partition: r.start_offset for r in ranges})
        now = self._begin()
        for r in ranges:
            end = self.endings.ends[r]
            self.open[r.topic_partition] = OpenRange(
                range=r, end=end, position=r.start_offset, progress_at=now, leader_address=r.leader_address
            )
            self._ends[r.topic_partition] = end
        while self.open:
            piece = self._poll()
            if piece.batch is not None:
                yield piece.batch
                self._still_since = self._patience.heard_at = self._clock.monotonic()
            else:
                self._be_patient()
        self._settle()

    def _begin(self) -> float:
        now = self._clock.monotonic()
        self._still_since = now
        self._patience.begin(now)
        return now

    def _poll(self) -> Piece:
        piece = self.stream.read(self._ends, self._missing(), _POLL_SECONDS)
        now = self._clock.monotonic()
        if piece.heard:
            self._patience.heard_at = now
        self.handed_out.update(piece.delivered)
        for tp, position in piece.reached.items():
            self._advance(tp, position, now, caught_up=tp in piece.caught_up)
        for tp in piece.out_of_range:
            if tp in self.open:
                self._on_out_of_range(tp)
        for tp, code in piece.refused.items():
            if tp in self.open:
                self.open[tp].refuse(code, now)
        self._leave_behind(piece)
        return piece

    def _missing(self) -> int | None:
        """Count what is wanted, so that a stream seldom runs beyond the end of its range."""
        return sum(r.end - r.position for r in self.open.values() if r.position >= 0) or None

    def _advance(self, tp: TopicPartition, position: int, now: float, *, caught_up: bool) -> None:
        open_ = self.open.get(tp)
        if open_ is None:
            return
        if position > open_.position:
            open_.move(position, now)
            self._still_since = now
        open_.caught_up = caught_up
        if position >= open_.end:
            self._close(tp)

    def _close(self, tp: TopicPartition) -> None:
        self._closed_at[tp] = self._ends.pop(tp)
        del self.open[tp]

    def _leave_behind(self, piece: Piece) -> None:
        """Stop streams that ran beyond their range while others are open: they would be read for nothing."""
        if self.open:
            positions = self.stream.positions
            self.stream.unassign(
                [tp for tp in piece.reached if tp in positions and positions[tp] > self._closed_at.get(tp, _NEVER)]
            )

    # -- what is gone -------------------------------------------------------------------------------------------

    def _on_out_of_range(self, tp: TopicPartition) -> None:
        """The broker has no such offset: below its earliest (skip up to it), above its end (nothing to read)."""
        open_ = self.open[tp]
        found = self.stream.watermarks(tp, ANSWER_SECONDS)
        earliest, end = found or (open_.position, open_.end)
        if open_.position < 0:
            self.stream.seek(tp, open_.position)
        elif open_.position < earliest:
            lost = f"offsets {open_.position} to {min(earliest, open_.end) - 1} of {tp} were deleted"
            self._lose(tp, f"{lost} (it begins at {earliest} now)", resume_at=earliest)
        elif open_.position > end:
            self._lose(tp, f"{tp} ends at offset {end}, below the planned offset {open_.position}: it was truncated")
        else:
            self.stream.seek(tp, open_.position)

    def _lose(self, tp: TopicPartition, text: str, *, resume_at: int | None = None) -> None:
        """Records of a range are gone: fail, or go on behind them."""
        if self.settings.fail_on_data_loss:
            raise DataLossError(
                f'data loss: {text}; set failOnDataLoss to "false" to go on without these records, '
                "or start with a new checkpoint"
            )
        _log.warning("data loss accepted (failOnDataLoss=false): %s", text)
        if resume_at is None or resume_at >= self.open[tp].end:
            self._close(tp)
            return
        self.open[tp].position = resume_at
        self.stream.seek(tp, resume_at)

    def _end_at_loss(self, tp: TopicPartition, text: str) -> None:
        self._lose(tp, text)

    # -- who is waited for --------------------------------------------------------------------------------------

    def _be_patient(self) -> None:
        now = self._clock.monotonic()
        patience = self.endings.patience_seconds
        due_at = float("inf") if patience is None else self._still_since + patience
        # Whom a broker refuses, no cut will help: that failure is to be seen.
        may_settle = patience is not None and self.stream.failure is None and not self._is_refused()
        if may_settle and (now >= due_at or self._are_leaders_dead(now, due_at)):
            if now >= due_at:
                # A leader that is known to be slow explains the silence, and its answer may still be under way.
                self.stream.awaited = frozenset(tp for tp, r in self.open.items() if r.range.is_slow)
                self.stream.stood_still = not self.stream.awaited
            self._settle()
            return
        self._refuse_stall(now - self._still_since)
        self._patience.spend(self.open, now, until=due_at)

    def _are_leaders_dead(self, now: float, due_at: float) -> bool:
        """A host that refuses proves nothing once its partitions are led elsewhere, as before a broker is stopped."""
        leaders = [r.leader_address for r in self.open.values()]
        if not self._evidence.shows_dead(leaders, since=max(self._still_since, self._asked_at), now=now):
            return False
        present = self.stream.leaders(self.open, min(ANSWER_SECONDS, max(0.1, due_at - now)))
        self._asked_at = self._clock.monotonic()
        for tp, leader in present.items():
            self.open[tp].leader_address = leader or self.open[tp].leader_address
        return len(present) == len(self.open) and [r.leader_address for r in self.open.values()] == leaders

    def _refuse_stall(self, still_seconds: float) -> None:
        """End a wait that nobody is reported of, and that no cut ends."""
        if self.settings.stall_seconds is not None and still_seconds >= self.settings.stall_seconds:
            raise GatewayError(FailureKind.TRANSIENT, stalled(self.open, still_seconds))

    def _is_refused(self) -> bool:
        return any(r.refusal is not None and not r.refusal.is_passing() for r in self.open.values())

    def _settle(self) -> None:
        """Settle all ends at once; a range that stands still may be asked to end at its offset, or to wait."""
        standing = {open_.range: open_.position for open_ in self.open.values()}
        self.endings.settle(standing, self.handed_out)
        for tp, open_ in list(self.open.items()):
            open_.end = self._ends[tp] = self.endings.ends[open_.range]
            if open_.position >= open_.end:
                self._close(tp)
