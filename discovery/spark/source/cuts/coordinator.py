"""The driver's server for cuts: the active plan, the records, and the ledger that keeps them. Thread-safe."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from discovery.core.errors import ArbiterError, ConfigError, LedgerFencedError, StateError
from discovery.core.model import BrokerId, TopicId, TopicName, TopicPartition
from discovery.spark.source.cuts.ledger import FORGET_EVERY, Entry, Incarnation, Ledger, LedgerState, Where, fold, prune
from discovery.spark.source.cuts.left_behind import left_behind_by
from discovery.spark.source.cuts.rules import (
    Batch,
    CutRecord,
    Plan,
    PlannedRange,
    Settlement,
    advance,
    effective_end,
    open_plan,
    refuse_other_checkpoints,
    settle,
)
from discovery.spark.source.planning.offsets import Offsets, OffsetsJson
from discovery.spark.source.planning.plan import describe

_log = logging.getLogger("kafka_discovery.source")
Leaders = Mapping[TopicPartition, BrokerId | None]
Starts = Mapping[TopicPartition, int]
_MOST_DOUBLINGS = 7
_MOST_PATIENCE_DOUBLINGS = 2
_BACKOFF_SECONDS = 0.5
"""Doubled for each consecutive empty cut: 1 s after the first one, 64 s at most."""
_WRITE_SECONDS = 0.5
"""How long planning waits for a write; then it goes on without the partitions concerned."""
_QUEUE_SECONDS = 10.0
"""How long a worker's question waits for other writes: less than the worker waits for its answer."""
_BACKING_OFF = "workers could not read it, although it has a leader; it is tried again with back-off"


