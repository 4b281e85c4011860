"""What the lanes model knows of markers, and how it asks the sink's own rules with them."""

from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import NamedTuple

from discovery.core.errors import SinkRefusedError
from discovery.spark.sink import lanes, marker
from discovery.spark.sink.lanes import Attempt, Compare, OnMismatch, Refuse, Skip, Write

Row = tuple[int, int]
"""Batch and number inside it: what it means to be this row and no other."""
QUERY = "q"
DAY = 86_400


class Verdict(Enum):
    """What a task does after it has read its marker."""

    WRITE = "write"
    COMMITTED = "committed"
    SKIPPED = "skipped"
    REFUSED = "refused"


class Marker(NamedTuple):
    """The proof that a lane's rows of a batch are committed; the rows stand for count and fingerprint."""

    batch: int
    lanes: int
    rows: tuple[Row, ...] | None
    """None: it says where a generation begins."""
    generation: int
    day: int

    def real(self) -> marker.Marker:
        return marker.Marker(
            query_id=QUERY,
            batch_id=self.batch,
            lanes=self.lanes,
            rows=len(self.rows or ()),
            fingerprint=str(self.rows),
            attempt="" if self.rows is None else "a",
            wall_seconds=self.day * DAY,
            generation=self.generation,
        )


class Control(NamedTuple):
    """The driver's record of the last batch whose markers were all there."""

    batch: int
    lanes: int
    generation: int
    day: int
    lane_days: tuple[int, ...] = ()
    run: int = 0
    """The run that wrote it."""

    def real(self) -> marker.Control:
        return marker.Control(
            query_id=QUERY if self.batch >= 0 else "",
            batch_id=self.batch,
            lanes=self.lanes,
            generation=self.generation,
            wall_seconds=self.day * DAY,
            lane_walls=tuple(day * DAY for day in self.lane_days),
            run=_run(self.run),
        )


class Asked(NamedTuple):
    """Which attempt asks, and what it would write."""

    batch: int
    lane: int
    lanes: int
    rows: tuple[Row, ...]
    day: int
    """When the attempt began."""
    now: int
    run: int
    is_first: bool
    is_alone: bool
    """Nobody else can have had rows of this batch for this lane."""
    policy: OnMismatch

    def real(self) -> Attempt:
        return Attempt(
            query_id=QUERY,
            batch_id=self.batch,
            lane=self.lane,
            lanes=self.lanes,
            attempt="",
            wall_seconds=self.day * DAY,
            run=_run(self.run),
            is_first=self.is_first,
        )


def _run(number: int) -> str:
    return str(number) if number else ""


@cache
def may_have_run(control: Control | None, asked: Asked) -> bool:
    """Ask `discovery.spark.sink.lanes.may_have_run`."""
    return asked.lanes > 1 and lanes.may_have_run(control and control.real(), asked.real())


Judge = Callable[[Marker | None, Control | None, Asked], Verdict]


@cache
def real_judge(found: Marker | None, control: Control | None, asked: Asked) -> Verdict:
    """Decide with `judge` and `settle` of `discovery.spark.sink.lanes`."""
    match lanes.judge(found and found.real(), control and control.real(), asked.real(), now_seconds=asked.now * DAY):
        case Refuse():
            return Verdict.REFUSED
        case Compare(marker=committed):
            try:
                policy = lanes.settle(
                    committed,
                    rows=len(asked.rows),
                    fingerprint=str(asked.rows),
                    policy=asked.policy,
                    sink_id="",
                    lane=0,
                )
            except SinkRefusedError:
                return Verdict.REFUSED
            return Verdict.WRITE if policy is OnMismatch.REWRITE else Verdict.COMMITTED
        case Skip():
            return Verdict.SKIPPED
        case Write():
            return Verdict.COMMITTED if asked.is_alone and not asked.rows else Verdict.WRITE


@cache
def newest(offset: Marker | None, record: Marker | None) -> Marker | None:
    """Choose with `discovery.spark.sink.marker.newest`."""
    both = [marker for marker in (offset, record) if marker is not None]
    real = marker.newest(*({0: found.real()} for found in both)).get(0)
    return next((found for found in both if found.real() == real), None)


@cache
def renewed(control: Control, markers: tuple[Marker | None, ...], day: int) -> Control:
    """Renew the control record with `discovery.spark.sink.marker.renewed`."""
    found = {number: known.real() for number, known in enumerate(markers) if known is not None}
    if not found and not control.generation:
        return control._replace(generation=1, lanes=control.lanes, day=day)
    real = marker.renewed(control.real(), found, wall=day * DAY)
    days = tuple(wall // DAY for wall in real.lane_walls)
    return Control(real.batch_id, real.lanes, real.generation, day, days, control.run)


@cache
def advanced(control: Control, batch: int, markers: tuple[Marker | None, ...], day: int, run: int) -> Control:
    """Write the control record with `discovery.spark.sink.marker.advanced`."""
    found = {number: known.real() for number, known in enumerate(markers[: control.lanes]) if known is not None}
    real = marker.advanced(control.real(), query_id=QUERY, batch_id=batch, markers=found, wall=day * DAY)
    days = tuple(wall // DAY for wall in real.lane_walls)
    return Control(real.batch_id, real.lanes, real.generation, real.wall_seconds // DAY, days, run)


@cache
def beginning(control: Control) -> Marker:
    """Begin a generation by `discovery.spark.sink.marker.beginning`."""
    real = marker.beginning(control.real())
    return Marker(real.batch_id, real.lanes, None, real.generation, control.day)


@cache
def taken_over(control: Control, markers: tuple[Marker | None, ...], day: int) -> Control:
    """Take over with `discovery.spark.sink.marker.taken_over`."""
    generations = [found.generation for found in markers if found is not None]
    real = marker.taken_over(control.real(), generations, query_id="", wall=day * DAY)
    return Control(real.batch_id, real.lanes, real.generation, day)
