"""May this attempt write? The whole decision of the sink, pure and total.

A lane is task i of every micro-batch: one transaction under one stable id, with one marker. What is asked here is
asked *after* the lane's new producer was initialised: by then every transaction of earlier producers has ended, so a
marker that is not there will never come, and whoever could still commit it is fenced.
"""

from dataclasses import dataclass
from enum import Enum

from discovery.core.errors import SinkRefusedError, TransactionError
from discovery.core.plural import counted
from discovery.spark.sink.marker import Control, Fingerprint, Marker

RETENTION_SECONDS = 7 * 86_400
"""How long brokers keep a committed offset by default (`offsets.retention.minutes`)."""
_MARGIN_SECONDS = 3_600
"""Clocks of drivers and workers may differ by so much; half of a retention that is shorter than two such margins."""


class OnMismatch(Enum):
    """What to do when a replayed batch has other records than those that were committed."""

    FAIL = "fail"
    KEEP_COMMITTED = "keep-committed"
    REWRITE = "rewrite"


class Refusal(Enum):
    """Why nothing may be written."""

    STALE_BATCH = "stale batch"
    SINK_ID_IN_USE = "sinkId in use"
    LANE_COUNT_CHANGED = "lane count changed"
    LANE_COUNT_CHANGING = "lane count changing"
    """May pass: the next start does it again, from its beginning."""
    LEDGER_LOST = "markers lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One execution of one task of one batch."""

    query_id: str
    batch_id: int
    lane: int
    lanes: int
    attempt: str
    wall_seconds: int
    target: str = ""
    """The one topic it writes to; empty: each record names its own."""
    run: str = ""
    """Which run of the query this is; empty: not known."""
    is_first: bool = False
    """Its task was not tried before in this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Write the records; they and the marker become visible together."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """The lane's part of the batch is complete: read the input to its end and compare it with the marker."""

    marker: Marker


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """The whole batch was complete when this generation began, with other lanes than these: read and forget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Nothing may be written."""

    refusal: Refusal
    sentence: str


Decision = Write | Compare | Skip | Refuse


def judge(
    marker: Marker | None,
    control: Control | None,
    attempt: Attempt,
    *,
    now_seconds: int | None = None,
    retention_seconds: int = RETENTION_SECONDS,
) -> Decision:
    """Say what this attempt may do.

    Args:
        marker: The lane's own, read after its producer was initialised; None: there is none.
        control: The sink's control record; None: there is none.
        attempt: Who asks.
        now_seconds: Wall clock at this moment; the attempt's own where left out.
        retention_seconds: How long brokers keep a committed offset.

    Returns:
        Exactly one decision for every input.

    Runs: anywhere (pure). Source: docs/explanation/exactly-once.md.
    """
    if control is None:
        return _lost("the control record is gone, which every sink has from its first start")
    known = marker if marker is not None and marker.generation >= control.generation else None
    if known is not None and known.generation > control.generation:
        return _lost(f"the marker is of generation {known.generation}, the control record of {control.generation}")
    kept_seconds = believed_seconds(retention_seconds)
    refused = (
        asleep(attempt.wall_seconds, now_seconds, retention_seconds)
        or _foreign(known, control, attempt)
        or _ahead(known, control, attempt)
    )
    if refused is not None:
        return refused
    is_there = known is not None and known.batch_id == attempt.batch_id
    if known is not None and is_there and not known.is_boundary:
        return _other_target(known.target, attempt) or Compare(marker=known)
    if is_there or control.batch_id == attempt.batch_id:
        return _other_target(control.target, attempt) or _complete(known, control)
    return (
        Write(generation=control.generation) if known is not None else _without_marker(control, attempt, kept_seconds)
    )


