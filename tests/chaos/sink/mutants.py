"""Writers that look as good as ours, each without one reason of the protocol: what `chaos` must find to prove anything.

Each is put into the processes that play a task or a commit, and comes with the faults under which it shows.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from discovery.kafka.transactions import Transaction
from discovery.spark.sink import writer
from discovery.spark.sink.ledger import SinkLedger
from discovery.spark.sink.options import SinkOptions
from discovery.spark.sink.writer import LaneWriter
from tests.chaos.sink.faults import Fault


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A broken writer, the fault that shows it, and the check that must find it."""

    break_: Callable[[], None]
    fault: Fault | None
    found_by: str


def replace(owner: Any, name: str, other: Any) -> None:
    """Replace an attribute for the life of this process."""
    patch.object(owner, name, other).start()


def _no_marker() -> None:
    replace(SinkLedger, "attach", lambda *_: None)
    _unconfirmed()


def _marker_before_init() -> None:
    judged = LaneWriter._judged

    def early(self: Any) -> Any:
        limit = self._timeout_seconds
        self.seen = (
            self._ledger.glance(self._attempt.lane, timeout_seconds=limit),
            self._ledger.control(timeout_seconds=limit),
        )
        return judged(self)

    replace(LaneWriter, "_judged", early)
    replace(LaneWriter, "_noted", lambda self: self.seen)


def _commit_not_awaited() -> None:
    """As where the process ends right after its word: nobody waits, so nobody sends what is left."""
    replace(Transaction, "commit", lambda *_: None)
    _unconfirmed()


def _no_fence() -> None:
    replace(SinkOptions, "transactional_id", lambda self, lane: f"{self.sink_id}-{lane}-{uuid.uuid4()}")


def _unconfirmed() -> None:
    replace(SinkLedger, "glance", lambda *_, **__: None)
    replace(SinkLedger, "markers", lambda *_, **__: {})
    replace(writer, "_check_markers", lambda *_: None)
    # A complete batch without a marker had no records: a replay that has some would be refused.
    replace(writer, "settle", lambda *_, **__: None)


MUTANTS: Mapping[str, Mutant] = {
    "no marker": Mutant(
        break_=_no_marker, fault=Fault(batch=0, point="step7.before", action="kill"), found_by="C2 duplicate"
    ),
    "marker before init": Mutant(
        break_=_marker_before_init,
        fault=Fault(batch=0, point="step6.sent", action="stop", meanwhile="step2.before"),
        found_by="C2 duplicate",
    ),
    "commit not awaited": Mutant(break_=_commit_not_awaited, fault=None, found_by="C1 lost"),
    "no fence": Mutant(
        break_=_no_fence, fault=Fault(batch=0, point="step5.middle", action="stop"), found_by="C2 duplicate"
    ),
}
