"""Vetting: all addresses at once, each on its own, in two steps within one timeout."""

import queue
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from discovery.config.client.opened_stores import fresh
from discovery.config.client.options import ClientOptions
from discovery.config.descriptors import OUT_OF, exhausted
from discovery.core.answers import ProbeOutcome
from discovery.core.model import BrokerAddress
from discovery.core.policy import Policy
from discovery.kafka.settings import QuietLog, client_properties
from discovery.kafka.vetting.probe import Probed, probe
from discovery.kafka.vetting.tcp_check import Reached, Resolver, reach_all, run_reach

_MAX_PROBES_AT_ONCE = 64
"""A healthy probe takes milliseconds and a hung one only waits, so the bound may be high; it caps threads."""


class _Report:
    """Passes on exactly one outcome per address, the first that comes."""

    def __init__(self, addresses: Collection[BrokerAddress], on_outcome: Callable[[ProbeOutcome], None]) -> None:
        self._pending = set(addresses)
        self._on_outcome = on_outcome
        self._changed = threading.Condition()
        self._started = time.monotonic()

    def tell(
        self,
        address: BrokerAddress,
        *,
        tcp_only: bool = False,
        probed: Probed | None = None,
        endpoint: tuple[str, int] | None = None,
    ) -> None:
        with self._changed:
            if address not in self._pending:
                return
            self._pending.discard(address)
        seen = probed or Probed()
        self._on_outcome(
            ProbeOutcome(
                address=address,
                failure=seen.failure,
                tcp_only=tcp_only or seen.wandered,
                cluster_id=seen.cluster_id,
                brokers=seen.brokers,
                endpoint=endpoint,
                elapsed_seconds=time.monotonic() - self._started,
                detail=seen.detail,
            )
        )
        with self._changed:
            self._changed.notify_all()

    def wait(self, deadline: float) -> tuple[BrokerAddress, ...]:
        """Wait until all are judged or the deadline; return those that are not."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pending, timeout=max(0.0, deadline - time.monotonic()))
            return tuple(self._pending)


class _Probers:
    """Threads for step two: made when needed, gone when the queue is empty, never waited for."""

    def __init__(self, work: Callable[[BrokerAddress, Reached], None]) -> None:
        self._work = work
        self._queue: queue.SimpleQueue[tuple[BrokerAddress, Reached]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running = 0

    def submit(self, address: BrokerAddress, reached: Reached) -> None:
        self._queue.put((address, reached))
        with self._lock:
            if self._running >= _MAX_PROBES_AT_ONCE:
                return
            self._running += 1
        threading.Thread(target=self._run, name=f"probe-{address}", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                try:
                    address, reached = self._queue.get_nowait()
                except queue.Empty:
                    self._running -= 1
                    return
            self._work(address, reached)


@dataclass(frozen=True, slots=True)
class _Round:
    """One call of `vet`."""

    options: ClientOptions
    log: QuietLog
    report: _Report
    connect_timeout_seconds: float
    request_timeout_seconds: float
    deadline: float

    def full(self, address: BrokerAddress, reached: Reached) -> None:
        left = min(self.request_timeout_seconds, self.deadline - time.monotonic())
        if left <= 0 or reached.endpoint is None:
            return
        properties = client_properties(
            self.options,
            (address,),
            connect_timeout_seconds=self.connect_timeout_seconds,
            request_timeout_seconds=left,
        )

        def tell(probed: Probed) -> None:
            if probed.failure is not None and exhausted():  # the client says only that it could not connect
                self.report.tell(address, tcp_only=True, probed=Probed(detail=f"not asked: {OUT_OF}"))
            else:
                self.report.tell(address, probed=probed, endpoint=reached.endpoint)

        probe(properties, reached.endpoint, timeout_seconds=left, log=self.log, on_probed=tell)


class LibrdkafkaVetter:
    """See `Vetter`. Keeps no client between calls; only the name lookups that never returned."""

    def __init__(self, options: ClientOptions, policy: Policy) -> None:
        self._options = options
        self._policy = policy
        self._resolver = Resolver()
        self._log = QuietLog()

    def vet(
        self,
        addresses: Collection[BrokerAddress],
        *,
        connect_timeout_seconds: float,
        request_timeout_seconds: float,
        full: Collection[BrokerAddress] = (),
        on_outcome: Callable[[ProbeOutcome], None],
    ) -> None:
        """See `Vetter.vet`."""
        asked = tuple(dict.fromkeys(addresses))
        deadline = time.monotonic() + connect_timeout_seconds + request_timeout_seconds
        report = _Report(asked, on_outcome)
        probers = _Probers(
            _Round(
                fresh(self._options), self._log, report, connect_timeout_seconds, request_timeout_seconds, deadline
            ).full
        )
        wanted = frozenset(full)

        def not_asked(address: BrokerAddress) -> None:
            report.tell(address, tcp_only=True, probed=Probed(detail=f"not asked: {OUT_OF}"))

        def reached(address: BrokerAddress, result: Reached) -> None:
            if result.ours:
                not_asked(address)
            elif result.failure is not None:
                report.tell(address, probed=Probed(failure=result.failure, detail=result.detail))
            elif address in wanted:
                probers.submit(address, result)
            else:
                report.tell(address, tcp_only=True, endpoint=result.endpoint)

        work = reach_all(asked, self._resolver, timeout_seconds=connect_timeout_seconds, on_reached=reached)
        if not run_reach(work):
            for address in asked:
                not_asked(address)
        for address in report.wait(deadline):
            report.tell(address, tcp_only=True, probed=Probed(detail="not asked: too many addresses hang"))
