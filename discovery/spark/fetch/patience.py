"""Nothing comes: say who is waited for, and look every few seconds for what waiting will not cure."""

from collections.abc import Callable, Mapping, Sequence

from discovery.core.model import BrokerAddress, TopicPartition
from discovery.spark.fetch.open_range import OpenRange
from discovery.spark.fetch.stream import Stream

ANSWER_SECONDS = 3.0
_WAITING_AFTER_SECONDS = 2.0
_REPEAT_SECONDS = 10.0
_CHECK_SECONDS = 2.0
_FAIL_AFTER_SECONDS = 3.0
"""How long one refused login may be one broker's mistake."""
_REBUILD_AFTER_SECONDS = 5.0
_OUTDATED_AFTER_SECONDS = 10.0
"""How long nothing comes of records that a leader says it has; twice as long after each new client."""
_SHOWN = 5

OnLoss = Callable[[TopicPartition, str], None]


class Patience:
    """What one task has spent on waiting. One thread."""

    def __init__(
        self, stream: Stream, brokers: tuple[BrokerAddress, ...], on_waiting: Callable[[str], None], on_loss: OnLoss
    ) -> None:
        """Begin rested; `brokers` is the task's list, which a client that knows nobody is rebuilt with."""
        self.heard_at = 0.0
        self._stream = stream
        self._brokers = brokers
        self._on_waiting = on_waiting
        self._on_loss = on_loss
        self._checked_at = 0.0
        self._said: tuple[TopicPartition, ...] = ()
        self._said_at = 0.0
        self._outdated_after = _OUTDATED_AFTER_SECONDS
        self._asked = -1

    def begin(self, now: float) -> None:
        """Start the clocks."""
        self.heard_at = self._checked_at = now

    def spend(self, open_: Mapping[TopicPartition, OpenRange], now: float, *, until: float) -> None:
        """Spend one moment of waiting on ranges that do not move.

        Raises:
            GatewayError: the brokers have refused us, or one of the partitions, for a while.

        Runs: worker; blocks only every 2 s, and not beyond `until` by more than 0.1 s for each question.
        """
        waiting = sorted(tp for tp, r in open_.items() if now - r.progress_at >= _WAITING_AFTER_SECONDS)
        if not waiting:
            return
        failure = self._stream.failure
        if failure is not None and now - self.heard_at >= _FAIL_AFTER_SECONDS:
            raise failure
        self._say([(tp, open_[tp]) for tp in waiting], now)
        if now - self._checked_at >= _CHECK_SECONDS:
            self._checked_at = now
            seconds = min(ANSWER_SECONDS, max(0.1, until - now))
            self._check(waiting, open_, now, seconds)
            if self._is_lost(now) or self._is_outdated(waiting, open_, now, seconds):
                self._stream.rebuild(self._brokers)
                self.heard_at = now

    def _say(self, waiting: Sequence[tuple[TopicPartition, OpenRange]], now: float) -> None:
        names = tuple(tp for tp, _ in waiting)
        if names == self._said and now - self._said_at < _REPEAT_SECONDS:
            return
        self._said, self._said_at = names, now
        self._on_waiting(f"waiting for the leader of {_listed(waiting)}")

    def _check(
        self, waiting: Sequence[TopicPartition], open_: Mapping[TopicPartition, OpenRange], now: float, seconds: float
    ) -> None:
        for tp in waiting:
            self._check_refusal(tp, open_[tp], now)
        at_log_end = [tp for tp in waiting if open_[tp].caught_up]
        for tp in at_log_end:
            self._check_log_end(tp, open_[tp], now, seconds)
        first = next((tp for tp in waiting if tp not in at_log_end), None)
        if first is not None:
            # One question a round: metadata comes from any broker, so a dead leader does not delay it.
            self._check_existence(first, open_[first], now, seconds)

    def _check_refusal(self, tp: TopicPartition, open_: OpenRange, now: float) -> None:
        """A refusal is reported once, so it is provoked again: what is over by then brings records instead."""
        refusal = open_.refusal
        if refusal is None or refusal.is_passing():
            return
        if refusal.is_lasting():
            raise refusal.error(tp)
        if now - refusal.at >= _CHECK_SECONDS:
            self._stream.seek(tp, open_.position)

    def _check_log_end(self, tp: TopicPartition, open_: OpenRange, now: float, seconds: float) -> None:
        """At the end of the log before the end of the range: a new leader may catch up, a truncated log never does."""
        found = self._stream.watermarks(tp, seconds)
        if open_.is_lasting(now, bad=found is not None and found[1] < open_.end) and found:
            self._on_loss(tp, f"{tp} ends at offset {found[1]}, below the planned end {open_.end}: it was truncated")

    def _check_existence(self, tp: TopicPartition, open_: OpenRange, now: float, seconds: float) -> None:
        """A broker that has just started may not know the topic yet, so one denial is not enough."""
        if open_.is_lasting(now, bad=self._stream.exists(tp, seconds) is False):
            self._on_loss(tp, f"{tp} does not exist any more; it was read up to offset {open_.position}")

    def _is_lost(self, now: float) -> bool:
        """The client knows nobody who answers."""
        silent = now - self.heard_at
        other_list = self._stream.brokers != self._brokers
        return silent >= _REBUILD_AFTER_SECONDS and (
            other_list or (self._stream.all_down and silent >= _REPEAT_SECONDS)
        )

    def _is_outdated(
        self, waiting: Sequence[TopicPartition], open_: Mapping[TopicPartition, OpenRange], now: float, seconds: float
    ) -> bool:
        """The leader answers and has records, and the client fetches from another broker.

        librdkafka takes metadata with an earlier leader epoch for outdated: where it heard of a topic that was deleted
        from a broker that lags behind, the one that was created in its place has no leader for it, for ever.
        """
        behind = [tp for tp in waiting if tp in open_ and not open_[tp].caught_up]
        if not behind or now - self.heard_at < self._outdated_after:
            return False
        # One question a round, each about the next partition: it may be the leader of another one that hears nothing.
        self._asked += 1
        asked = behind[self._asked % len(behind)]
        found = self._stream.watermarks(asked, seconds)
        if found is None or found[1] <= max(found[0], open_[asked].position):
            return False
        self._outdated_after *= 2  # for a leader that takes longer than this for each answer
        return True


def stalled(open_: Mapping[TopicPartition, OpenRange], seconds: float) -> str:
    """Say in one line why a task gives up.

    Runs: anywhere (pure).
    """
    return (
        f"stallTimeout: no record came for {seconds:.0f} s from the leader of {_listed(sorted(open_.items()))}; see "
        "that this executor reaches it, raise stallTimeout, or set sourceId, with which a batch ends without it"
    )


def _listed(waiting: Sequence[tuple[TopicPartition, OpenRange]]) -> str:
    at = ", ".join(f"{tp} at offset {r.position} of {r.end}{_who(r)}" for tp, r in waiting[:_SHOWN])
    return at + (f" and {len(waiting) - _SHOWN} more" if len(waiting) > _SHOWN else "")


def _who(open_: OpenRange) -> str:
    leader = open_.range.leader_address if open_.range.leader is None else open_.range.leader
    said = [] if leader is None else [f"broker {leader}"]
    said += [] if open_.refusal is None else [open_.refusal.text]
    return f" ({', '.join(said)})" if said else ""
