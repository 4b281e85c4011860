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

from discovery.spark.sink.lanes import OnMismatch
from discovery.spark.sink.marker import CLOSED
from tests.property.exploring import BrokenError, Explored, put, walk
from tests.property.lanes_markers import (
    Asked,
    Control,
    Marker,
    Row,
    Verdict,
    advanced,
    beginning,
    may_have_run,
    newest,
    renewed,
    taken_over,
)
from tests.property.lanes_world import Attempt, Change, Entry, Lane, Running, State, World

OTHER = 100
"""Added to the number of a row that an execution makes with other content."""
TAKEOVER = {
    "after": ("record", "fence", "stamp"),
    "before": ("fence", "record"),
    "never": ("record",),
    "unstamped": ("record", "fence"),
}


Steps = Iterator[tuple[str, State]]
Seen = tuple[Marker | None, ...]


def explore(world: World, *, limit: int = 2_000_000) -> Explored:
    """Walk every reachable state, or up to the first violation; counts verdicts, and states with all committed."""
    first = State(lanes=(Lane(),) * max(world.lanes, world.lanes_later or 0))
    return walk(first, lambda state, counts: _steps(world, state, counts), limit=limit)


def _steps(world: World, state: State, verdicts: Counter[str]) -> Steps:
    verdicts["finished"] += state.committed == len(world.batches)
    yield from _brokers(world, state)
    yield from _operator(world, state)
    for attempt in dict.fromkeys(state.attempts):
        yield from _task(world, state, attempt, verdicts)
    if not state.up:
        yield from _starts(world, state)
        return
    # Where late words are looked for the first driver leaves one: the rest is in other worlds.
    if state.runs <= world.crashes and not (world.late_words and state.runs == 1):
        yield "the driver dies", _down(state)
    yield from _engine(world, state)


# -- Spark --------------------------------------------------------------------------------------------------------


def _starts(world: World, state: State) -> Steps:
    # A late word in the middle of a takeover undoes its record: whoever starts then finds what was there before.
    if state.runs <= world.crashes and not (state.taking and world.late_words):
        started = state._replace(up=True, runs=state.runs + 1)
        yield "the driver starts", started
        for back in range(1, min(world.rolled_back, state.committed) + 1):
            yield f"{back} entries of the commit log are gone", started._replace(committed=state.committed - back)
            older = started._replace(committed=state.committed - back, log=state.committed - back)
            yield f"the checkpoint is {back} older", older
    if state.runs and state.day <= world.weeks * 8 and not state.taking:
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
    return _with_attempts(state._replace(up=False, running=None, cached=(), change=None), attempts)


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
    begun = state._replace(running=running, change=None)
    control = state.control
    is_kept = world.records_markers and (control or any(lane.record or lane.offsets for lane in state.lanes))
    if state.change is not None:
        yield from (_renewed if state.change.renews else _with_other_lanes)(world, state, begun, state.change)
    elif is_kept and (control is None or control.day < state.day):
        known = control or Control(-1, 1, 0, 0)
        yield from _closed(world, state, Change(known, renews=True))
    elif control is None:
        if any(lane.marker or lane.pending for lane in state.lanes):
            yield "markers without a control record", _down(state)
            return
        fresh = Control(-1, lanes, 1, state.day)
        yield from _said(world, state, "the sink is new", begun._replace(control=fresh))
    elif control.lanes == lanes:
        yield "the batch begins", begun
    else:
        change = Change(control._replace(lanes=control.lanes % CLOSED), renews=False)
        yield from _closed(world, state, change)


def _said(world: World, state: State, name: str, after: State) -> Steps:
    """The driver writes a control record, or dies with it on its way."""
    yield name, after
    if world.late_words and state.late is None and state.runs <= world.crashes:
        yield f"{name}: on its way, as the driver dies", _down(state)._replace(late=after.control)


def _closed(world: World, state: State, change: Change) -> Steps:
    """Nobody is let in any more."""
    begun = state._replace(change=change)
    if not change.renews and not world.closes_first:
        yield "the number of lanes is to change", begun
        return
    closed = change.control._replace(lanes=CLOSED + change.control.lanes % CLOSED)
    yield from _said(world, state, "the record is closed", begun._replace(control=closed))


