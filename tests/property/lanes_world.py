"""The small world of the lanes model: which rules hold in it, and what a state is."""

from dataclasses import dataclass
from typing import NamedTuple

from discovery.spark.sink.lanes import OnMismatch
from tests.property.lanes_markers import Control, Judge, Marker, Row, real_judge


@dataclass(frozen=True)
class World:
    """How large the world is, and which rules hold in it; each field after `judge` is a mutant's place."""

    batches: tuple[tuple[int, ...], ...] = ((0, 1), (0, 1))
    """The rows of each batch; row k goes to lane k modulo the number of lanes."""
    lanes: int = 1
    lanes_later: int | None = None
    """What the option says from the second start on."""
    tasks_later: int | None = None
    """How many tasks Spark runs from the second start on, whatever the option says: a plan that was coalesced."""
    crashes: int = 1
    attempts: int = 2
    """Of each task in each run; Spark gives up on one before it begins the next, which may live on."""
    rolled_back: int = 0
    """Batches by which the checkpoint may be older at a restart."""
    weeks: int = 0
    """How often the query may be down so long that brokers forget markers, and perhaps the control record."""
    policy: OnMismatch = OnMismatch.FAIL
    varies: bool = False
    """A replay after a start has other content in the same rows. One execution's row is there, whichever it is; with
    `rewrite` the last one's is, whatever else."""
    takeovers: int = 0
    """How often an operator takes over the sink of a stopped driver; the checkpoint may have been lost before. What was
    written until then no longer counts."""
    late_words: bool = False
    """A driver may die, or be stopped, while a control record of its is on its way; it arrives whenever it likes."""
    later_from: int = 2
    """From which start on `lanes_later`, `tasks_later` and other records hold."""
    glances: bool = False
    """Attempts that have rows look at marker and control record first too, one after the other."""
    is_shuffled: bool = False
    """A replay after a start gives rows to other lanes: a query that is not deterministic. It may be stopped with a row
    there twice, but Spark must never commit a batch of which one is, or may yet be."""
    more_later: tuple[int, ...] = ()
    """Rows that a batch has as well where a later start plans it: a checkpoint that is older plans it again."""
    judge: Judge = real_judge
    has_marker: bool = True
    reads_after_init: bool = True
    new_producer: bool = True
    own_group: bool = True
    """Else all lanes share one ledger topic, read up to its last stable offset."""
    asserts_lane: bool = True
    require_stable: bool = True
    fences_all: bool = True
    """A start with another number of lanes fences every lane before it looks for markers."""
    closes_first: bool = True
    """And before that closes the record, so that no attempt is let in behind a fence."""
    marks_empty: bool = True
    """A lane without rows gets a marker where another execution of the batch may have had some for it."""
    records_markers: bool = True
    """Each marker is a record too, of which a start makes offsets again that have expired."""
    is_healthy: bool = False
    """Nothing in it is a reason to refuse."""
    keeps_input: bool = True
    """What was compared with the marker is still there to be written again."""
    fences_takeover: str = "after"
    """A takeover fences every lane `after` it wrote its record, and leaves a marker in each; mutants fence them
    `before`, or `never`, or leave them `unstamped`."""
    glance_is_patient: bool = True
    """A marker that is under way does not hide the one before it from a glance."""
    stamps: bool = True
    """A start with another number of lanes leaves a marker of the new generation in each lane, in its transaction."""


class Lane(NamedTuple):
    """What the brokers know of one transactional id. Durable."""

    rows: tuple[Row, ...] | None = None
    """Of the transaction that is open or prepared."""
    offsets: Marker | None = None
    """The marker inside it."""
    prepared: bool = False
    ended: bool = False
    """The current epoch committed last: a repeated EndTxn of it is answered yes."""
    ghost: bool = False
    """The network still holds an EndTxn of the current epoch; those of earlier ones have no effect."""
    pending: Marker | None = None
    """Committed, and not yet what a plain read returns."""
    marker: Marker | None = None
    record: Marker | None = None
    """The last marker as a record, which never expires."""
    held: bool = False
    """The current epoch is that of a driver that starts."""


class Attempt(NamedTuple):
    """A task attempt that writes; it goes on whether Spark listens or not."""

    lane: int
    batch: int
    layout: int
    """0: of the first run, 1: of a later one."""
    step: str
    current: bool = False
    """Its epoch is the lane's."""
    watched: bool = True
    written: int = 0
    generation: int = 0
    """As it was when the attempt was judged."""
    day: int = 1
    """When it began."""
    run: int = 1
    is_first: bool = True
    is_spent: bool = False
    """It has no rows to write, or none any more."""
    seen: tuple[Marker | None, ...] = ()
    """What it saw at a glance, before it initialised its producer."""


class Running(NamedTuple):
    """The batch that Spark runs: by task, how many attempts began and whether one succeeded."""

    begun: tuple[int, ...]
    done: tuple[bool, ...]
    checked: bool = False
    """`commit` found all markers and wrote the control record."""


class Change(NamedTuple):
    """A start that renews the control record, or changes the number of lanes."""

    control: Control
    """As it was read; open, where the number of lanes changes."""
    renews: bool
    fenced: bool = False
    stamped: int = 0


class Entry(NamedTuple):
    """A marker in the shared ledger topic of one mutant."""

    lane: int
    marker: Marker
    state: str


class State(NamedTuple):
    """The whole world between two steps."""

    log: int = 0
    """Batches in Spark's offset log. Durable."""
    committed: int = 0
    """Batches in Spark's commit log. Durable."""
    lanes: tuple[Lane, ...] = ()
    control: Control | None = None
    visible: tuple[Row, ...] = ()
    """Committed rows, sorted."""
    up: bool = False
    runs: int = 0
    running: Running | None = None
    attempts: tuple[Attempt, ...] = ()
    cached: tuple[bool, ...] = ()
    """Lanes whose producer is kept for the next batch: only in a mutant."""
    day: int = 1
    change: Change | None = None
    ledger: tuple[Entry, ...] = ()
    late: Control | None = None
    """On its way from a driver that is gone."""
    taken: int = 0
    taking: tuple[str, ...] = ()
    """What an operator's takeover has yet to do."""
    taker: Control | None = None
    """The record that it wrote."""
    base: int = 0
    """Batches that were complete before the last takeover."""
