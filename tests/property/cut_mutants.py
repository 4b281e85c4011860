"""Rules that look as good as those of `discovery.spark.source.cuts.rules` and lose or repeat rows.

Each drops one reason.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from discovery.core.model import TopicPartition
from discovery.spark.source.cuts import rules as cut
from discovery.spark.source.cuts.rules import Pending, Plan, PlannedRange, Settlement
from tests.property.cut_model import World

Ranges = Mapping[TopicPartition, PlannedRange]


def overwrite(plan: Plan, proposed: Mapping[TopicPartition, int], **more: Any) -> Settlement:
    """Let the last decision win."""
    return cut.settle(replace(plan, settled={}), proposed, **more)


def forget_read(plan: Plan, proposed: Mapping[TopicPartition, int], **more: Any) -> Settlement:
    """Forget which pieces were read."""
    found = cut.settle(plan, proposed, **more)
    return replace(found, plan=replace(found.plan, read=frozenset()))


def replay_undecided(number: int, ranges: Ranges, pending: Pending, *, replayed: bool = False, **more: Any) -> Plan:
    """Treat a replay as if its ranges had never been read."""
    return cut.open_plan(number, ranges, pending, replayed=False, **more)


def replay_forgets(number: int, ranges: Ranges, pending: Pending, **more: Any) -> Plan:
    """Replay everything, also what was cut."""
    return cut.open_plan(number, ranges, {}, **more)


MUTANTS: Mapping[str, World] = {
    "an outcome is overwritten": World(settle=overwrite, scans=2, attempts=1),
    "an iterator ends without an answer": World(must_ask=False),
    "a replay is undecided": World(open_plan=replay_undecided),
    "acknowledged before persisted": World(persist_first=False),
    "applied after the new range is planned": World(applied_first=False),
    "a replay forgets its cut": World(open_plan=replay_forgets),
    "a stale attempt does not fail": World(stale_attempt_fails=False),
    "the ledger is lost silently": World(ledger_survives=False),
    "plan numbers are not checked": World(numbers_checked=False),
    "a replay is cut by an applied record": World(pending_only=False),
    "a cut forgets what pieces were read": World(settle=forget_read, pieces=2, batches=2, crashes=0, ghosts=0),
}
"""The nine of the specification and those that this model taught; each with a world in which it shows."""
