"""Interleavings of a world around `discovery.spark.source.cuts.rules`: a partition, Spark's logs, readers, a sink.

The rules explored are the real functions; what surrounds them is modelled: Spark, which logs a plan before it runs and
replays the last one; attempts that overlap, ask late, lose answers and outlive their run; a driver that dies between
any two steps; sinks that keep the first or the last version of a batch, by task or by batch, also when the commit of
a dead run arrives late. A state is a value; `explore` walks all of them breadth first, so that the first violation
found is a shortest one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from discovery.core.errors import StateError
from discovery.core.model import TopicName, TopicPartition
from discovery.spark.source.cuts import rules as cut
from discovery.spark.source.cuts.rules import CutRecord, Pending, Plan, PlannedRange, Settlement
from tests.property.exploring import BrokenError, Explored, put, walk

TP = TopicPartition(TopicName("t"), 0)
Span = tuple[int, int]
Ledger = tuple[CutRecord, ...]


@dataclass(frozen=True)
class World:
    """How large the world is, and which rules hold in it; each field after `sink` is a mutant's place."""

    rows: int = 2
    batches: int = 4
    crashes: int = 1
    scans: int = 1
    pieces: int = 1
    """Tasks that read one range, a piece each; a range has at least one row for each."""
    attempts: int = 2
    ghosts: int = 1
    """Requests that the network may delay."""
    idle: bool = False
    """Also batches in which the partition stands still."""
    sink: str = "task"
    """`task`: each task commits, the first one counts; `batch`: the driver commits, the first counts; `batch-last`."""
    open_plan: Callable[..., Plan] = field(default=cut.open_plan)
    settle: Callable[..., Settlement] = field(default=cut.settle)
    must_ask: bool = True
    persist_first: bool = True
    applied_first: bool = True
    stale_attempt_fails: bool = True
    ledger_survives: bool = True
    numbers_checked: bool = True
    pending_only: bool = True
    """Only pending records preset a replay; else every record of exactly the same range."""


class Attempt(NamedTuple):
    """A reader of one piece. `heard` is the answer it has; it hands out rows as it goes."""

    run: int
    plan: int
    scan: int
    batch: int
    start: int
    end: int
    position: int
    heard: int | None
    ended: bool


class Running(NamedTuple):
    """The batch that runs: its plan, and for each task how many attempts began and what one of them delivered.

    A task is a piece of a scan: those of the first scan come first.
    """

    number: int
    start: int
    end: int
    pieces: tuple[int, ...]
    """Where they start."""
    settled: int | None
    read: frozenset[int]
    """Pieces that were settled as read, while the range is undecided."""
    begun: tuple[int, ...]
    delivered: tuple[Span | None, ...]
    sent: bool
    landed: bool


class State(NamedTuple):
    """The whole world between two steps."""

    log: tuple[int, ...] = ()
    """Spark's offset log: the end of each batch. Durable."""
    committed: int = 0
    """How many batches Spark's commit log has. Durable."""
    ledger: Ledger = ()
    """Durable."""
    sink: frozenset[tuple[int, int, Span]] = frozenset()
    """Scan, batch and rows of a task. Durable."""
    late: frozenset[tuple[int, tuple[tuple[int, Span], ...]]] = frozenset()
    """Commits of whole batches on their way to the sink."""
    run: int = 0
    """0: the driver is down."""
    runs: int = 0
    returned: int | None = None
    """What this run last gave Spark."""
    unlogged: int | None = None
    """Planned, and not in the offset log yet."""
    number: int = 0
    running: Running | None = None
    open: bool = False
    """The plan is in force."""
    unpersisted: Ledger = ()
    attempts: tuple[Attempt, ...] = ()
    ghosts: tuple[tuple[int, int, int, int], ...] = ()
    """Run, plan, piece and proposal of requests that the network still holds."""


Steps = Iterator[tuple[str, State]]


def explore(world: World, *, limit: int = 20_000_000) -> Explored:
    """Walk every reachable state, or up to the first violation."""
    return walk(State(), lambda state, _: _steps(world, state), limit=limit)