def _fenced(state: State, change: Change, lanes: int) -> Steps:
    if any(lane.prepared for lane in state.lanes):
        return
    fenced = state._replace(change=change._replace(fenced=True))
    for number in range(lanes):
        fenced = _initialised(fenced, number)
        fenced = _with_lane(fenced, number, fenced.lanes[number]._replace(held=True))
    yield "every lane is fenced", fenced


def _renewed(world: World, state: State, _begun: State, change: Change) -> Steps:
    """A record that is gone or old: nobody is let in, every lane is fenced, and its last marker is an offset again."""
    known = change.control
    if not change.fenced:
        yield from _fenced(state, change, len(state.lanes))
    elif not all(lane.held for lane in state.lanes):
        yield "a lane is fenced by another, and the start fails", _down(state)
    elif not any(lane.prepared or lane.pending for lane in state.lanes):
        last = [newest(lane.marker, lane.record) for lane in state.lanes]
        lanes = tuple(
            lane._replace(marker=marker and marker._replace(day=state.day))
            for lane, marker in zip(state.lanes, last, strict=True)
        )
        control = renewed(known, tuple(lane.marker for lane in lanes), state.day)
        after = state._replace(lanes=lanes, control=control, change=None)
        yield from _said(world, state, "the record is renewed", after)


def _with_other_lanes(world: World, state: State, begun: State, change: Change) -> Steps:
    """Closed, so that nobody is let in any more: fence whoever was; look; leave a marker in each lane; open it."""
    lanes, known = _lanes(world, state), change.control
    if not change.fenced:
        yield from _fenced(state, change, known.lanes if world.fences_all else 0)
        return
    if any(lane.prepared or lane.pending for lane in state.lanes):
        return
    found = [lane.marker for lane in state.lanes[: known.lanes] if lane.marker]
    if any(m.generation > known.generation and m.batch != known.batch for m in found):
        yield "the record is of an earlier generation than a marker", _down(state)
        return
    newer = max([known.generation, *(marker.generation for marker in found)])
    if not change.stamped and any(m.batch > known.batch for m in found if m.generation >= known.generation):
        after = state._replace(control=known, change=None)
        yield from _said(
            world, state, "a batch between two numbers of lanes", after if known.lanes == lanes else _down(after)
        )
    elif known.lanes == lanes and newer == known.generation:
        yield from _said(world, state, "the record is open again", begun._replace(control=known))
    else:
        generation = newer if change.stamped else newer + 1
        other = Control(known.batch, lanes, generation, state.day, run=known.run)
        if not world.stamps or change.stamped == known.lanes:
            yield from _said(world, state, "another number of lanes", begun._replace(control=other))
        elif not state.lanes[change.stamped].held:
            yield "a lane is fenced by another, and the start fails", _down(state)
        else:
            number = change.stamped
            marked = state.lanes[number]._replace(marker=beginning(other))
            after = state._replace(change=change._replace(stamped=number + 1))
            yield (
                f"lane {number} gets a marker of the new generation",
                _with_lane(after, number, _recorded(world, marked)),
            )


def _recorded(world: World, lane: Lane) -> Lane:
    return lane._replace(record=lane.marker) if world.weeks else lane


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
                lane=task, batch=batch, layout=_layout(world, state), step="init", day=state.day, run=state.runs,
                is_first=not begun,
            )  # fmt: skip
            if not _given(world, attempt) or world.glances or not world.reads_after_init:
                attempt = attempt._replace(step="glance")
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
            rows = _rows(world, batch, number, _layout(world, state))
            expected = world.has_marker and world.own_group and rows
            surprising = there and marker is not None and marker.rows and not rows
            if (expected and not there) or surprising:
                yield f"commit finds {marker} of lane {number}", _down(state)
                return
        control = advanced(control, batch, tuple(lane.marker for lane in state.lanes), state.day, state.runs)
    checked = state._replace(control=control, running=running._replace(checked=True))
    yield from _said(world, state, "commit writes its record", checked)


# -- a task -------------------------------------------------------------------------------------------------------


