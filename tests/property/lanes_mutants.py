"""Sinks that look as good as ours and lose, repeat or tear rows: each drops one reason of the protocol."""

from collections.abc import Mapping
from dataclasses import replace

from discovery.spark.sink.lanes import OnMismatch
from tests.property.lanes_markers import Asked, Control, Marker, Verdict, real_judge
from tests.property.lanes_world import World

ONE = ((0,), (0,))
FEWER_LATER = World(batches=((1,),), lanes=2, lanes_later=1, crashes=2, later_from=3, attempts=1, late_words=True)
"""The third driver has one lane less; a control record of the first one arrives whenever it likes."""


def _writes_what_it_has(found: Marker | None, control: Control | None, asked: Asked) -> Verdict:
    return real_judge(found, control, asked._replace(policy=OnMismatch.REWRITE))


def _skips_what_was_empty(found: Marker | None, control: Control | None, asked: Asked) -> Verdict:
    is_there = found is not None and found.batch == asked.batch
    is_complete = control is not None and control.batch == asked.batch
    verdict = real_judge(found, control, asked)
    return Verdict.SKIPPED if verdict is Verdict.REFUSED and is_complete and not is_there else verdict


MUTANTS: Mapping[str, World] = {
    "no marker": World(batches=ONE, has_marker=False),
    "the marker is read before the producer is initialised": World(batches=ONE, reads_after_init=False),
    "a producer is kept for the next transaction": World(batches=((0,), (0, 1)), new_producer=False),
    "markers share a topic that is read up to its last stable offset": World(
        batches=((0, 1),), lanes=2, attempts=1, own_group=False
    ),
    "rows of other lanes are taken, two lanes in one task": World(
        batches=((0, 1),), lanes=2, tasks_later=1, attempts=1, asserts_lane=False
    ),
    "offsets on their way are read over": World(batches=ONE, require_stable=False),
    "fewer lanes, the others are not fenced": World(
        batches=((0, 1),), lanes=2, lanes_later=1, attempts=1, fences_all=False, stamps=False
    ),
    "fewer lanes, fenced while attempts are still let in": World(
        batches=((0, 1),), lanes=2, lanes_later=1, attempts=1, closes_first=False, stamps=False
    ),
    "more lanes, the first is not fenced in time": World(
        batches=((0, 1),), lanes=1, lanes_later=2, attempts=1, fences_all=False, stamps=False
    ),
    "fewer lanes, a late word of an earlier driver opens the record again": replace(FEWER_LATER, stamps=False),
    "markers expire, and are no records": World(batches=ONE, attempts=1, weeks=1, records_markers=False),
    "an empty lane is neither fenced nor confirmed": World(
        batches=((0,),), lanes=2, attempts=1, is_shuffled=True, marks_empty=False
    ),
    "keep-committed writes what the replay has": World(
        batches=ONE, attempts=1, varies=True, policy=OnMismatch.KEEP_COMMITTED, judge=_writes_what_it_has
    ),
    "an empty lane of a complete batch skips what a replay has": World(
        batches=((),), attempts=1, more_later=(0,), judge=_skips_what_was_empty
    ),
    "rewrite has used its input up for the comparison": World(
        batches=ONE, attempts=1, varies=True, policy=OnMismatch.REWRITE, keeps_input=False
    ),
    "a takeover fences nobody": World(batches=ONE, attempts=1, takeovers=1, fences_takeover="never"),
    "a takeover fences before it writes its record": World(
        batches=ONE, attempts=1, takeovers=1, fences_takeover="before"
    ),
    "a takeover leaves no markers, and its record expires": World(
        batches=ONE, attempts=1, weeks=1, takeovers=1, fences_takeover="unstamped"
    ),
    "a glance sees nothing where a transaction is under way": World(
        batches=ONE, crashes=0, glances=True, is_healthy=True, glance_is_patient=False
    ),
}
"""The six of the specification and those that were found later; each with a world in which it shows."""
