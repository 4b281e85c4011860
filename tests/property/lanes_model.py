"""Every interleaving of a small world around the sink's lanes: Spark, tasks that overlap, brokers that answer late.

What is modelled: Spark, which logs a plan before it runs, gives up on tasks that live on, replays the last batch and
may lose its driver between any two steps; the transaction coordinator with epochs, transactions that are prepared and
not complete, offsets that are committed and not yet materialised, and time-outs; a network that loses replies and
delivers a second EndTxn late. What decides is the real `judge` of `discovery.spark.sink`. A task that dies is one that
takes no further step, so that death at every step needs no step of its own. Of epochs only one thing matters: whether
one is still the lane's current one. A state is a value; `explore` walks all of them breadth first: the first violation
found is a shortest one.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from discovery.spark.sink.marker import CLOSED
from tests.property.exploring import put, trail
from tests.property.lanes_judge import (
    Asked,
    Control,
    Judge,
    Marker,
    Row,
    Verdict,
    advanced,
    may_have_run,
    newest,
    real_judge,
    renewed,
)


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
    is_shuffled: bool = False
    """A replay after a start gives rows to other lanes: a query that is not deterministic. It may be stopped with a row
    there twice, but Spark must never commit a batch of which one is, or may yet be."""
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
    seen: tuple[Marker | None, ...] = ()
    """What it read before it initialised its producer: only in a mutant."""


class Running(NamedTuple):
    """The batch that Spark runs: by task, how many attempts began and whether one succeeded."""

    begun: tuple[int, ...]
    done: tuple[bool, ...]
    checked: bool = False
    """`commit` found all markers and wrote the control record."""


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
    fenced: bool = False
    """A start with another number of lanes has fenced them."""
    ledger: tuple[Entry, ...] = ()


class Violation(NamedTuple):
    """What went wrong, and the steps that lead there."""

    text: str
    trail: tuple[str, ...]


class Explored(NamedTuple):
    """How far the walk came, and how often each verdict was given."""

    states: int
    violation: Violation | None
    verdicts: Counter[str]
    finished: int
    """States in which all batches are committed."""


class _BrokenError(Exception):
    """A step showed rows lost, repeated or torn."""


Steps = Iterator[tuple[str, State]]


def explore(world: World, *, limit: int = 2_000_000) -> Explored:
    """Walk every reachable state, or up to the first violation."""
    first = State(lanes=(Lane(),) * max(world.lanes, world.lanes_later or 0))
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    verdicts: Counter[str] = Counter()
    layer, finished = [first], 0
    while layer:
        found: list[State] = []
        for state in layer:
            finished += state.committed == len(world.batches)
            try:
                for name, after in _steps(world, state, verdicts):
                    if after not in came_from:
                        came_from[after] = (state, name)
                        found.append(after)
            except _BrokenError as error:
                return Explored(len(came_from), Violation(str(error), trail(came_from, state)), verdicts, finished)
            if len(came_from) > limit:
                raise AssertionError(f"more than {limit} states")
        layer = found
    return Explored(len(came_from), None, verdicts, finished)


def _steps(world: World, state: State, verdicts: Counter[str]) -> Steps:
    yield from _brokers(world, state)
    for attempt in dict.fromkeys(state.attempts):
        yield from _task(world, state, attempt, verdicts)
    if not state.up:
        yield from _starts(world, state)
        return
    if state.runs <= world.crashes:
        yield "the driver dies", _down(state)
    yield from _engine(world, state)


# -- Spark --------------------------------------------------------------------------------------------------------


def _starts(world: World, state: State) -> Steps:
    if state.runs <= world.crashes:
        started = state._replace(up=True, runs=state.runs + 1)
        yield "the driver starts", started
        for back in range(1, min(world.rolled_back, state.committed) + 1):
            yield f"{back} entries of the commit log are gone", started._replace(committed=state.committed - back)
            older = started._replace(committed=state.committed - back, log=state.committed - back)
            yield f"the checkpoint is {back} older", older
    if state.runs and state.day <= world.weeks * 8:
        # Brokers forget idle transactional ids as soon as markers (`transactional.id.expiration.ms`): nobody who was
        # initialised before can write after it.
        later = state._replace(day=state.day + 8)
        for number, lane in enumerate(state.lanes):
            later = later if lane.prepared else _initialised(later, number)
        yield "a week passes", later
    for number, lane in enumerate(state.lanes):
        if lane.marker is not None and lane.marker.day < state.day and not lane.pending:
            yield f"the marker of lane {number} expires", _with_lane(state, number, lane._replace(marker=None))
    if state.control is not None and state.control.day < state.day:
        yield "the control record expires", state._replace(control=None)


def _down(state: State) -> State:
    attempts = tuple(a._replace(watched=False) for a in state.attempts)
    return _with_attempts(state._replace(up=False, running=None, cached=(), fenced=False), attempts)


def _engine(world: World, state: State) -> Steps:
    if state.running is not None:
        yield from _batch(world, state)
    elif state.log > state.committed:
        yield from _begin(world, state)
    elif state.log < len(world.batches):
        yield f"Spark logs batch {state.log}", state._replace(log=state.log + 1)


def _begin(world: World, state: State) -> Steps:
    """`streamWriter`: a sink that is new gets its control record; another number of lanes needs a clean boundary."""
    lanes = _lanes(world, state)
    running = Running(begun=(0,) * _tasks(world, state), done=(False,) * _tasks(world, state))
    begun = state._replace(running=running)
    control = state.control
    is_kept = world.records_markers and (control or any(lane.record for lane in state.lanes))
    if is_kept and (control is None or control.day < state.day):
        yield from _renewed(state)
    elif control is None:
        if any(lane.marker or lane.pending for lane in state.lanes):
            yield "markers without a control record", _down(state)
            return
        fresh = Control(-1, lanes, 1, state.day, (0,) * lanes)
        yield "the sink is new", begun._replace(control=fresh)
    elif control.lanes == lanes:
        yield "the batch begins", begun
    else:
        yield from _with_other_lanes(world, state, begun, control)


def _renewed(state: State) -> Steps:
    """A record that is gone or old: nobody is let in, every lane is fenced, and its last marker is an offset again."""
    known = state.control or Control(-1, 1, 0, 0, ())
    if known.lanes < CLOSED:
        yield "the old record is closed", state._replace(control=known._replace(lanes=CLOSED + known.lanes))
    elif not state.fenced:
        if any(lane.prepared for lane in state.lanes):
            return
        fenced = state._replace(fenced=True)
        for number in range(len(state.lanes)):
            fenced = _initialised(fenced, number)
        yield "every lane is fenced, to renew the record", fenced
    elif not any(lane.prepared or lane.pending for lane in state.lanes):
        last = [newest(lane.marker, lane.record) for lane in state.lanes]
        lanes = tuple(
            lane._replace(marker=marker and marker._replace(day=state.day))
            for lane, marker in zip(state.lanes, last, strict=True)
        )
        control = renewed(known._replace(lanes=known.lanes % CLOSED), tuple(lane.marker for lane in lanes), state.day)
        yield "the record is renewed", state._replace(lanes=lanes, control=control, fenced=False)


def _with_other_lanes(world: World, state: State, begun: State, control: Control) -> Steps:
    """Close the record, so that nobody is let in any more; fence whoever was; look; open it with the new number."""
    lanes, known = _lanes(world, state), control.lanes % CLOSED
    if control.lanes < CLOSED and world.closes_first:
        yield "the record is closed", state._replace(control=control._replace(lanes=CLOSED + known))
    elif not state.fenced:
        if any(lane.prepared for lane in state.lanes):
            return
        fenced = state._replace(fenced=True)
        for number in range(known if world.fences_all else 0):
            fenced = _initialised(fenced, number)
        yield "every lane is fenced", fenced
    elif not any(lane.prepared or lane.pending for lane in state.lanes):
        ahead = any(lane.marker and lane.marker.batch > control.batch for lane in state.lanes)
        if known == lanes:
            yield "the record is open again", begun._replace(control=control._replace(lanes=known), fenced=False)
        elif ahead:
            yield "a batch between two numbers of lanes", _down(state._replace(control=control._replace(lanes=known)))
        else:
            other = Control(control.batch, lanes, control.generation + 1, state.day, (0,) * lanes)
            yield "another number of lanes", begun._replace(control=other, fenced=False)


def _batch(world: World, state: State) -> Steps:
    running, batch = state.running, state.committed
    assert running is not None
    if running.checked:
        _check_complete(world, state)
        yield f"Spark commits batch {batch}", state._replace(committed=batch + 1, running=None)
    elif all(running.done):
        yield from _commit(world, state, running)
    for task, begun in enumerate(running.begun):
        if begun < world.attempts and not running.done[task]:
            others = tuple(a._replace(watched=False) if a.watched and a.lane == task else a for a in state.attempts)
            attempt = Attempt(
                lane=task, batch=batch, layout=_layout(state), step="init", day=state.day, run=state.runs,
                is_first=not begun,
            )  # fmt: skip
            if not _given(world, attempt):
                attempt = attempt._replace(step="glance")  # nothing to write: perhaps nobody need be fenced
            elif not world.reads_after_init:
                attempt = attempt._replace(step="look")
            if state.cached and state.cached[task]:
                attempt = attempt._replace(step="read", current=True)
            started = state._replace(running=running._replace(begun=put(running.begun, task, begun + 1)))
            yield f"attempt {begun} of batch {batch} lane {task}", _with_attempts(started, (*others, attempt))


def _commit(world: World, state: State, running: Running) -> Steps:
    """All lanes reported; every marker is read again. A lane that is not stable yet is asked again."""
    batch, control = state.committed, state.control
    assert control is not None
    if any(lane.prepared or lane.pending for lane in state.lanes):
        return
    if control.batch < batch:
        for number in range(len(running.done)):
            marker = state.lanes[number].marker
            there = marker is not None and (marker.batch, marker.generation) == (batch, control.generation)
            rows = _rows(world, batch, number, _layout(state))
            expected = world.has_marker and world.own_group and rows
            surprising = there and marker is not None and marker.rows and not rows
            if (expected and not there) or surprising:
                yield f"commit finds {marker} of lane {number}", _down(state)
                return
        control = advanced(control, batch, tuple(lane.marker for lane in state.lanes), state.day, state.runs)
    yield "commit writes its record", state._replace(control=control, running=running._replace(checked=True))


# -- a task -------------------------------------------------------------------------------------------------------


def _task(world: World, state: State, attempt: Attempt, verdicts: Counter[str]) -> Steps:
    name = f"{'' if attempt.watched else 'zombie of '}batch {attempt.batch} lane {attempt.lane}"
    match attempt.step:
        case "look":
            seen = (_read(world, state, attempt.lane),)
            yield f"{name} looks at {seen[0]}", _moved(state, attempt, attempt._replace(step="init", seen=seen))
        case "glance":
            yield from _glanced(world, state, attempt, name, verdicts)
        case "init":
            if state.lanes[attempt.lane].prepared:
                return  # CONCURRENT_TRANSACTIONS: the client asks again
            after = _initialised(state, attempt.lane)
            yield f"{name} initialises, the reply is lost", after
            yield f"{name} initialises", _moved(after, attempt, attempt._replace(step="read", current=True))
        case "read":
            yield from _judged(world, state, attempt, name, verdicts)
        case "write":
            yield from _writes(world, state, attempt, name)
        case "offsets":
            yield from _sends_marker(world, state, attempt, name)
        case "end":
            yield from _ends(world, state, attempt, name)


def _asked(world: World, state: State, attempt: Attempt, *, is_alone: bool) -> Asked:
    return Asked(
        attempt.batch, attempt.lane, _lanes_of(world, attempt.layout), _given(world, attempt), attempt.day, state.day,
        attempt.run, attempt.is_first, is_alone,
    )  # fmt: skip


def _glanced(world: World, state: State, attempt: Attempt, name: str, verdicts: Counter[str]) -> Steps:
    """A look without waiting for what is under way, for a lane without rows: at its end, or it goes on as any other."""
    asked = _asked(world, state, attempt, is_alone=True)
    verdict = (
        world.judge(_read(world, state, attempt.lane), state.control, asked) if world.has_marker else Verdict.SKIPPED
    )
    verdicts[verdict.name] += 1
    if verdict is Verdict.REFUSED:
        yield f"{name} refuses at a glance", _refused(state, attempt)
    elif world.has_marker and world.marks_empty and may_have_run(state.control, asked):
        yield f"{name} has no rows, and others may have had some", _moved(state, attempt, attempt._replace(step="init"))
    else:
        yield f"{name} has no rows", _succeeded(world, state, attempt)


def _judged(world: World, state: State, attempt: Attempt, name: str, verdicts: Counter[str]) -> Steps:
    lane = state.lanes[attempt.lane]
    if world.require_stable and (lane.pending is not None or lane.offsets is not None):
        return  # UNSTABLE_OFFSET_COMMIT: asked again
    marker = attempt.seen[0] if attempt.seen else _read(world, state, attempt.lane)
    rows, lanes = _given(world, attempt), _lanes_of(world, attempt.layout)
    shift = attempt.layout if world.is_shuffled else 0
    if world.asserts_lane and any((row[1] + shift) % lanes != attempt.lane for row in rows):
        verdict = Verdict.REFUSED
    elif not world.has_marker:
        verdict = Verdict.WRITE if rows else Verdict.COMMITTED
    else:
        verdict = world.judge(marker, state.control, _asked(world, state, attempt, is_alone=False))
    verdicts[verdict.name] += 1
    match verdict:
        case Verdict.WRITE if attempt.current:
            generation = state.control.generation if state.control else 0
            admitted = attempt._replace(step="write" if rows else "offsets", seen=(), generation=generation)
            # A marker alone is a transaction too.
            opened = state if rows else _with_lane(state, attempt.lane, lane._replace(rows=(), ended=False))
            yield f"{name} finds {marker}, may write", _moved(opened, attempt, admitted)
        case Verdict.WRITE:
            yield f"{name} is fenced", _gone(state, attempt)
        case Verdict.COMMITTED | Verdict.SKIPPED:
            yield f"{name} finds its work done", _succeeded(world, state, attempt)
        case Verdict.REFUSED:
            yield f"{name} refuses {marker}", _refused(state, attempt)


def _writes(world: World, state: State, attempt: Attempt, name: str) -> Steps:
    lane, rows = state.lanes[attempt.lane], _given(world, attempt)
    if lane.prepared or (lane.rows is None) != (attempt.written == 0):
        yield f"{name} finds its transaction ended", _gone(state, attempt)
        return
    row = rows[attempt.written]
    written = attempt._replace(written=attempt.written + 1)
    if written.written == len(rows):
        written = written._replace(step="offsets")
    opened = lane._replace(rows=(*(lane.rows or ()), row), ended=False)
    yield f"{name} writes {row}", _moved(_with_lane(state, attempt.lane, opened), attempt, written)


def _sends_marker(world: World, state: State, attempt: Attempt, name: str) -> Steps:
    lane = state.lanes[attempt.lane]
    if lane.prepared or lane.rows is None:
        yield f"{name} finds its transaction ended", _gone(state, attempt)
        return
    lanes = _lanes_of(world, attempt.layout)
    marker = Marker(attempt.batch, lanes, _given(world, attempt), attempt.generation, state.day)
    ready = _moved(state, attempt, attempt._replace(step="end"))
    if not world.own_group:
        entry = Entry(attempt.lane, marker, "open")
        yield f"{name} sends its marker", ready._replace(ledger=(*ready.ledger, entry))
    elif world.has_marker:
        yield f"{name} sends its marker", _with_lane(ready, attempt.lane, lane._replace(offsets=marker))
    else:
        yield f"{name} has no marker", ready


def _ends(world: World, state: State, attempt: Attempt, name: str) -> Steps:
    lane = state.lanes[attempt.lane]
    held = _with_lane(state, attempt.lane, lane._replace(ghost=True))
    yield f"{name} sends EndTxn, which the network holds, and sends it again", held
    if lane.rows is None and lane.ended:
        yield f"{name} hears that it is committed", _succeeded(world, state, attempt)
    elif lane.rows is None:
        yield f"{name} finds its transaction ended", _gone(state, attempt)
    elif lane.prepared:
        yield f"{name} hears that it is committed", _succeeded(world, state, attempt)
    else:
        after = _end_arrives(state, attempt.lane)
        yield f"{name} commits, the reply is lost", after
        yield f"{name} commits", _succeeded(world, after, attempt)


def _succeeded(world: World, state: State, attempt: Attempt) -> State:
    after = _gone(state, attempt)
    running = after.running
    if not attempt.watched or running is None:
        return after
    if not world.new_producer and attempt.step == "end":
        cached = after.cached or (False,) * len(after.lanes)
        after = after._replace(cached=put(cached, attempt.lane, True))
    return after._replace(running=running._replace(done=put(running.done, attempt.lane, True)))


def _refused(state: State, attempt: Attempt) -> State:
    """A refusal that Spark hears ends the query; nobody hears the one of a task it gave up on."""
    after = _gone(state, attempt)
    return _down(after) if attempt.watched else after


# -- brokers ------------------------------------------------------------------------------------------------------


def _brokers(world: World, state: State) -> Steps:
    for number, lane in enumerate(state.lanes):
        if lane.prepared:
            yield f"lane {number} completes", _completed(world, state, number)
        elif lane.rows is not None:
            yield f"the transaction of lane {number} times out", _initialised(state, number)
        if lane.pending is not None:
            settled = lane._replace(marker=lane.pending, pending=None)
            yield f"the marker of lane {number} settles", _with_lane(state, number, settled)
        if lane.ghost and lane.rows is not None and not lane.prepared:
            arrived = _end_arrives(state, number)
            yield (
                f"a late EndTxn of lane {number} arrives",
                _with_lane(arrived, number, arrived.lanes[number]._replace(ghost=False)),
            )


def _initialised(state: State, number: int) -> State:
    """Grant the next epoch: an open transaction is aborted, and whoever has an earlier epoch can do no more."""
    lane = state.lanes[number]
    ledger = tuple(
        entry._replace(state="aborted") if (entry.lane, entry.state) == (number, "open") else entry
        for entry in state.ledger
    )
    fenced = Lane(pending=lane.pending, marker=lane.marker, record=lane.record)
    others = tuple(
        a._replace(current=False) if a.lane == number else a
        for a in state.attempts
        if a.lane != number or a.step not in {"write", "offsets", "end"}
    )
    cached = put(state.cached, number, False) if state.cached else ()
    return _with_attempts(_with_lane(state, number, fenced)._replace(ledger=ledger, cached=cached), others)


def _end_arrives(state: State, number: int) -> State:
    """EndTxn(commit) with the current epoch: the coordinator cannot tell for which transaction it was meant."""
    lane = state.lanes[number]
    return _with_lane(state, number, lane._replace(prepared=True))


def _completed(world: World, state: State, number: int) -> State:
    lane = state.lanes[number]
    assert lane.rows is not None
    visible = tuple(sorted((*state.visible, *lane.rows)))
    _check_repeats(tuple(row for row in visible if not world.is_shuffled or row[0] < state.committed))
    if world.own_group and world.has_marker:
        _check_whole(lane)
    ledger = tuple(
        entry._replace(state="committed") if (entry.lane, entry.state) == (number, "open") else entry
        for entry in state.ledger
    )
    done = lane._replace(rows=None, offsets=None, prepared=False, ended=True, pending=lane.offsets or lane.pending)
    if world.weeks:
        done = done._replace(record=lane.offsets or lane.record)
    return _with_lane(state, number, done)._replace(visible=visible, ledger=ledger)


def _read(world: World, state: State, number: int) -> Marker | None:
    if world.own_group:
        return state.lanes[number].marker
    found = None
    for entry in state.ledger:
        if entry.state == "open":
            break  # the last stable offset
        if entry.lane == number and entry.state == "committed":
            found = entry.marker
    return found


# -- what must hold -----------------------------------------------------------------------------------------------


def _check_repeats(visible: tuple[Row, ...]) -> None:
    if len(set(visible)) != len(visible):
        raise _BrokenError(f"duplicate: {visible}")


def _check_whole(lane: Lane) -> None:
    if lane.offsets is None or lane.offsets.rows != lane.rows:
        raise _BrokenError(f"torn: {lane.rows} committed, the marker says {lane.offsets}")


def _check_complete(world: World, state: State) -> None:
    """Whenever Spark commits a batch all rows of it and of those before are visible, or will be."""
    coming = [row for lane in state.lanes if lane.prepared for row in lane.rows or ()]
    expected = {(batch, k) for batch in range(state.committed + 1) for k in world.batches[batch]}
    if missing := expected - {*state.visible, *coming}:
        raise _BrokenError(f"lost: {sorted(missing)} where batch {state.committed} is committed")
    _check_repeats((*state.visible, *coming))


# -- small things -------------------------------------------------------------------------------------------------


def _layout(state: State) -> int:
    return int(state.runs > 1)


def _lanes_of(world: World, layout: int) -> int:
    return world.lanes_later or world.lanes if layout else world.lanes


def _lanes(world: World, state: State) -> int:
    return _lanes_of(world, _layout(state))


def _tasks(world: World, state: State) -> int:
    return world.tasks_later if world.tasks_later and _layout(state) else _lanes(world, state)


def _rows(world: World, batch: int, task: int, layout: int) -> tuple[Row, ...]:
    """Return the rows that Spark hands to a task: by the tasks of its run, which need not be the lanes."""
    lanes = _lanes_of(world, layout)
    tasks = world.tasks_later if world.tasks_later and layout else lanes
    shift = layout if world.is_shuffled else 0
    return tuple((batch, k) for k in world.batches[batch] if (k + shift) % lanes % tasks == task)


def _given(world: World, attempt: Attempt) -> tuple[Row, ...]:
    return _rows(world, attempt.batch, attempt.lane, attempt.layout)


def _with_lane(state: State, number: int, lane: Lane) -> State:
    return state._replace(lanes=put(state.lanes, number, lane))


def _moved(state: State, old: Attempt, new: Attempt) -> State:
    attempts = list(state.attempts)
    attempts.remove(old)
    return _with_attempts(state, (*attempts, new))


def _gone(state: State, attempt: Attempt) -> State:
    attempts = list(state.attempts)
    attempts.remove(attempt)
    return _with_attempts(state, tuple(attempts))


def _with_attempts(state: State, attempts: tuple[Attempt, ...]) -> State:
    return state._replace(attempts=tuple(sorted(attempts, key=lambda a: (a[:11], repr(a.seen)))))
