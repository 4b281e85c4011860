"""Spark's part in small: plans batches, runs attempts as processes, retries, dies and replays; by a seed, with faults.

It keeps the rules that the protocol leans on: a batch's plan never changes once it was made; a task is tried again
while its last attempt may live on; only the last batch is replayed; `confirm` may run again for a batch that is
complete. Everything below it is the real writer on real brokers.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from discovery.core.errors import SinkRefusedError
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.sink import hooks
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.writer import LaneReport
from tests.chaos.sink.checks import Finding, findings
from tests.chaos.sink.collect import proofs, read_all, said, sentinels_read, stable_ends, tailing
from tests.chaos.sink.evidence import Evidence, Proof, Seen
from tests.chaos.sink.faults import Fault
from tests.chaos.sink.mutants import MUTANTS
from tests.chaos.sink.processes import Child, start_attempt, start_confirm
from tests.support.sink import Sink

_CHILD_POLL_SECONDS = 0.02
_ATTEMPTS = 10
_ATTEMPT_SECONDS = 60.0
_ZOMBIE_SECONDS = 15.0
_TAIL_SECONDS = 60.0
"""A reader that stands still never comes; one on a full machine was later than 10 s."""
TASK_POINTS = tuple(point for point in hooks.POINTS if point.startswith("step"))
COMMIT_POINTS = tuple(point for point in hooks.POINTS if point.startswith("commit"))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one seed does."""

    seed: int
    lanes: int
    batches: tuple[tuple[tuple[str, ...], ...], ...]
    """The values by batch and lane."""
    faults: tuple[Fault, ...]
    plain: bool = False
    """Records are produced as in production: whole batches, without the header that says whose each is."""


class Played(NamedTuple):
    """What a seed showed, and which of its faults came about."""

    findings: tuple[Finding, ...]
    hits: tuple[Fault, ...]


def plan_of(seed: int, *, brokers: Sequence[str] = (), faults: int = 3) -> Plan:
    """Draw batches and faults; the same seed gives the same."""
    random = Random(seed)
    lanes = random.choice((1, 2, 2, 3))
    number = itertools.count()
    batches = tuple(
        tuple(tuple(f"k{lane}:{next(number)}" for _ in range(random.choice((0, 1, 3, 5, 8)))) for lane in range(lanes))
        for _ in range(4)
    )
    drawn = tuple(_fault(random, lanes, brokers) for _ in range(faults))
    return Plan(seed=seed, lanes=lanes, batches=batches, faults=drawn, plain=seed % 2 == 1)