class RangeCoordinator:
    """Settles where ranges end. The planner opens and closes plans; workers ask through a `CoordinatorServer`.

    Every change is in the ledger before it is in memory, and in memory before anybody hears of it.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        topic_id_of: Callable[[TopicName], TopicId | None] = lambda _: None,
        others: Callable[[], Mapping[Where, LedgerState]] = dict,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Name the ledger; no I/O.

        Args:
            ledger: Keeps the records.
            topic_id_of: Which id a topic has now; None is unknown. What is read of a topic that has another id than
                when it was planned ends where its first unread piece began. From memory, on any thread.
            others: Reads the ledgers of other sources that no living process holds; called when workers ask, until it
                has answered once.
            now: Monotonic seconds.
        """
        self._ledger = ledger
        self._topic_id_of = topic_id_of
        self._read_others = others
        self._others: Mapping[Where, LedgerState] | None = None
        """As they were when the first worker asked; None: none has. Earlier, another source of this query may not have
        taken its own."""
        self._looking = threading.Lock()
        """Held by the one thread that reads them."""
        self._looked_at: set[TopicPartition] = set()
        """Partitions of which no cut waits in another ledger."""
        self._now = now
        self._lock = threading.Lock()
        """Guards memory; never held over I/O, so that whoever needs no write is answered during a slow one."""
        self._io = threading.Lock()
        """Held by the one thread that writes the ledger; taken before `_lock`."""
        self._writer: threading.Thread | None = None
        self.trouble = ""
        """Why the last write of the ledger failed, for whoever watches; empty: it did not."""
        self._fenced: str | None = None
        self._gone_back: dict[TopicPartition, CutRecord] = {}
        """Records, marked applied, whose rewind stands in Spark's log; their partitions are not planned yet."""
        self._backoff: dict[TopicPartition, tuple[float, BrokerId | None]] = {}
        """Partitions that nobody could read: until when they wait, and who led them."""
        self._leaders: Leaders = {}
        self._state = LedgerState()
        self._appended = 0
        """Entries since the ledger was made shorter."""
        self._pending: dict[TopicPartition, CutRecord] = {}
        self._plan: Plan | None = None
        self._number = 0
        self._is_introduced = False
        self._doubtful: dict[TopicPartition, CutRecord] = {}
        self._said: set[tuple[int, TopicPartition]] = set()
        self._consecutive_empty: dict[TopicPartition, int] = {}
        """How often in a row a partition was cut at the beginning of its range."""
        self.cuts_made = self.rewinds_made = 0
        """Of this run, for whoever watches."""
        self.plain_engine = ""
        """Why a worker reads with the plain engine although the fast one was wanted; empty: none said so."""

    def open(self) -> None:
        """Become the holder of the ledger and read it.

        Raises:
            StateError: somebody else holds it, or it is damaged.

        Runs: driver, once; blocks up to 15 s for the last holder to end.
        """
        self._state = self._ledger.open()
        self._pending = self._state.pending()
        self._number = self._state.last_plan()

    def close(self) -> None:
        """Answer nobody any more and give the ledger back."""
        with self._lock:
            self._plan = None
        # A write that hangs is not waited for: its ledger dies with the process.
        if self._io.acquire(timeout=_WRITE_SECONDS):
            self._ledger.close()
            self._io.release()

    # -- the planner's side -------------------------------------------------------------------------------------

    def begin(self, start: OffsetsJson, end: OffsetsJson) -> None:
        """Open a new incarnation with its first batch; the records of earlier ones are out of force.

        Runs: driver, once for a new query; blocks for a write of the ledger.
        """
        with self._io:
            last = self._state.incarnation.number if self._state.incarnation else 0
            self._append([Incarnation(number=last + 1, start=start, end=end)])
            self._pending = {}

    def set_first_end(self, end: OffsetsJson) -> None:
        """Note where the first batch of this incarnation ends, which began without anything to read.

        Runs: driver, at most once for a new query; blocks for a write of the ledger.
        """
        with self._io:
            self._append([replace(self.resume(), end=end)])

    def resume(self) -> Incarnation:
        """Return the incarnation that a checkpoint goes on with.

        Raises:
            StateError: the ledger is empty or was not there: cuts of that checkpoint may be forgotten.
        """
        if self._state.incarnation is None:
            raise StateError(
                f"sourceId: the checkpoint is not new, but no ledger of its cuts is at {self._ledger.describe()}; "
                "bring the ledger back (stateDir must outlive the driver's host), or, if this source never ran with "
                "this sourceId, adopt the checkpoint: kafka-discovery checkpoint adopt"
            )
        return self._state.incarnation

    def close_plan(self) -> None:
        """Settle nothing more: the batch is committed, and who still reads it is a zombie."""
        if self._plan is not None:
            with self._lock:
                self._plan = None

    def advance(self, start: Mapping[TopicPartition, int]) -> Offsets:
        """Return the partitions that must go back now.

        Raises:
            StateError: the checkpoint contradicts a record, or somebody else holds the ledger.

        Runs: driver; from memory, unless a record's write had failed: then <= 0.5 s.
        """
        if self._doubtful:
            self._write_soon([])
        with self._lock:
            found = advance(start, self._pending)
            self._gone_back = {r.topic_partition: r for r in found.applied}
            self._say_rewinds(found.rewinds)
            return found.rewinds

    def gone_back(self) -> Offsets:
        """Return the planned ends of cut ranges whose rewind stands in Spark's log, and that are not read on yet."""
        return {tp: record.end for tp, record in self._gone_back.items()}

    def read_on(self, partitions: Collection[TopicPartition]) -> None:
        """Note that partitions which have gone back are planned again; `held` names those for which that failed.

        Raises:
            StateError: somebody else holds the ledger.

        Runs: driver; blocks for a write of the ledger, <= 0.5 s: a slower one goes on in the background.
        """
        self._refuse_taken()
        records = [record for tp, record in self._gone_back.items() if tp in partitions]
        if records:
            self._write_soon(records)

    def held(self, leader_of: Callable[[TopicPartition], BrokerId | None]) -> dict[TopicPartition, str]:
        """Return the partitions that must not be planned now, with reasons.

        Args:
            leader_of: Who leads now: nobody waits for what another leader did. Asked for partitions in back-off alone.
        """
        now = self._now()
        with self._lock:
            waiting = {
                tp: _BACKING_OFF
                for tp, (until, leader) in self._backoff.items()
                if now < until and (leader is None or leader_of(tp) == leader)
            }
            unwritten = [*self._doubtful, *(tp for tp in self._gone_back if tp in self._pending)]
            return waiting | dict.fromkeys(unwritten, self.trouble or "its cut is being written to the ledger")

    def _write_soon(self, applied: list[CutRecord]) -> None:
        if self._writer is None or not self._writer.is_alive():
            self._writer = threading.Thread(target=self._write, args=(applied,), name="cut-ledger", daemon=True)
            self._writer.start()
            self._writer.join(_WRITE_SECONDS)
        self._refuse_taken()

    def _refuse_taken(self) -> None:
        if self._fenced is not None:
            raise LedgerFencedError(self._fenced)

    def _write(self, applied: list[CutRecord]) -> None:
        """Runs: a thread of its own; blocks as long as the ledger does."""
        try:
            with self._io:
                self._keep(applied)
        except LedgerFencedError as error:
            self._fenced = str(error)
        except StateError:
            pass  # said by `_append`, and tried again with the next plan

    def open_plan(
        self,
        ranges: Mapping[TopicPartition, PlannedRange],
        *,
        replayed: bool,
        whole: Collection[TopicPartition] = (),
        leaders: Leaders = MappingProxyType({}),
        pieces: Mapping[TopicPartition, tuple[int, ...]] = MappingProxyType({}),
    ) -> Plan:
        """Activate a plan; all others are stale from now on.

        Args:
            ranges: What it promises.
            replayed: Spark has logged it already.
            whole: Partitions that are never cut.
            leaders: Who leads them, as far as that is known: see `held`.
            pieces: Where the pieces of split partitions start, in order.

        Raises:
            StateError: the plan contradicts a record.
        """
        with self._lock:
            self._number += 1
            self._leaders = leaders
            incarnation = self.resume().number
            self._plan = open_plan(
                self._number,
                ranges,
                self._pending,
                incarnation=incarnation,
                replayed=replayed,
                whole=whole,
                pieces=pieces,
            )
            return self._plan

    def current(self) -> Plan | None:
        """Return the active plan with all that is settled by now."""
        return self._plan

    def is_introduced(self) -> bool:
        """Tell whether a worker of this run has reported whose checkpoint this is, and it was the right one."""
        return self._is_introduced

    def pending(self) -> Mapping[TopicPartition, CutRecord]:
        """Return the active records."""
        with self._lock:
            return dict(self._pending)

    def patience_factors(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return by what to lengthen the wait before a cut, so that a slow leader is heard at last: 2 to 4.

        No more: the whole batch waits. A partition that is cut even so waits, see `held`.
        """
        with self._lock:
            times = {tp: self._consecutive_empty[tp] for tp in partitions if tp in self._consecutive_empty}
        return {tp: 2 ** min(count, _MOST_PATIENCE_DOUBLINGS) for tp, count in times.items()}

    def is_rewind(self, tp: TopicPartition, planned: int, until: int) -> bool:
        """Tell whether a range that goes back does so because of a cut."""
        record = self._pending.get(tp)
        return record is not None and (record.end, record.cut) == (planned, until)

    def delivered(self, end: Mapping[TopicPartition, int]) -> Offsets:
        """Return what was really delivered up to a batch's end offsets."""
        return effective_end(end, self._pending)

    # -- the workers' side --------------------------------------------------------------------------------------

    def known(
        self,
        number: int,
        partitions: Collection[TopicPartition],
        batch: Batch | None = None,
        starts: Starts = MappingProxyType({}),
    ) -> Offsets:
        """Return the ends that are settled.

        Args:
            number: Of the plan.
            partitions: Those asked for.
            batch: What the worker knows of it from Spark; None: nothing.
            starts: Where the pieces start that it asks for, of split partitions.

        Raises:
            ArbiterError: the plan is not active, or the checkpoint is not the one that the records speak of.
            StateError: as `decide`, of a recreated topic.
        """
        self._look_around(batch)
        with self._lock:
            plan = self._in_force(number, batch)
        if recreated := self._recreated(plan, partitions):
            self.decide(number, {tp: starts.get(tp, begin) for tp, begin in recreated.items()}, batch, starts)
        with self._lock:
            plan = self._in_force(number, batch)
            return {tp: end for tp in partitions if (end := _end_of(plan, tp, starts)) is not None}

    def decide(
        self,
        number: int,
        proposed: Mapping[TopicPartition, int],
        batch: Batch | None = None,
        starts: Starts = MappingProxyType({}),
    ) -> Offsets:
        """Settle ends, once for ever; the first proposal of a range wins.

        Raises:
            ArbiterError: as `known`, or a proposal lies outside of the plan.
            StateError: a cut could not be made durable; nothing is settled, ask again.

        Runs: a thread of the server; blocks for a write of the ledger when something is cut, else never.
        """
        self._look_around(batch)
        settlement = self._proposed(number, proposed, batch, starts)
        if settlement.cuts:
            self._make_durable(settlement.cuts)
            settlement = self._proposed(number, proposed, batch, starts)
        return dict(settlement.ends)

    def _proposed(
        self, number: int, proposed: Mapping[TopicPartition, int], batch: Batch | None, starts: Starts
    ) -> Settlement:
        """Settle at once what needs no record; what does is in doubt until it is durable, so it can only be cut."""
        with self._lock:
            plan = self._in_force(number, batch)
            # A record that may be durable must not be decided otherwise.
            doubted = {tp: self._doubtful[tp].cut for tp in proposed if tp in self._doubtful}
            try:
                forced = {**self._recreated(plan, proposed), **doubted}
                settlement = settle(plan, proposed, starts=starts, forced=forced)
            except StateError as error:
                raise ArbiterError(str(error)) from error
            self._doubtful |= {r.topic_partition: r for r in settlement.cuts}
            if not settlement.cuts:
                self._plan = settlement.plan
                for tp, end in settlement.ends.items():
                    if end > plan.piece(tp, starts.get(tp))[0]:
                        self._consecutive_empty.pop(tp, None)
                        self._backoff.pop(tp, None)
            return settlement

    def _recreated(self, plan: Plan, partitions: Collection[TopicPartition]) -> Offsets:
        """Return where ranges end whose topic is another one by now: a worker that reads on reads that one."""
        open_ = {
            (tp, plan.ranges[tp].topic_id): first
            for tp in partitions
            if tp in plan.ranges and tp not in plan.settled and (first := plan.first_unread(tp)) is not None
        }
        gone = self._gone((tp.topic, topic_id) for tp, topic_id in open_)
        return {tp: first for (tp, topic_id), first in open_.items() if (tp.topic, topic_id) in gone}

    def _gone(self, topics: Iterable[tuple[TopicName, TopicId | None]]) -> set[tuple[TopicName, TopicId | None]]:
        """Return the topics that have another id by now; each is asked for once."""
        return {
            (topic, known)
            for topic, known in set(topics)
            if known is not None and self._topic_id_of(topic) not in (None, known)
        }

    def _make_durable(self, records: Collection[CutRecord]) -> None:
        """Write what waits, all cuts at once; whoever comes second finds its own written."""
        if not self._io.acquire(timeout=_QUEUE_SECONDS):
            raise StateError("the ledger is still being written")
        try:
            if any(r.topic_partition in self._doubtful for r in records):
                self._keep([])
        except LedgerFencedError as error:
            self._fenced = str(error)
            raise
        finally:
            self._io.release()

    def _in_force(self, number: int, batch: Batch | None) -> Plan:
        if self._plan is None or self._plan.number != number:
            raise ArbiterError(
                f"plan {number} is not active any more: its batch is over; this task is not needed any more"
            )
        if self._plan.batch is None and batch is not None:
            self._plan = replace(self._plan, batch=self._introduced(self._plan, batch))
        return self._plan

    def _look_around(self, batch: Batch | None) -> None:
        """Read other ledgers, not under the lock: planning, and questions of no batch, go on meanwhile.

        Raises:
            StateError: they cannot be read, or not yet; nothing is settled, ask again.
        """
        if self._others is not None or batch is None:
            return
        if not self._looking.acquire(timeout=_QUEUE_SECONDS):
            raise StateError("the ledgers of other sources are still being read")
        try:
            if self._others is None:
                self._others = self._read_others()
                self.trouble = ""
        except (ConfigError, StateError) as error:
            self._note_trouble("the ledgers of other sources cannot be read", error)
            raise StateError(str(error)) from None
        finally:
            self._looking.release()

    def _introduced(self, plan: Plan, batch: Batch) -> Batch:
        new = {tp: range_ for tp, range_ in plan.ranges.items() if tp not in self._looked_at}
        for sentence in left_behind_by(new, self._others or {}, batch):
            raise ArbiterError(sentence)
        self._looked_at.update(new)
        incarnation = self.resume()
        try:
            refuse_other_checkpoints(
                batch,
                self._state.records.values(),
                incarnation=incarnation.number,
                adopted=incarnation.start is None,
            )
        except StateError as error:
            raise ArbiterError(str(error)) from error
        self._is_introduced = True
        return batch

    def _keep(self, applied: Collection[CutRecord]) -> None:
        """Write all cuts in doubt, and records as applied; the ledger's lock is held."""
        with self._lock:
            cuts = list(self._doubtful.values())
        if not cuts and not applied:
            return
        gone = self._gone(map(_life, cuts))
        self._append([*cuts, *applied])
        with self._lock:
            for record in cuts:
                self._note_cut(record, is_gone=_life(record) in gone)
            for record in applied:
                self._pending.pop(record.topic_partition, None)
        _say_cuts([record for record in cuts if _life(record) not in gone])
        _say_gone([record for record in cuts if _life(record) in gone])

    def _note_cut(self, record: CutRecord, *, is_gone: bool) -> None:
        tp = record.topic_partition
        self._doubtful.pop(tp, None)
        self._pending[tp] = record
        self.cuts_made += 1
        if self._plan is not None and self._plan.number == record.plan:
            self._plan = replace(self._plan, settled={**self._plan.settled, tp: record.cut})
        if record.cut == record.start and not is_gone:
            self._consecutive_empty[tp] = times = self._consecutive_empty.get(tp, 0) + 1
            until = self._now() + _BACKOFF_SECONDS * 2 ** min(times, _MOST_DOUBLINGS)
            self._backoff[tp] = (until, self._leaders.get(tp))

    def _append(self, entries: list[Entry]) -> None:
        try:
            self._ledger.append(entries)
        except LedgerFencedError:
            raise
        except StateError as error:
            self._note_trouble("the ledger of cuts cannot be written", error)
            raise
        self.trouble = ""
        self._state = fold(self._state, entries)
        self._appended += len(entries)
        if self._appended >= FORGET_EVERY:
            self._appended = 0
            self._forget()

    def _note_trouble(self, what: str, error: ConfigError | StateError) -> None:
        if self.trouble != str(error):
            _log.warning("%s: %s", what, error)
        self.trouble = str(error)

    def _forget(self) -> None:
        kept = prune(self._state)
        try:
            self._ledger.forget(self._state, kept)
        except StateError as error:
            _log.warning("%s; it is tried again after %d more entries", error, FORGET_EVERY)
        else:
            self._state = kept

    def _say_rewinds(self, rewinds: Offsets) -> None:
        fresh = [self._pending[tp] for tp in rewinds if (self._pending[tp].plan, tp) not in self._said]
        if fresh:
            self._said.update((r.plan, r.topic_partition) for r in fresh)
            self.rewinds_made += len(fresh)
            _log.warning("set back to where they were cut: %s", _list(fresh, lambda r: f"{r.end} -> {r.cut}"))


def _end_of(plan: Plan, tp: TopicPartition, starts: Starts) -> int | None:
    return plan.end_of(tp, starts.get(tp)) if tp in plan.ranges else None


def _life(record: CutRecord) -> tuple[TopicName, TopicId | None]:
    return record.topic_partition.topic, record.topic_id


_AT = "at offset {0.cut} of [{0.start}, {0.end})".format


def _say_cuts(cuts: Collection[CutRecord]) -> None:
    if cuts:
        text = f"cut, since nobody could be read from: {_list(cuts, _AT)}"
        _log.warning("%s; the batch ends without the rest, which comes later", text)


def _say_gone(cuts: Collection[CutRecord]) -> None:
    if cuts:
        text = f"cut, since their topics were recreated: {_list(cuts, _AT)}"
        _log.warning("%s; the new ones are read from their beginnings", text)


def _list(records: Collection[CutRecord], show: Callable[[CutRecord], str]) -> str:
    return describe([(record.topic_partition, show(record)) for record in records])
