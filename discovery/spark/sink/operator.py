"""What an operator may ask of a sink, and do to it, from outside of its query."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from discovery.core.errors import StateError, TransactionError, TransactionRefusedError
from discovery.kafka.topics import TopicAdmin
from discovery.kafka.transactions import Transaction
from discovery.spark.sink.ledger import SinkLedger, begin_lane, fence_lanes, half_key, recording, transaction_of, until
from discovery.spark.sink.marker import Control, Marker, taken_over
from discovery.spark.sink.offsets import without_target
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.preflight import forget

__all__ = ["LaneStatus", "SinkStatus", "abort_lingering", "look", "reset", "takeover"]
_STABLE_SECONDS = 1.0
"""How long a transaction that is just ending may take before it is called open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatus:
    """One lane as it stands in Kafka."""

    lane: int
    marker: Marker | None
    open_transaction: bool
    """Somebody began to commit and did not end: it hides later records from readers until it times out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatus:
    """A sink as it stands in Kafka."""

    control: Control | None
    lanes: tuple[LaneStatus, ...]

    @property
    def begun_batch(self) -> int | None:
        """A batch that some lanes have committed and the driver has not confirmed; None: there is none."""
        last = -1 if self.control is None else self.control.batch_id
        generation = 0 if self.control is None else self.control.generation
        found = [s.marker.batch_id for s in self.lanes if s.marker and s.marker.generation >= generation]
        return max((batch for batch in found if batch > last), default=None)


def look(plan: SinkPlan, *, timeout_seconds: float) -> SinkStatus:
    """Read a sink's control record and all its markers.

    Raises:
        StateError: there is no sink of that name.
        TransactionError: Kafka does not answer in time.

    Runs: an operator's command; blocks <= 4 x timeout_seconds, and a second for each open transaction.
    """
    topic = plan.options.marker_topic
    shape = TopicAdmin(plan.access).shape(topic, timeout_seconds=timeout_seconds)
    if shape is None:
        raise _none(plan, f"topic {topic} does not exist")
    ledger = SinkLedger(plan)
    control = ledger.control(timeout_seconds=timeout_seconds)
    lanes = range(shape.partitions if control is None else min(control.known_lanes, shape.partitions))
    markers = SinkLedger(plan, stable=False).markers(lanes, timeout_seconds=timeout_seconds)
    shown = {*markers} if control is None else {*lanes}
    if not shown:
        # Of a sink whose offsets have all expired these are left, and its next start puts them back.
        shown = {lane for lane, _ in ledger.records(timeout_seconds=timeout_seconds, committed=False)}
    if not shown:
        raise _none(plan, f"group {plan.options.control_group} has no control record, no lane a marker, and no record")
    unstable = _unstable(ledger, lanes)
    return SinkStatus(
        control=control,
        lanes=tuple(
            LaneStatus(lane=lane, marker=markers.get(lane), open_transaction=lane in unstable)
            for lane in sorted(shown | unstable)
        ),
    )


def _none(plan: SinkPlan, why: str) -> StateError:
    return StateError(f"--sink: no sink {plan.options.sink_id!r}: {why}; check the name and the cluster")


def _unstable(ledger: SinkLedger, lanes: range) -> set[int]:
    try:
        ledger.markers(lanes, timeout_seconds=_STABLE_SECONDS)
    except TransactionError:
        return {lane for lane in lanes if not _is_stable(ledger, lane)}
    return set()


def _is_stable(ledger: SinkLedger, lane: int) -> bool:
    try:
        ledger.markers([lane], timeout_seconds=_STABLE_SECONDS)
    except TransactionError:
        return False
    return True


def abort_lingering(plan: SinkPlan, *, lanes: int) -> None:
    """End the open transactions of all lanes, and whatever a forgotten worker might still commit.

    A running query loses the attempts of this moment and repeats them.

    Raises:
        ConfigError, TransactionError: a lane's id could not be had.

    Runs: an operator's command; blocks for 0.1-0.6 s per lane.
    """
    fence_lanes(plan, lanes)


def takeover(plan: SinkPlan, *, query_id: str, timeout_seconds: float) -> Control:
    """Give the sink to another query, or to the same one with another checkpoint: what was written no longer counts.

    First the record, then the fences: an attempt that was let in before loses its transaction, one that comes later
    reads the new record. Then a marker in each lane: nothing late, and no retention, brings the old generation back.
    Last, what is recorded of a copy names no target any more: it may go on into another one. That copy must have ended.

    Returns:
        The control record of the new generation.

    Raises:
        StateError: there is no such sink.
        TransactionError: it is not known whether it was done; do it again, before a query starts: what that one has
            written meanwhile would no longer count either.

    Runs: an operator's command; blocks <= 9 x timeout_seconds and 0.6 s per lane.
    """
    before = look(plan, timeout_seconds=timeout_seconds)
    ledger = SinkLedger(plan)
    recorded = ledger.records(timeout_seconds=timeout_seconds, committed=False)
    generations = [s.marker.generation for s in before.lanes if s.marker] + [
        Marker.decode(text, where=f"record {key} in {plan.options.marker_topic}-{lane}").generation
        for (lane, key), text in recorded.items()
        if key == plan.options.sink_id
    ]
    lanes = max([s.lane + 1 for s in before.lanes], default=1)
    control = before.control or Control(
        query_id="", batch_id=-1, lanes=lanes, generation=max(generations, default=0), wall_seconds=0
    )
    after = taken_over(control, generations, query_id=query_id, wall=int(time.time()))
    ledger.write_control(after, timeout_seconds=timeout_seconds)
    fences = fence_lanes(plan, after.lanes)
    deadline = until(timeout_seconds)
    for lane, fence in enumerate(fences):
        _begin(plan, ledger, fence, lane, after, deadline=deadline)
    forget(plan.options)
    if any(without_target(key, text) != text for (_, key), text in recorded.items()):
        _record_again(plan, without_target, timeout_seconds, committed=True)
    return after


def _begin(
    plan: SinkPlan, ledger: SinkLedger, fence: Transaction, lane: int, control: Control, *, deadline: float
) -> None:
    """Whoever has fenced us was let in by the new record: its marker will do, or the next fence ends its attempt."""
    while True:
        try:
            return begin_lane(ledger, fence, lane, control, half_key(plan.options.sink_id))
        except TransactionRefusedError:
            raise
        except TransactionError as error:
            again = f"{error}; do the takeover again, and start no query before it has ended"
            if time.monotonic() >= deadline:
                raise TransactionError(again) from error
            fence = transaction_of(plan, lane)
            try:
                fence.fence(deadline)
            except TransactionError:
                raise TransactionError(again) from error


def reset(plan: SinkPlan, *, timeout_seconds: float) -> None:
    """Forget a sink: its name is free as if it had never been used. Records stay where they are.

    Raises:
        StateError: there is no such sink.
        TransactionError: it is not done; do it again.

    Runs: an operator's command; blocks like `takeover`.
    """
    before = look(plan, timeout_seconds=timeout_seconds)
    fence_lanes(plan, before.control.known_lanes if before.control else max(s.lane for s in before.lanes) + 1)
    _record_again(plan, lambda _key, _text: None, timeout_seconds, committed=False)
    # Markers first: between the two a query finds them lost and writes nothing.
    for group in (plan.options.group, plan.options.control_group):
        TopicAdmin(plan.access).forget_group(group, timeout_seconds=timeout_seconds)
    forget(plan.options)


def _record_again(
    plan: SinkPlan, change: Callable[[str, str], str | None], timeout_seconds: float, *, committed: bool
) -> None:
    """Write what is recorded again, as `change` makes it of key and text; None ends what is there under a key.

    What only ends may be read while transactions of other sinks are open in the same topic: `committed` is False.
    """
    ledger = SinkLedger(plan)
    recorded = ledger.records(timeout_seconds=timeout_seconds, committed=committed)
    changed = {where: after for where, text in recorded.items() if (after := change(where[1], text)) != text}
    if not changed:
        return
    deadline = until(timeout_seconds)
    transaction = recording(plan)
    transaction.fence(deadline)
    transaction.begin()
    for (lane, key), text in changed.items():
        ledger.record(transaction, lane, key, text, deadline)
    transaction.commit(deadline)