def _steps(world: World, state: State) -> Steps:
    _check_repeats(state)
    yield from _network(world, state)
    yield from _readers(world, state)
    yield from _arrivals(world, state)
    if state.run == 0:
        if state.runs <= world.crashes:
            yield "start", _started(world, state)
        return
    if state.runs <= world.crashes:
        yield "crash", _crashed(state)
    if state.unpersisted:
        yield "persist", state._replace(ledger=_with(state.ledger, state.unpersisted), unpersisted=())
    yield from _engine(world, state)


# -- the driver and Spark -----------------------------------------------------------------------------------------


def _started(world: World, state: State) -> State:
    ledger = state.ledger if world.ledger_survives or state.runs == 0 else ()
    number = max((record.plan for record in ledger), default=0)
    return state._replace(run=state.runs + 1, runs=state.runs + 1, number=number, ledger=ledger)


def _crashed(state: State) -> State:
    return state._replace(run=0, returned=None, unlogged=None, running=None, open=False, unpersisted=(), number=0)


def _engine(world: World, state: State) -> Steps:
    if state.running is not None:
        yield from _batch(world, state)
    elif state.unlogged is not None:
        yield "log the plan", state._replace(log=(*state.log, state.unlogged), unlogged=None)
    elif len(state.log) > state.committed:
        yield "run the batch", _activate(world, state)
    elif len(state.log) < world.batches:
        yield from _planned(world, state)


def _planned(world: World, state: State) -> Steps:
    """`latestOffset`: rewinds first, else any range that begins where the last one was really left."""
    start = state.log[-1] if state.log else 0
    closed = state._replace(open=False)
    try:
        found = cut.advance({TP: start}, _pending(closed.ledger + closed.unpersisted))
    except StateError as error:
        raise BrokenError(str(error)) from None
    if found.applied:
        if world.applied_first:
            closed = closed._replace(ledger=_with(closed.ledger, found.applied))
        else:
            closed = closed._replace(unpersisted=_with(closed.unpersisted, found.applied))
    if TP in found.rewinds:
        ends = [found.rewinds[TP]]
    else:
        ends = [*([start] if world.idle else []), *range(start + 1, world.rows + 1)]
    for end in ends:
        yield f"plan {start} to {end}", closed._replace(returned=end, unlogged=end)


