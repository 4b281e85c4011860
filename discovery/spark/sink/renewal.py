"""Markers and control record beyond the retention of offsets: made whole again out of what was written with them.

Each transaction that commits a marker also writes it into the marker topic, which is compacted. Committed offsets are
the index that tasks read within a millisecond; what brokers have forgotten of it is put back here, by a start whose
control record is gone or growing old, while no attempt is let in: close it, fence every lane, read, write, open.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from discovery.core.errors import SinkRefusedError
from discovery.core.model import TopicName
from discovery.kafka.topics import TopicAdmin
from discovery.kafka.transactions import GroupNotes, Note, Transaction
from discovery.spark.sink.lanes import Refusal
from discovery.spark.sink.ledger import SinkLedger, commit_marker, fence_lanes, half_key, until
from discovery.spark.sink.marker import CLOSED, Control, Marker, newest, renewed
from discovery.spark.sink.pipeline import copied_perhaps, recorded_offsets, refuse_other_copy
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.preflight import forget

_ANSWER_SECONDS = 30.0
_READ_SECONDS = 120.0


def current_control(plan: SinkPlan, ledger: SinkLedger) -> Control | None:
    """Return the control record, renewed where it is gone, old, or from a program that wrote no markers as records.

    Returns:
        None: nothing is known of this sink.

    Raises:
        TransactionError: no answer in time; a start that ended in between leaves the record closed, and the next one
            does it all again.
        StateError: what stands there is nothing of a sink's.

    Runs: driver, at a query's start and every ten minutes; <= 1 s; to renew 0.1-0.6 s per lane, and the topic.
    """
    control = ledger.control(timeout_seconds=_ANSWER_SECONDS)
    if not plan.options.is_recorded:
        return control
    if control is not None and not control.wall_seconds:
        # Of a start that died while it put a forgotten sink back. All that it knew is in the records still.
        control = None
    is_young = control is not None and time.time() - control.wall_seconds < plan.retention_seconds // 2
    if plan.options.source_topic is not None:
        if control is not None:
            refuse_other_copy(plan.options, source=control.source, target=control.target)
        is_known = is_young and control is not None and None not in {control.source, control.target}
        return control if is_known else _of_offsets(plan, ledger, control, plan.options.source_topic)
    if control is not None and control.is_recorded == is_young:
        # Young and recorded: nothing to do. Old and not recorded: a marker may have expired without a trace.
        return control
    return _renewed(plan, ledger, control)


def _renewed(plan: SinkPlan, ledger: SinkLedger, control: Control | None) -> Control | None:
    begun = control or _unknown(ledger, plan.options.sink_id)
    if begun is None:
        return None
    lanes = begun.known_lanes
    # Its time stays: whoever dies from here on leaves a record that is as old as before, and closed.
    ledger.write_control(replace(begun, lanes=CLOSED + lanes), timeout_seconds=_ANSWER_SECONDS)
    fences = fence_lanes(plan, lanes)
    committed = ledger.markers(range(lanes), timeout_seconds=_ANSWER_SECONDS)
    markers = newest(committed, ledger.recorded(timeout_seconds=_READ_SECONDS))
    _commit_again(ledger, fences, markers, None if begun.is_recorded else half_key(plan.options.sink_id))
    after = renewed(begun, markers, wall=int(time.time()))
    ledger.write_control(after, timeout_seconds=_ANSWER_SECONDS)
    return after


def _unknown(ledger: SinkLedger, sink_id: str) -> Control | None:
    """Return what stands for a control record that has expired; None: there was none, or no batch ever."""
    if not ledger.records(timeout_seconds=_READ_SECONDS, committed=False):
        return None
    lanes = [marker.lanes for marker in ledger.recorded(timeout_seconds=_READ_SECONDS).values()]
    if not lanes:
        return None
    if any(key == half_key(sink_id) for _, key in ledger.records(timeout_seconds=_READ_SECONDS)):
        raise SinkRefusedError(
            f"sinkId {sink_id!r}: {Refusal.LEDGER_LOST.value}: the start that took it over from an earlier version "
            "died before it had recorded each lane's marker, and offsets have expired since; find out what of the last "
            "batch is in the topic, then run `kafka-discovery sink takeover`"
        )
    # Recorded, so that a start after one that died in between renews it again.
    return Control(query_id="", batch_id=-1, lanes=max(lanes), generation=0, wall_seconds=0, is_recorded=True)


def _commit_again(
    ledger: SinkLedger, fences: Sequence[Transaction], markers: Mapping[int, Marker], word: str | None
) -> None:
    """Lane by lane.

    Args:
        ledger: The sink's.
        fences: By lane.
        markers: By lane.
        word: The key under which is recorded, from the first of these transactions to the last, that a lane's marker
            may not be a record yet; None: each is one.
    """
    lanes = [lane for lane in range(len(fences)) if lane in markers]
    for lane in lanes:
        words: dict[str, str | None] = {}
        if word is not None and lane == lanes[0]:
            words[word] = "1"
        if word is not None and lane == lanes[-1]:
            words[word] = None
        commit_marker(ledger, fences[lane], lane, markers[lane], words)


def _of_offsets(plan: SinkPlan, ledger: SinkLedger, control: Control | None, source: TopicName) -> Control | None:
    """Write the control record of a pipeline by offsets again; its markers are put back by `restore_offsets`."""
    if control is None:
        known = _missing(plan, source)[0]
        recorded = recorded_offsets(ledger, source, committed=False, timeout_seconds=_READ_SECONDS)
        if not known and not recorded:
            return None
        for one in recorded.values():
            refuse_other_copy(plan.options, source=source, target=one.target)
        complete = bool(recorded) and all(offset.is_complete for offset in recorded.values())
        control = Control(
            query_id="", batch_id=-1, lanes=plan.options.lanes, generation=1, wall_seconds=0, is_recorded=complete
        )
    after = replace(control, wall_seconds=int(time.time()), source=source, target=plan.options.topic)
    ledger.write_control(after, timeout_seconds=_ANSWER_SECONDS)
    return after


def restore_offsets(plan: SinkPlan) -> None:
    """Commit again what a pipeline has recorded of its source and brokers have forgotten.

    Before the query starts: without its checkpoint it begins where the group's offsets are.

    Raises:
        TransactionError: no answer in time; the next start does it all again.
        StateError: what is recorded is nothing of this sink's.

    Runs: driver, once per start; blocks <= 1 s, to restore 0.1-0.6 s per lane and for the marker topic.
    """
    source = plan.options.source_topic
    ledger = SinkLedger(plan)
    if source is None or not (missing := _missing(plan, source)[1]):
        return
    control = ledger.control(timeout_seconds=_ANSWER_SECONDS)
    if control is None or not missing & set(
        recorded_offsets(ledger, source, committed=False, timeout_seconds=_READ_SECONDS)
    ):
        return
    # Whoever dies from here on leaves the record closed: the next start has to look, and opens it.
    forget(plan.options)
    ledger.write_control(replace(control, lanes=CLOSED + control.known_lanes), timeout_seconds=_ANSWER_SECONDS)
    fences = fence_lanes(plan, control.known_lanes)
    notes = GroupNotes(plan.access, group=plan.options.group, topic=source)
    lost = missing - set(notes.read(missing, timeout_seconds=_ANSWER_SECONDS))
    recorded = recorded_offsets(ledger, source, committed=True, timeout_seconds=_READ_SECONDS)
    if known := lost & set(recorded):
        deadline = until(_ANSWER_SECONDS)
        fences[0].begin()
        for number in known:
            one = recorded[number]
            fences[0].attach(source, number, Note(one.offset, one.note()), notes.metadata, deadline)
        fences[0].commit(deadline)
    ledger.write_control(replace(control, lanes=control.known_lanes), timeout_seconds=_ANSWER_SECONDS)


def refuse_unrecorded(plan: SinkPlan) -> None:
    """Refuse a new checkpoint of a pipeline that an earlier program began, where the offset of a partition is gone.

    Before batch 0 copies anything: a partition that comes later, since its leader was dead or the batch limit had no
    room for it, could not be distinguished from a new one any more.

    Raises:
        SinkRefusedError: a partition that has records may have been copied.
        TransactionError: no answer in time.

    Runs: driver, once per checkpoint; blocks <= 1 s.
    """
    source = plan.options.source_topic
    control = SinkLedger(plan).control(timeout_seconds=_ANSWER_SECONDS)
    if source is None or control is None or control.is_recorded:
        return
    missing = _missing(plan, source)[1]
    if filled := TopicAdmin(plan.access).filled(source, missing, timeout_seconds=_ANSWER_SECONDS):
        raise copied_perhaps(plan.options, source, min(filled))


def _missing(plan: SinkPlan, source: TopicName) -> tuple[Collection[int], set[int]]:
    """Return the partitions of the source whose offset the group has, and those of which it has none."""
    shape = TopicAdmin(plan.access).shape(source, timeout_seconds=_ANSWER_SECONDS, rights="READ and DESCRIBE")
    numbers = range(0 if shape is None else shape.partitions)
    # Not waiting for transactions of a killed run, which only a fence ends.
    notes = GroupNotes(plan.access, group=plan.options.group, topic=source, stable=False)
    known = notes.read(numbers, timeout_seconds=_ANSWER_SECONDS) if numbers else {}
    return known, set(numbers) - set(known)
