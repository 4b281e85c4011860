"""Every interleaving of a small world around `copy`: source offsets and records in one transaction per lane.

Partition p of the source is lane p's. What is modelled: Spark, which logs a plan before it runs, gives up on tasks that
live on, replays the last batch and may lose its driver, and its checkpoint with it, between any two steps; a start
that puts back the offsets that brokers have forgotten; transactions with epochs, prepared and not complete, lost
replies and time-outs; offsets that are committed and not materialised yet, and that expire. The steps are those of
`discovery.spark.sink.pipeline` and `renewal.restore_offsets`; a task that dies is one that takes no further step.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.property.exploring import BrokenError, Explored, put, walk

Row = tuple[int, int]
"""Partition and offset."""
Plan = tuple[tuple[int, int], ...]
"""Of each partition the first offset of a batch, and the one behind its last."""
RESTORE = ("close", "fence", "read", "commit", "open")


@dataclass(frozen=True)
class World:
    """How large the world is, and which rules hold in it; each field after `weeks` is a mutant's place."""

    ends: tuple[tuple[int, ...], ...] = ((1,), (2,))
    """Where each partition ends, as Spark plans one batch after the other."""
    crashes: int = 1
    attempts: int = 2
    """Of each task in each run; Spark gives up on one before it begins the next, which may live on."""
    weeks: int = 0
    """How often so long passes that brokers forget offsets; records stay."""
    fences_first: bool = True
    """A task reads its partition's offset after it has fenced whoever had the lane."""
    records: bool = True
    """What is committed as an offset is a record too."""
    restore: tuple[str, ...] = RESTORE
    """What a start does to put offsets back, in order."""
    asks_records: bool = True
    """A task that finds no offset asks for its record before it begins at the beginning."""
    waits: bool = True
    """For an offset that is committed and on its way."""


class Lane(NamedTuple):
    """What the brokers know of one transactional id, and of its partition. Durable."""

    rows: tuple[Row, ...] | None = None
    """Of the transaction that is open or prepared."""
    reached: int | None = None
    """The offset inside it."""
    prepared: bool = False
    ended: bool = False
    """The current epoch committed last: a repeated EndTxn of it is answered yes."""
    pending: int | None = None
    """Committed, and not yet what is read."""
    offset: int | None = None
    day: int = 0
    """When the offset was committed."""
    record: int | None = None
    held: bool = False
    """The current epoch is that of a driver that starts."""

    @property
    def is_stable(self) -> bool:
        return self.reached is None and self.pending is None


class Attempt(NamedTuple):
    """A task attempt; it goes on whether Spark listens or not."""

    lane: int
    start: int
    end: int
    steps: tuple[str, ...]
    current: bool = False
    """Its epoch is the lane's."""
    watched: bool = True
    known: int = -1