def _activate(world: World, state: State) -> State:
    end = state.log[-1]
    start = state.log[-2] if len(state.log) > 1 else 0
    number = state.number + 1
    ranges = {TP: PlannedRange(start=start, end=end)} if end > start else {}
    if end < start and not any((r.end, r.cut) == (start, end) for r in state.ledger):
        raise BrokenError(f"the plan goes back from {start} to {end} and nothing was cut there")
    settled, size = None, max(end - start, 1)
    pieces = tuple(start + size * k // min(world.pieces, size) for k in range(min(world.pieces, size)))
    if ranges:
        records = _pending(state.ledger + state.unpersisted)
        same = [r for r in state.ledger if (r.start, r.end) == (start, end)]
        if same and not world.pending_only:
            records = {TP: same[-1]}
        try:
            split = {TP: pieces} if len(pieces) > 1 else {}
            plan = world.open_plan(number, ranges, records, replayed=state.returned != end, pieces=split)
        except StateError as error:
            raise BrokenError(str(error)) from None
        settled = plan.settled.get(TP)
    nothing = not ranges or settled == start
    tasks = world.scans * len(pieces)
    running = Running(
        number=number,
        start=start,
        end=end,
        pieces=pieces,
        settled=settled,
        read=frozenset(),
        begun=(0,) * tasks,
        delivered=((start, start) if nothing else None,) * tasks,
        sent=nothing,
        landed=nothing,
    )
    return state._replace(number=number, running=running, open=True)


def _batch(world: World, state: State) -> Steps:
    running, batch = state.running, len(state.log) - 1
    assert running is not None
    if running.landed or (world.sink == "task" and None not in running.delivered):
        done = state._replace(committed=state.committed + 1, running=None)
        _check_complete(world, done)
        yield "commit the batch", done
        return
    if running.sent:
        return
    if world.sink != "task" and None not in running.delivered:
        spans = tuple((_scan(running, task), span) for task, span in enumerate(running.delivered) if span is not None)
        sent = running._replace(sent=True)
        yield "commit to the sink", state._replace(running=sent, late=state.late | {(batch, spans)})
    for task, count in enumerate(running.begun):
        if count < world.attempts and running.delivered[task] is None:
            begin, end = _piece(running, task)
            attempt = Attempt(
                run=state.run,
                plan=running.number,
                scan=_scan(running, task),
                batch=batch,
                start=begin,
                end=end,
                position=begin,
                heard=_plan_of(running).end_of(TP, begin),
                ended=False,
            )
            begun = put(running.begun, task, count + 1)
            yield (
                f"attempt of scan {attempt.scan} at {begin}",
                _with_attempts(state, None, attempt)._replace(running=running._replace(begun=begun)),
            )


def _arrivals(world: World, state: State) -> Steps:
    for batch, spans in state.late:
        kept = frozenset(entry for entry in state.sink if entry[1] != batch or world.sink != "batch-last")
        there = any(entry[1] == batch for entry in kept)
        sink = kept if there else kept | {(scan, batch, span) for scan, span in spans}
        landed = state._replace(sink=sink, late=state.late - {(batch, spans)})
        running = state.running
        if running is not None and running.sent and batch == len(state.log) - 1:
            landed = landed._replace(running=running._replace(landed=True))
        yield f"the sink has batch {batch}", landed


# -- readers ------------------------------------------------------------------------------------------------------


def _readers(world: World, state: State) -> Steps:
    for attempt in set(state.attempts):
        scan = f"scan {attempt.scan} of plan {attempt.plan} from {attempt.start}"
        if attempt.ended:
            if world.sink == "task":
                yield f"{scan} commits its task", _task_committed(state, attempt)
            continue
        limit = attempt.end if attempt.heard is None else attempt.heard
        if attempt.position < limit:
            moved = attempt._replace(position=attempt.position + 1)
            yield f"{scan} reads row {attempt.position}", _with_attempts(state, attempt, moved)
        elif attempt.position > limit and world.stale_attempt_fails:
            yield f"{scan} is a stale attempt and fails", _with_attempts(state, attempt, None)
        elif attempt.heard is not None or not world.must_ask:
            yield f"{scan} ends at {attempt.position}", _ended(world, state, attempt)
        if attempt.heard is None:
            yield from _asks(world, state, attempt, scan)


def _asks(world: World, state: State, attempt: Attempt, scan: str) -> Steps:
    if len(state.ghosts) < world.ghosts:
        held = (attempt.run, attempt.plan, attempt.start, attempt.position)
        yield f"{scan} asks late", state._replace(ghosts=tuple(sorted({*state.ghosts, held})))
    after, end = _decided(world, state, attempt.run, attempt.plan, attempt.start, attempt.position)
    if end is None:
        yield f"{scan} is refused", _with_attempts(state, attempt, None)
        return
    yield f"{scan} asks to end at {attempt.position}, the answer {end} is lost", after
    heard = _with_attempts(after, attempt, attempt._replace(heard=end))
    yield f"{scan} asks to end at {attempt.position} and hears {end}", heard


def _network(world: World, state: State) -> Steps:
    for ghost in state.ghosts:
        left = state._replace(ghosts=tuple(g for g in state.ghosts if g != ghost))
        yield f"the late request {ghost} arrives", _decided(world, left, *ghost)[0]


def _decided(  # noqa: PLR0917 - a request and its world
    world: World, state: State, run: int, number: int, piece: int, proposed: int
) -> tuple[State, int | None]:
    """The coordinator: a write-once outcome, recorded before it is answered."""
    running = state.running
    if state.run == 0 or not state.open or running is None:
        return state, None
    if world.numbers_checked and (run, number) != (state.run, running.number):
        return state, None
    if piece not in running.pieces or not piece <= proposed <= running.end or running.end <= running.start:
        return state, None
    try:
        settled, read, heard, cuts = _settled(world.settle, _plan_of(running), piece, proposed)
    except StateError:
        return state, None
    after = state._replace(running=running._replace(settled=settled, read=read))
    if cuts and world.persist_first:
        after = after._replace(ledger=_with(state.ledger, cuts))
    elif cuts:
        after = after._replace(unpersisted=_with(state.unpersisted, cuts))
    return after, heard


def _settled(
    rule: Callable[..., Settlement], plan: Plan, piece: int, proposed: int
) -> tuple[int | None, frozenset[int], int, Ledger]:
    found = rule(plan, {TP: proposed}, starts={TP: piece})
    return found.plan.settled.get(TP), frozenset(start for _, start in found.plan.read), found.ends[TP], found.cuts


def _plan_of(running: Running) -> Plan:
    return _plan(running.number, (running.start, running.end), running.pieces, running.settled, running.read)


@cache
def _plan(number: int, span: Span, pieces: tuple[int, ...], settled: int | None, read: frozenset[int]) -> Plan:
    return Plan(
        number=number,
        incarnation=1,
        ranges={TP: PlannedRange(start=span[0], end=span[1])},
        settled={} if settled is None else {TP: settled},
        pieces={TP: pieces} if len(pieces) > 1 else {},
        read=frozenset((TP, start) for start in read),
    )


def _scan(running: Running, task: int) -> int:
    return task // len(running.pieces)


def _piece(running: Running, task: int) -> Span:
    bounds = (*running.pieces, running.end)
    return bounds[task % len(running.pieces)], bounds[task % len(running.pieces) + 1]


def _ended(world: World, state: State, attempt: Attempt) -> State:
    if world.sink == "task":
        return _with_attempts(state, attempt, attempt._replace(ended=True))
    return _delivered(_with_attempts(state, attempt, None), attempt)


def _task_committed(state: State, attempt: Attempt) -> State:
    entry = (attempt.scan, attempt.batch, (attempt.start, attempt.position))
    there = any(known[:2] == entry[:2] and known[2][0] == attempt.start for known in state.sink)
    after = state if there else state._replace(sink=state.sink | {entry})
    return _delivered(_with_attempts(after, attempt, None), attempt)


def _delivered(state: State, attempt: Attempt) -> State:
    running = state.running
    if running is None or (attempt.run, attempt.plan) != (state.run, running.number):
        return state
    task = attempt.scan * len(running.pieces) + running.pieces.index(attempt.start)
    if running.delivered[task] is not None:
        return state
    delivered = put(running.delivered, task, (attempt.start, attempt.position))
    return state._replace(running=running._replace(delivered=delivered))


# -- what must hold -----------------------------------------------------------------------------------------------


def _check_repeats(state: State) -> None:
    for scan in {entry[0] for entry in state.sink}:
        rows = [row for s, _, span in state.sink if s == scan for row in range(*span)]
        if len(rows) != len(set(rows)):
            raise BrokenError(f"scan {scan} delivered a row twice: {sorted(rows)}")


def _check_complete(world: World, state: State) -> None:
    """Whenever a batch is committed the sink has exactly what the logs and the records together say."""
    pending = _pending(state.ledger + state.unpersisted)
    until = cut.effective_end({TP: state.log[state.committed - 1]}, pending)[TP]
    for scan in range(world.scans):
        rows = {row for s, _, span in state.sink if s == scan for row in range(*span)}
        if rows != set(range(until)):
            raise BrokenError(f"scan {scan} has delivered {sorted(rows)}, the logs say 0 to {until}")


# -- small things -------------------------------------------------------------------------------------------------


def _pending(ledger: Ledger) -> Pending:
    last = {record.plan: record for record in ledger}
    in_force = [record for record in last.values() if not record.applied]
    return {TP: in_force[-1]} if in_force else {}


def _with(ledger: Ledger, records: Ledger) -> Ledger:
    kept = {record.plan: record for record in (*ledger, *records)}
    return tuple(kept[plan] for plan in sorted(kept))


def _with_attempts(state: State, old: Attempt | None, new: Attempt | None) -> State:
    attempts = list(state.attempts)
    if old is not None:
        attempts.remove(old)
    if new is not None:
        attempts.append(new)
    attempts.sort(key=lambda a: (a.run, a.plan, a.scan, a.start, a.position, a.heard is None, a.heard or 0, a.ended))
    return state._replace(attempts=tuple(attempts))