def _task(world: World, state: State, attempt: Attempt, verdicts: Counter[str]) -> Steps:
    name = f"{'' if attempt.watched else 'zombie of '}batch {attempt.batch} lane {attempt.lane}"
    match attempt.step:
        case "glance":
            seen = (_glance(world, state, attempt.lane),)
            if world.glances:
                glancing = attempt._replace(step="glanced", seen=seen)
                yield f"{name} glances at {seen[0]}", _moved(state, attempt, glancing)
            else:
                yield from _glanced(world, state, attempt, name, verdicts, seen=seen)
        case "glanced":
            yield from _glanced(world, state, attempt, name, verdicts, seen=attempt.seen)
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
        attempt.run, attempt.is_first, is_alone, world.policy,
    )  # fmt: skip


def _glance(world: World, state: State, number: int) -> Marker | None:
    """Return what is committed, without waiting for what is under way."""
    lane = state.lanes[number]
    if not world.glance_is_patient and (lane.offsets is not None or lane.pending is not None):
        return None
    return _read(world, state, number)


def _glanced(world: World, state: State, attempt: Attempt, name: str, verdicts: Counter[str], *, seen: Seen) -> Steps:
    """What is refused at a glance ends there, and so does a lane without rows for which nobody can have had some."""
    marker, rows = seen[0], _given(world, attempt)
    asked = _asked(world, state, attempt, is_alone=not rows)
    verdict = world.judge(marker, state.control, asked) if world.has_marker else Verdict.SKIPPED
    verdicts[verdict.name] += 1
    goes_on = attempt._replace(step="init", seen=() if world.reads_after_init else seen)
    if verdict is Verdict.REFUSED:
        yield f"{name} refuses {marker} at a glance", _refused(world, state, attempt)
    elif rows:
        yield f"{name} goes on", _moved(state, attempt, goes_on)
    elif world.has_marker and world.marks_empty and may_have_run(state.control, asked):
        yield f"{name} has no rows, and others may have had some", _moved(state, attempt, goes_on)
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
            if not world.keeps_input and marker is not None and marker.batch == attempt.batch:
                rows = ()
            admitted = attempt._replace(
                step="write" if rows else "offsets", seen=(), generation=generation, is_spent=not rows
            )
            # A marker alone is a transaction too.
            opened = state if rows else _with_lane(state, attempt.lane, lane._replace(rows=(), ended=False))
            yield f"{name} finds {marker}, may write", _moved(opened, attempt, admitted)
        case Verdict.WRITE:
            yield f"{name} is fenced", _gone(state, attempt)
        case Verdict.COMMITTED | Verdict.SKIPPED:
            yield f"{name} finds its work done", _succeeded(world, state, attempt)
        case Verdict.REFUSED:
            yield f"{name} refuses {marker}", _refused(world, state, attempt)


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
    rows = () if attempt.is_spent else _given(world, attempt)
    marker = Marker(attempt.batch, lanes, rows, attempt.generation, state.day)
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


def _refused(world: World, state: State, attempt: Attempt) -> State:
    """A refusal that Spark hears ends the query; nobody hears the one of a task it gave up on."""
    if attempt.watched and world.is_healthy:
        raise BrokenError(f"refused without a reason: batch {attempt.batch} lane {attempt.lane}")
    after = _gone(state, attempt)
    return _down(after) if attempt.watched else after


# -- brokers ------------------------------------------------------------------------------------------------------


def _operator(world: World, state: State) -> Steps:
    """First the record of a new generation, then the fences: who was let in before loses its transaction."""
    begins = state.taken < world.takeovers and not state.up
    steps = state.taking or (TAKEOVER[world.fences_takeover] if begins else ())
    if not steps or state.control is None:
        return
    after = state._replace(taking=steps[1:], taken=state.taken + (not state.taking))
    if steps[0] == "fence":
        if not any(lane.prepared for lane in state.lanes):
            for number in range(len(state.lanes)):
                after = _initialised(after, number)
                after = _with_lane(after, number, after.lanes[number]._replace(held=True))
            yield "the operator fences every lane", after
        return
    if steps[0] == "stamp":
        yield from _stamped(world, state, after)
        return
    control = taken_over(state.control, tuple(lane.marker for lane in state.lanes), state.day)
    taken = after._replace(control=control, taker=control, visible=(), base=state.committed)
    yield "the operator takes the sink over", taken
    yield "the operator takes the sink over, for a new checkpoint", taken._replace(log=0, committed=0, base=0)


