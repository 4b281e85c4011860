"""Turns many loops of `discovery.loop` by events in simulated time, and measures what their code costs for real.

One thread plays all of it: a call's work is done when it starts, what it tells arrives when it would have, and the
processor time of both is the loop's own. What librdkafka and the network cost is not in it.
"""

import heapq
import itertools
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

from benchmarks.scale.world import SimCluster, SimGateway, SimVetter, bootstrap_list
from discovery.core.answers import StuckCall
from discovery.core.interest import Interest
from discovery.core.model import LoopState
from discovery.core.policy import Policy
from discovery.core.state import initial_state
from discovery.loop.cycle import Cycle, Item, Picture
from discovery.loop.demand import Demand

_LISTED = 6


@dataclass(slots=True)
class Engine:
    """A clock and what is to happen; `Clock` to the loops."""

    seconds: float = 0.0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self.seconds

    def wall(self) -> float:
        """See `Clock.wall`."""
        return 1_700_000_000.0 + self.seconds

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something after a while."""
        heapq.heappush(self._events, (self.seconds + seconds, next(self._numbers), action))

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until:
            self.seconds, _, action = heapq.heappop(self._events)
            action()
        self.seconds = until


class Loop:
    """One cluster's loop: the real `Cycle` with simulated brokers below it."""

    def __init__(
        self, engine: Engine, cluster: SimCluster, interest: Interest, *, salt: int, demand: Demand, policy: Policy
    ) -> None:
        """Wire it; the first turn comes within the first second, for processes do not start at one instant."""
        self._engine = engine
        self.cpu_seconds = 0.0
        self.picture: Picture | None = None
        self._gateway = SimGateway(cluster)
        self._running: set[str] = set()
        self._wake = 0
        self._hears = False
        """Whether something has come that the next turn takes in."""
        self._cycle = Cycle(
            state=initial_state(bootstrap_list(cluster, _LISTED), salt=salt),
            policy=policy,
            interest=interest,
            factory=lambda _: self._gateway,
            vetter=SimVetter(cluster, self._spend),
            calls=self,
            clock=engine,
            persistence=None,
            show=self._show,
            demand=demand,
        )
        self._inbox = _Inbox(self._deliver)
        self._cycle.inbox = cast("queue.SimpleQueue[Item]", self._inbox)  # the two methods that a cycle uses
        engine.later((salt * 0.618) % 1.0, self._turn)

    @property
    def fresh(self) -> bool:
        """Tell whether its view was confirmed lately."""
        return self.picture is not None and self.picture.state.loop_state is LoopState.FRESH

    def knows_all(self, partitions: int) -> bool:
        """Tell whether it is fresh, and the end of every partition is known and no leader is silent."""
        book = self.picture.book if self.picture else None
        return self.fresh and book is not None and len(book.offsets) >= partitions and not book.unanswered

    # -- Calls ------------------------------------------------------------------------------------------------

    def start(self, key: str, work: Callable[[], object], *, limit_seconds: float) -> bool:  # noqa: ARG002
        """See `Calls.start`: done now, heard of later."""
        if key in self._running:
            return False
        self._running.add(key)
        self._gateway.spent = 0.0
        began = time.thread_time()
        work()
        self.cpu_seconds += time.thread_time() - began
        self._engine.later(self._gateway.spent, lambda: self._running.discard(key))
        return True

    def overdue(self) -> tuple[StuckCall, ...]:
        """See `Calls.overdue`: every call here keeps its timeout."""
        return ()

    def running(self, key: str) -> bool:
        """See `Calls.running`."""
        return key in self._running

    # -- time ---------------------------------------------------------------------------------------------------

    def _spend(self, seconds: float) -> None:
        self._gateway.spent = seconds

    def _deliver(self, item: Item) -> None:
        def arrive() -> None:
            self._inbox.ready.append(item)
            if not self._hears:  # as the supervisor does: what comes together is taken in together
                self._hears = True
                self._plan(self._cycle.calm_seconds)

        self._engine.later(self._gateway.spent, arrive)

    def _plan(self, seconds: float) -> None:
        self._wake += 1
        number = self._wake

        def turn() -> None:
            if number == self._wake:
                self._turn()

        self._engine.later(seconds, turn)

    def _turn(self) -> None:
        self._hears = False
        inside = self.cpu_seconds
        began = time.thread_time()
        idle_seconds = self._cycle.turn()
        # Calls that the turn started have counted themselves already.
        self.cpu_seconds = inside + time.thread_time() - began
        self._plan(max(idle_seconds, 1e-4))

    def _show(self, picture: Picture) -> None:
        self.picture = picture


@dataclass(slots=True)
class _Inbox:
    """What the cycle uses of a queue."""

    put: Callable[[Item], None]
    ready: deque[Item] = field(default_factory=deque)

    def get_nowait(self) -> Item:
        if not self.ready:
            raise queue.Empty
        return self.ready.popleft()