def at_every_point(seed: int) -> Plan:
    """Hit every point once, in four batches of two lanes: 0 kills, -1 stops, -2 and -3 the same in production's way."""
    action = "stop" if seed % 2 else "kill"
    points = (*TASK_POINTS, *COMMIT_POINTS)
    faults = tuple(
        Fault(batch=number % 4, point=point, lane=number // 4 % 2, action=action) for number, point in enumerate(points)
    )
    number = itertools.count()
    batches = tuple(tuple(tuple(f"k{lane}:{next(number)}" for _ in range(3)) for lane in range(2)) for _ in range(4))
    return Plan(seed=seed, lanes=2, batches=batches, faults=faults, plain=seed < -1)


def _fault(random: Random, lanes: int, brokers: Sequence[str]) -> Fault:
    batch, kind = random.randrange(4), random.random()
    if brokers and kind < 0.2:
        return Fault(batch=batch, action=random.choice(brokers))
    if kind < 0.35:
        return Fault(batch=batch, action=random.choice(("abandon", "forget")))
    if kind < 0.5:
        return Fault(batch=batch, point=random.choice(COMMIT_POINTS), action=random.choice(("kill", "stop")))
    point = random.choice(TASK_POINTS)
    return Fault(batch=batch, point=point, lane=random.randrange(lanes), action=random.choice(("kill", "stop")))


@dataclass
class Run:
    """One seed's run over a sink: `go` plays it, `evidence` says what is left."""

    sink: Sink
    plan: Plan
    folder: Path
    break_brokers: Callable[[str], bool] = lambda _: False
    """Begins a fault to the brokers; False: it could not."""
    mutant: str = ""
    """The broken writer that is played instead of ours."""
    zombies: list[Child] = field(default_factory=list)
    markers: list[Mapping[int, Proof]] = field(default_factory=list)
    sink_plan: SinkPlan | None = None
    seconds_to_progress: float | None = None
    _random: Random = field(default_factory=Random)
    _restarts: int = 0
    _hit_at: float | None = None
    """When something last went wrong; None: not since a batch was committed."""
    _begun: list[Fault] = field(default_factory=list)
    """Those of its faults that need no point."""

    def go(self) -> None:
        """Play all batches to their end; zombies go on when the last batch is committed, at the latest."""
        self._random.seed(self.plan.seed)
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.plan.plain:
            (self.folder / hooks.PLAIN).touch()
        self.sink_plan = self.sink.plan()
        try:
            for batch_id in range(len(self.plan.batches)):
                self._batch(batch_id)
                self._note_progress()
                self.markers.append(proofs(self._sink_plan))
                self._let_zombies_go(share=0.5)
            self._let_zombies_go(share=1.0)
        finally:
            for zombie in self.zombies:
                zombie.resume()
                zombie.end(patience_seconds=_ZOMBIE_SECONDS)

    @property
    def _sink_plan(self) -> SinkPlan:
        assert self.sink_plan is not None
        return self.sink_plan

    def _batch(self, batch_id: int) -> None:
        faults = [fault for fault in self.plan.faults if fault.batch == batch_id]
        for fault in faults:
            if fault.point:
                (self.folder / _place(fault)).write_text(fault.action)
            elif fault.action in {"abandon", "forget"} or self.break_brokers(fault.action):
                self._begun.append(fault)
                self._hit_at = time.monotonic()
        abandons = sum(fault.action == "abandon" for fault in faults)
        replays = sum(fault.action == "forget" for fault in faults)
        while not self._executed(batch_id, abandon=abandons > 0) or replays:
            if abandons:
                abandons -= 1
            elif replays:
                replays -= 1
            self._restarts += 1
            assert self._restarts < 40, f"batch {batch_id} does not come to an end"

    def _executed(self, batch_id: int, *, abandon: bool) -> bool:
        """Run all lanes and the commit; False: the driver died on the way, the batch must be replayed."""
        values = self.plan.batches[batch_id]
        running = {lane: self._start(batch_id, lane) for lane in range(self.plan.lanes)}
        if abandon:
            time.sleep(self._random.random())
            self.zombies += running.values()
            return False
        reports = [self._awaited(child, batch_id, lane, values[lane]) for lane, child in running.items()]
        commit = start_confirm(self._sink_plan, reports, self.folder, self.mutant)
        answer = self._ended(commit)
        assert not isinstance(answer, SinkRefusedError), answer
        return answer is True

    def _start(self, batch_id: int, lane: int) -> Child:
        return start_attempt(
            self._sink_plan,
            self.sink.attempt(batch_id, lane),
            self.plan.batches[batch_id][lane],
            self.folder,
            self.mutant,
        )

    def _awaited(self, child: Child, batch_id: int, lane: int, values: Sequence[str]) -> LaneReport:
        said: list[Any] = []
        for _ in range(_ATTEMPTS):
            answer = self._ended(child)
            if isinstance(answer, LaneReport):
                return answer
            said.append(answer)
            meanwhile = [f.meanwhile for f in self.plan.faults if f.meanwhile and (f.batch, f.lane) == (batch_id, lane)]
            overtakes = meanwhile and len(said) == 1
            child = self._overtaken(batch_id, lane, *meanwhile) if overtakes else self._start(batch_id, lane)
        raise AssertionError(f"batch {batch_id}, lane {lane}: {_ATTEMPTS} attempts failed: {said}")

    def _overtaken(self, batch_id: int, lane: int, point: str) -> Child:
        """Start the retry of the attempt that was just stopped; that one goes on while the retry stands at a point."""
        stopped = self.zombies.pop()
        (self.folder / f"{point}@{lane}").write_text("stop")
        retry = self._start(batch_id, lane)
        deadline = time.monotonic() + _ATTEMPT_SECONDS
        while not retry.stopped() and time.monotonic() < deadline:
            time.sleep(_CHILD_POLL_SECONDS)
        stopped.resume()
        stopped.end(patience_seconds=_ZOMBIE_SECONDS)
        retry.resume()
        return retry

    def _ended(self, child: Child) -> Any:
        """Wait for the end of a process; one that is stopped becomes a zombie, and counts as failed."""
        deadline = time.monotonic() + _ATTEMPT_SECONDS
        while not child.over():
            if child.stopped() or time.monotonic() > deadline:
                self.zombies.append(child)
                self._hit_at = time.monotonic()
                return None
            time.sleep(_CHILD_POLL_SECONDS)
        child.end()
        if child.answer() is None:
            self._hit_at = time.monotonic()
        return child.answer()

    def _note_progress(self) -> None:
        if self._hit_at is not None:
            self.seconds_to_progress = max(self.seconds_to_progress or 0.0, time.monotonic() - self._hit_at)
            self._hit_at = None

    def hits(self) -> tuple[Fault, ...]:
        """Return the faults that came about: whoever comes to an armed point claims it by renaming its file."""
        claimed = Counter(file.name.partition(".held.")[0] for file in self.folder.glob("*.held.*"))
        found = list(self._begun)
        for fault in self.plan.faults:
            if fault.point and claimed[_place(fault)] > 0:
                claimed[_place(fault)] -= 1
                found.append(fault)
        return tuple(found)

    def _let_zombies_go(self, *, share: float) -> None:
        for zombie in self.zombies:
            if self._random.random() < share:
                zombie.resume()

    def evidence(self, tail: Sequence[Seen]) -> Evidence:
        """Read everything back."""
        servers, topic = self.sink.cluster.bootstrap_servers, self.sink.topic
        limit = self._sink_plan.options.transaction_timeout_seconds + 10
        ends = stable_ends(servers, topic, patience_seconds=limit)
        committed = read_all(servers, topic)
        before = len(committed)
        last = len(self.plan.batches) - 1
        self._executed(last, abandon=False)  # as if commits/N had been deleted
        return Evidence(
            expected=frozenset(value for batch in self.plan.batches for lane in batch for value in lane),
            committed=committed,
            again=read_all(servers, topic),
            tail=_caught_up(tail, before),
            everything=read_all(servers, topic, committed=False),
            said=said(self.folder),
            markers=(*self.markers, proofs(self._sink_plan)),
            last_batch=last,
            stable_ends=ends,
            sentinels_read=sentinels_read(servers, topic),
            new_after_restart=len(read_all(servers, topic)) - before,
            seconds_to_progress=self.seconds_to_progress,
        )


def _place(fault: Fault) -> str:
    return f"{fault.point}@{fault.lane}" if fault.point.startswith("step") else fault.point


def _caught_up(tail: Sequence[Seen], count: int) -> tuple[Seen, ...]:
    deadline = time.monotonic() + _TAIL_SECONDS
    while len(tail) < count and time.monotonic() < deadline:
        time.sleep(_CHILD_POLL_SECONDS)
    return tuple(tail)


def play_mutant(cluster: LocalKafka, topic: str, name: str, folder: Path) -> tuple[Finding, ...]:
    """Play a broken writer, or ours where the name is empty, under the faults that show it; return what was found."""
    faults = tuple(m.fault for key, m in MUTANTS.items() if m.fault and name in {"", key})
    rounds = tuple(replace(fault, batch=number) for number, fault in enumerate(faults))
    batches = tuple(((f"k:{2 * number}", f"k:{2 * number + 1}"),) for number in range(max(1, len(rounds))))
    plan = Plan(seed=0, lanes=1, batches=batches, faults=rounds)
    return play(cluster, topic, plan, folder, mutant=name).findings


def play(
    cluster: LocalKafka,
    topic: str,
    plan: Plan,
    folder: Path,
    *,
    break_brokers: Callable[[str], bool] = lambda _: False,
    mutant: str = "",
) -> Played:
    """Play one seed on an existing topic; the checks judge what is left."""
    more = {"transactionTimeout": "10s"} if mutant else {}
    sink = Sink(cluster, folder, sink_id=topic, topic=topic, lanes=plan.lanes, more=more)
    run = Run(sink, plan, folder / "hooks", break_brokers, mutant)
    with tailing(cluster.bootstrap_servers, topic) as tail:
        run.go()
        return Played(findings(run.evidence(tail)), run.hits())