def _stamped(world: World, state: State, after: State) -> Steps:
    """A marker in each lane, unless it has one of that generation; who has fenced the operator there is fenced too."""
    control = state.taker
    assert control is not None
    missing = [
        n for n, lane in enumerate(state.lanes) if not lane.marker or lane.marker.generation < control.generation
    ]
    if not missing:
        yield "each lane has a marker of the new generation", after._replace(taker=None)
        return
    number = missing[0]
    lane = state.lanes[number]
    if lane.prepared or lane.pending:
        return
    if lane.held:
        marked = _recorded(world, lane._replace(marker=beginning(control)))
        yield f"lane {number} gets a marker of the new generation", _with_lane(state, number, marked)
    else:
        again = _initialised(state, number)
        again = _with_lane(again, number, again.lanes[number]._replace(held=True))
        yield f"the operator fences lane {number} again", again


def _brokers(world: World, state: State) -> Steps:
    if state.late is not None:
        yield f"the late {state.late} arrives", state._replace(control=state.late, late=None)
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
    visible = tuple(sorted((*state.visible, *_counted(state, lane))))
    _check_repeats(world, tuple(row for row in visible if not world.is_shuffled or row[0] < state.committed))
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


def _check_repeats(world: World, visible: tuple[Row, ...]) -> None:
    if world.policy is OnMismatch.REWRITE:
        return
    if len({(batch, k % OTHER) for batch, k in visible}) != len(visible):
        raise BrokenError(f"duplicate: {visible}")


def _check_whole(lane: Lane) -> None:
    if lane.offsets is None or lane.offsets.rows != lane.rows:
        raise BrokenError(f"torn: {lane.rows} committed, the marker says {lane.offsets}")


def _check_complete(world: World, state: State) -> None:
    """Whenever Spark commits a batch all rows of it and of those before are visible, or will be."""
    coming = [row for lane in state.lanes if lane.prepared for row in _counted(state, lane)]
    there = {*state.visible, *coming}
    expected = {(batch, k) for batch in range(state.base, state.committed + 1) for k in world.batches[batch]}
    if world.policy is OnMismatch.REWRITE:
        other = OTHER * _layout(world, state) if world.varies else 0
        expected = {(batch, k + other) for batch, k in expected if batch == state.committed}
        expected |= {(state.committed, k) for k in _more(world, _layout(world, state))}
    else:
        there = {(batch, k % OTHER) for batch, k in there}
        if world.policy is OnMismatch.FAIL:
            expected |= {(state.committed, k) for k in _more(world, _layout(world, state))}
    if missing := expected - there:
        raise BrokenError(f"lost: {sorted(missing)} where batch {state.committed} is committed")
    _check_repeats(world, (*state.visible, *coming))


def _counted(state: State, lane: Lane) -> tuple[Row, ...]:
    """Return the rows of a transaction, but for what an operator is taking over."""
    old = state.control is not None and lane.offsets is not None and lane.offsets.generation < state.control.generation
    return () if state.taking and old else lane.rows or ()


# -- small things -------------------------------------------------------------------------------------------------


def _layout(world: World, state: State) -> int:
    return int(state.runs >= world.later_from)


def _lanes_of(world: World, layout: int) -> int:
    return world.lanes_later or world.lanes if layout else world.lanes


def _lanes(world: World, state: State) -> int:
    return _lanes_of(world, _layout(world, state))


def _tasks(world: World, state: State) -> int:
    return world.tasks_later if world.tasks_later and _layout(world, state) else _lanes(world, state)


def _rows(world: World, batch: int, task: int, layout: int) -> tuple[Row, ...]:
    """Return the rows that Spark hands to a task: by the tasks of its run, which need not be the lanes."""
    lanes = _lanes_of(world, layout)
    tasks = world.tasks_later if world.tasks_later and layout else lanes
    shift = layout if world.is_shuffled else 0
    other = OTHER * layout if world.varies else 0
    planned = (*world.batches[batch], *_more(world, layout))
    return tuple((batch, k + other) for k in planned if (k + shift) % lanes % tasks == task)


def _more(world: World, layout: int) -> tuple[int, ...]:
    return world.more_later if layout else ()


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
    return state._replace(attempts=tuple(sorted(attempts, key=lambda a: (a[:12], repr(a.seen)))))