class State(NamedTuple):
    """The whole world between two steps."""

    lanes: tuple[Lane, ...]
    log: tuple[Plan, ...] = ()
    """Spark's offset log. Durable, unless the checkpoint is lost."""
    committed: int = 0
    closed: bool = False
    """The control record lets nobody in. Durable."""
    visible: tuple[Row, ...] = ()
    up: bool = False
    runs: int = 0
    starting: tuple[str, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    """Partitions whose offset a start has found missing, and what is recorded of them."""
    begun: tuple[int, ...] = ()
    """Attempts of each task of the batch that runs; empty: none does."""
    done: tuple[bool, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    day: int = 1


Steps = Iterator[tuple[str, State]]


def explore(world: World) -> Explored:
    """Walk every reachable state, or up to the first violation; counts states with everything copied."""
    first = State(lanes=(Lane(),) * len(world.ends[0]))
    return walk(first, lambda state, counts: _steps(world, state, counts), limit=3_000_000)


def _steps(world: World, state: State, counts: Counter[str]) -> Steps:
    is_over = state.up and not state.begun and not state.starting
    counts["finished"] += is_over and len(state.visible) == sum(world.ends[-1])
    yield from _brokers(world, state)
    for attempt in dict.fromkeys(state.attempts):
        yield from _task(world, state, attempt)
    if not state.up:
        if state.runs <= world.crashes:
            begun = state._replace(up=True, runs=state.runs + 1, starting=("check", "look"))
            yield "the driver starts", begun
            yield "the driver starts without its checkpoint", begun._replace(log=(), committed=0)
        return
    if state.runs <= world.crashes:
        yield "the driver dies", _down(state)
    if state.starting:
        yield from _start(world, state)
    elif state.begun:
        yield from _batch(world, state)
    elif len(state.log) > state.committed:
        size = len(state.lanes)
        yield "the batch begins", state._replace(begun=(0,) * size, done=(False,) * size)
    else:
        # Without a checkpoint a query begins at the group's offsets, else at the beginning.
        first = tuple(lane.offset or 0 for lane in state.lanes)
        starts = tuple(end for _, end in state.log[-1]) if state.log else first
        ends = next((e for e in world.ends if any(a > b for a, b in zip(e, starts, strict=True))), None)
        if ends is not None:
            plan = tuple((start, max(start, end)) for start, end in zip(starts, ends, strict=True))
            yield f"Spark logs {plan}", state._replace(log=(*state.log, plan))


def _down(state: State) -> State:
    left = tuple(a._replace(watched=False) for a in state.attempts)
    return _with(state._replace(up=False, starting=(), lost=(), begun=(), done=()), left)


# -- a start ------------------------------------------------------------------------------------------------------


def _start(world: World, state: State) -> Steps:
    step, after = state.starting[0], state._replace(starting=state.starting[1:])
    is_prepared = any(lane.prepared for lane in state.lanes)
    match step:
        case "check" if state.closed and not is_prepared:
            yield "a record that was left closed is opened, behind fences", _fenced(after)._replace(closed=False)
        case "check" if not state.closed:
            yield "the record is open", after
        case "look":
            gone = any(lane.offset is None and lane.record is not None for lane in state.lanes)
            yield "offsets are looked for", after._replace(starting=world.restore if gone else ())
        case "close" | "open":
            yield f"the record is to {step}", after._replace(closed=step == "close")
        case "fence" if not is_prepared:
            yield "every lane is fenced", _fenced(after)
        case "read" if not world.waits or all(lane.is_stable for lane in state.lanes):
            lost = tuple(
                (n, lane.record)
                for n, lane in enumerate(state.lanes)
                if lane.offset is None and lane.record is not None
            )
            yield f"{lost} are to be put back", after._replace(lost=lost)
        case "commit" if not state.lanes[0].held:
            yield "the first lane is fenced by another, and the start fails", _down(state)
        case "commit":
            for number, offset in state.lost:
                after = _with_lane(after, number, after.lanes[number]._replace(offset=offset, day=state.day))
            yield "offsets are put back", after._replace(lost=())


def _fenced(state: State) -> State:
    for number in range(len(state.lanes)):
        state = _initialised(state, number)
        state = _with_lane(state, number, state.lanes[number]._replace(held=True))
    return state


# -- a batch ------------------------------------------------------------------------------------------------------


def _batch(world: World, state: State) -> Steps:
    plan = state.log[state.committed]
    if all(state.done):
        _check_complete(state, plan)
        yield f"Spark commits {plan}", state._replace(committed=state.committed + 1, begun=(), done=())
        return
    for number, begun in enumerate(state.begun):
        if begun < world.attempts and not state.done[number]:
            others = tuple(a._replace(watched=False) if a.watched and a.lane == number else a for a in state.attempts)
            start, end = plan[number]
            steps = ("init", "control", "read") if world.fences_first else ("read", "init", "control")
            attempt = Attempt(number, start, end, (*steps, "write", "attach", "end"))
            started = state._replace(begun=put(state.begun, number, begun + 1))
            if start == end:
                yield f"lane {number} has no rows", _done(started, attempt)
            else:
                yield f"attempt {begun} of lane {number}", _with(started, (*others, attempt))


def _task(world: World, state: State, attempt: Attempt) -> Steps:
    lane, name = state.lanes[attempt.lane], f"{'' if attempt.watched else 'zombie of '}lane {attempt.lane}"
    on = attempt._replace(steps=attempt.steps[1:])
    match attempt.steps[0]:
        case "init" if not lane.prepared:
            after = _initialised(state, attempt.lane)
            yield f"{name} initialises, the reply is lost", after
            yield f"{name} initialises", _moved(after, attempt, on._replace(current=True))
        case "control" if state.closed:
            yield f"{name} is not let in", _failed(state, attempt)
        case "control":
            yield f"{name} is let in", _moved(state, attempt, on)
        case "read" if lane.is_stable or not world.waits:
            recorded = lane.record if lane.offset is None and world.asks_records else lane.offset
            known = recorded or 0
            if known >= attempt.end:
                yield f"{name} finds its work done", _done(state, attempt)
            else:
                yield f"{name} reads {known}", _moved(state, attempt, on._replace(known=known))
        case "write" | "attach" | "end" if not attempt.current:
            yield f"{name} is fenced", _failed(state, attempt)
        case "write" | "attach" | "end":
            yield from _sends(state, attempt, on, name)


def _sends(state: State, attempt: Attempt, on: Attempt, name: str) -> Steps:
    lane = state.lanes[attempt.lane]
    match attempt.steps[0]:
        case "write":
            rows = tuple((attempt.lane, n) for n in range(max(attempt.start, attempt.known), attempt.end))
            opened = _with_lane(state, attempt.lane, lane._replace(rows=rows, ended=False))
            yield f"{name} writes {rows}", _moved(opened, attempt, on)
        case "attach" if lane.rows is not None:
            attached = _with_lane(state, attempt.lane, lane._replace(reached=attempt.end))
            yield f"{name} adds {attempt.end}", _moved(attached, attempt, on)
        case "end" if lane.rows is not None and not lane.prepared:
            after = _with_lane(state, attempt.lane, lane._replace(prepared=True))
            yield f"{name} commits, the reply is lost", after
            yield f"{name} commits", _done(after, attempt)
        case "end" if lane.prepared or lane.ended:
            yield f"{name} hears that it is committed", _done(state, attempt)
        case _:
            yield f"{name} finds its transaction ended", _failed(state, attempt)


def _done(state: State, attempt: Attempt) -> State:
    after = _gone(state, attempt)
    return after._replace(done=put(after.done, attempt.lane, True)) if attempt.watched and after.done else after


def _failed(state: State, attempt: Attempt) -> State:
    """Spark tries a task again that failed, as it does one that it has given up on."""
    return _gone(state, attempt)


# -- brokers ------------------------------------------------------------------------------------------------------


def _brokers(world: World, state: State) -> Steps:
    for number, lane in enumerate(state.lanes):
        if lane.prepared:
            yield f"lane {number} completes", _completed(world, state, number)
        elif lane.rows is not None:
            yield f"the transaction of lane {number} times out", _initialised(state, number)
        if lane.pending is not None:
            settled = lane._replace(offset=lane.pending, pending=None, day=state.day)
            yield f"the offset of lane {number} settles", _with_lane(state, number, settled)
        if lane.offset is not None and lane.day < state.day and lane.is_stable:
            yield f"the offset of lane {number} expires", _with_lane(state, number, lane._replace(offset=None))
    if state.day <= world.weeks and not any(lane.prepared for lane in state.lanes):
        later = state
        for number in range(len(state.lanes)):
            later = _initialised(later, number)  # brokers forget idle transactional ids as soon as offsets
        yield "a week passes", later._replace(day=state.day + 1)


def _initialised(state: State, number: int) -> State:
    """Grant the next epoch: an open transaction is aborted, and whoever has an earlier epoch can do no more."""
    lane = state.lanes[number]
    fenced = Lane(pending=lane.pending, offset=lane.offset, day=lane.day, record=lane.record)
    others = tuple(a._replace(current=False) if a.lane == number else a for a in state.attempts)
    return _with(_with_lane(state, number, fenced), others)


def _completed(world: World, state: State, number: int) -> State:
    lane = state.lanes[number]
    assert lane.rows is not None
    visible = tuple(sorted((*state.visible, *lane.rows)))
    if len(set(visible)) != len(visible):
        raise BrokenError(f"duplicate: {visible}")
    done = lane._replace(rows=None, reached=None, prepared=False, ended=True, pending=lane.reached)
    if world.records:
        done = done._replace(record=lane.reached)
    return _with_lane(state, number, done)._replace(visible=visible)


def _check_complete(state: State, plan: Plan) -> None:
    coming = [row for lane in state.lanes if lane.prepared and lane.rows for row in lane.rows]
    there = {*state.visible, *coming}
    expected = {(number, n) for number, (_, end) in enumerate(plan) for n in range(end)}
    if missing := expected - there:
        raise BrokenError(f"lost: {sorted(missing)} where {plan} is committed")


# -- small things -------------------------------------------------------------------------------------------------


def _with_lane(state: State, number: int, lane: Lane) -> State:
    return state._replace(lanes=put(state.lanes, number, lane))


def _moved(state: State, old: Attempt, new: Attempt) -> State:
    after = _gone(state, old)
    return _with(after, (*after.attempts, new))


def _gone(state: State, attempt: Attempt) -> State:
    attempts = list(state.attempts)
    if attempt in attempts:
        attempts.remove(attempt)
    return _with(state, tuple(attempts))


def _with(state: State, attempts: tuple[Attempt, ...]) -> State:
    return state._replace(attempts=tuple(sorted(attempts)))
