"""Sinks that look as good as ours and lose, repeat or tear rows: each drops one reason of the protocol."""

from collections.abc import Mapping

from tests.property.lanes_model import World

ONE = ((0,), (0,))
MUTANTS: Mapping[str, World] = {
    "no marker": World(batches=ONE, has_marker=False),
    "the marker is read before the producer is initialised": World(batches=ONE, reads_after_init=False),
    "a producer is kept for the next transaction": World(batches=((0,), (0, 1)), new_producer=False),
    "markers share a topic that is read up to its last stable offset": World(
        batches=((0, 1),), lanes=2, attempts=1, own_group=False
    ),
    "rows of other lanes are taken, four lanes in two tasks": World(
        batches=((0, 2),), lanes=4, tasks_later=2, attempts=1, asserts_lane=False
    ),
    "offsets on their way are read over": World(batches=ONE, require_stable=False),
    "fewer lanes, the others are not fenced": World(
        batches=((0, 1),), lanes=2, lanes_later=1, attempts=1, fences_all=False
    ),
    "fewer lanes, fenced while attempts are still let in": World(
        batches=((0, 1),), lanes=2, lanes_later=1, attempts=1, closes_first=False
    ),
    "more lanes, the first is not fenced in time": World(
        batches=((0, 1),), lanes=1, lanes_later=2, attempts=1, fences_all=False
    ),
    "markers expire, and are no records": World(batches=ONE, attempts=1, weeks=1, records_markers=False),
    "an empty lane is neither fenced nor confirmed": World(
        batches=((0,),), lanes=2, attempts=1, is_shuffled=True, marks_empty=False
    ),
}
"""The six of the specification and five that were found later; each with a world in which it shows."""