def believed_seconds(retention_seconds: int) -> int:
    """Return for how long a marker that is not there was never there.

    Runs: anywhere (pure).
    """
    return retention_seconds - min(_MARGIN_SECONDS, retention_seconds // 2)


def asleep(begun_seconds: int, now_seconds: int | None, retention_seconds: int) -> Refuse | None:
    """Refuse an attempt that began when markers may have been there that have expired since.

    Runs: anywhere (pure).
    """
    if now_seconds is None or now_seconds - begun_seconds < believed_seconds(retention_seconds):
        return None
    return Refuse(
        refusal=Refusal.STALE_BATCH,
        sentence="this attempt slept for longer than brokers keep markers; that it finds none says nothing: end it",
    )


def _foreign(marker: Marker | None, control: Control, attempt: Attempt) -> Refuse | None:
    """Refuse another query's sink, or another number of lanes than its generation has."""
    owners = {owner for owner in (control.query_id, marker.query_id if marker else "") if owner}
    if others := owners - {attempt.query_id}:
        return Refuse(
            refusal=Refusal.SINK_ID_IN_USE,
            sentence=f"it belongs to query {min(others)}, this one is {attempt.query_id}; after a lost checkpoint run "
            "`kafka-discovery sink takeover`, else name another sinkId",
        )
    if control.is_closed:
        return Refuse(
            refusal=Refusal.LANE_COUNT_CHANGING,
            sentence="a start is changing the number of lanes; start the query again if it does not come to an end",
        )
    counts = {control.lanes, *((marker.lanes,) if marker else ())}
    if other := counts - {attempt.lanes}:
        return Refuse(
            refusal=Refusal.LANE_COUNT_CHANGED,
            sentence=f"it has {counted(min(other), 'lane')}, this query has {attempt.lanes}; a batch was left between "
            "lanes: finish it with the old number, then change it",
        )
    return None


def _other_target(target: str | None, attempt: Attempt) -> Refuse | None:
    """Refuse a second output of a batch; what earlier programs wrote does not name the first one's target."""
    if target in {None, attempt.target}:
        return None
    there, here = (f"topic {name}" if name else "topics that its records name" for name in (target, attempt.target))
    return Refuse(
        refusal=Refusal.SINK_ID_IN_USE,
        sentence=f"batch {attempt.batch_id} of it went to {there}, this is for {here}; give each output a sinkId of "
        "its own (a batch write its own writeId), or finish the batch with the topic it was begun with",
    )


def may_have_run(control: Control | None, attempt: Attempt) -> bool:
    """Tell whether another execution of this batch may have had records for this lane.

    Within one run of a query a batch begins when the one before is confirmed; what was there before that run, or an
    earlier try of the task, may have seen other records, and may still commit them.

    Runs: anywhere (pure).
    """
    begun_here = control is not None and (control.run, control.batch_id) == (attempt.run, attempt.batch_id - 1)
    return not (attempt.run and attempt.is_first and begun_here)


def _ahead(marker: Marker | None, control: Control, attempt: Attempt) -> Refuse | None:
    last = max(control.batch_id, marker.batch_id if marker else -1)
    if last <= attempt.batch_id:
        return None
    return Refuse(
        refusal=Refusal.STALE_BATCH,
        sentence=f"batch {last} is committed, this is batch {attempt.batch_id}: an attempt out of the past, or a "
        "checkpoint that was rolled back; restore the right one, or run `kafka-discovery sink takeover`",
    )


def _complete(known: Marker | None, control: Control) -> Compare | Skip:
    """The batch is complete, and this lane has no marker of it: it was empty, unless the lanes were others."""
    if control.lane_walls == () or (known is not None and known.is_boundary and known.batch_id == control.batch_id):
        return Skip()
    nothing = Marker(
        query_id=control.query_id, batch_id=control.batch_id, lanes=control.lanes, rows=0,
        fingerprint=Fingerprint().text(), attempt="-", wall_seconds=control.wall_seconds,
        generation=control.generation, target=control.target,
    )  # fmt: skip
    return Compare(marker=nothing)


def _without_marker(control: Control, attempt: Attempt, kept_seconds: int) -> Decision:
    """A marker of this very batch, had it ever been there, would be younger than the control record."""
    unknown = f"whether batch {attempt.batch_id} was written to lane {attempt.lane} is open"
    if control.generation == 1 and control.batch_id < 0 < attempt.batch_id:
        return _lost(f"the sink is new, or all about it has expired, and this is not the first batch: {unknown}")
    if attempt.wall_seconds - control.wall_seconds >= kept_seconds:
        return _lost(f"the control record is as old as brokers keep markers: {unknown}")
    had_marker = control.lane_wall(attempt.lane)
    if had_marker and attempt.wall_seconds - had_marker < kept_seconds:
        return _lost(f"lane {attempt.lane} had a marker that cannot have expired; was group or topic deleted?")
    if had_marker and control.batch_id != attempt.batch_id - 1:
        return _lost(f"lane {attempt.lane} has no marker any more: {unknown}")
    return Write(generation=control.generation)


def _lost(what: str) -> Refuse:
    return Refuse(
        refusal=Refusal.LEDGER_LOST,
        sentence=f"{what}; find out what of the batch is in the topic, then run `kafka-discovery sink takeover`",
    )


def refused(refuse: Refuse, sink_id: str, lane: int) -> SinkRefusedError | TransactionError:
    """Return the error that ends the query; a `TransactionError` where another start may cure it.

    Runs: anywhere (pure).
    """
    kind = TransactionError if refuse.refusal is Refusal.LANE_COUNT_CHANGING else SinkRefusedError
    return kind(f"sinkId {sink_id!r}, lane {lane}: {refuse.refusal.value}: {refuse.sentence}")


def settle(
    marker: Marker, *, rows: int, fingerprint: str, policy: OnMismatch, sink_id: str, lane: int
) -> OnMismatch | None:
    """Compare what was committed with what this attempt would write.

    Returns:
        None where they are equal; else `KEEP_COMMITTED` or `REWRITE`.

    Raises:
        SinkRefusedError: they differ and the policy is `fail`.

    Runs: anywhere (pure).
    """
    if (rows, fingerprint) == (marker.rows, marker.fingerprint):
        return None
    if marker.unlaned and policy is OnMismatch.KEEP_COMMITTED:
        # As after a first try without with_lanes: another task's records failed the batch, and are not in the topic.
        raise SinkRefusedError(
            f"sinkId {sink_id!r}: batch {marker.batch_id} is committed with {counted(marker.rows, 'record')}, its "
            f"replay has {rows}, and it was written without with_lanes: other tasks' records of it may be missing; "
            "then set onMismatch=rewrite for one start, or run `kafka-discovery sink takeover`"
        )
    if policy is OnMismatch.FAIL:
        other = "" if rows != marker.rows else " other" if rows == 1 else " others"
        raise SinkRefusedError(
            f"sinkId {sink_id!r}, lane {lane}: batch {marker.batch_id} is committed with "
            f"{counted(marker.rows, 'record')}, its replay has {rows}{other}: the query is not deterministic, its "
            "code changed, the checkpoint is an older copy, or the writeId was used before; onMismatch=keep-committed "
            "keeps what is there, rewrite writes this too"
        )
    return policy
