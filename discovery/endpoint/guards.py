"""Guards: for each broker that clients may be led to, a connection that has stood since before the broker's proof.

The loop's verdict may be seconds old, and an address can change hands in between: whoever listens there next would be
sent our clients' passwords. So an address counts only while one connection stands that was opened *before* the broker
proved its cluster id; when that connection breaks, or the broker stops answering, the address is out at once, with all
pipes to it, until it has proved itself again.
"""

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from discovery.config.descriptors import is_ours
from discovery.config.logs import event_log
from discovery.core.errors import BUG_PHRASE
from discovery.core.model import BrokerAddress, ClusterId, Verdict
from discovery.endpoint.counting import Counts
from discovery.endpoint.health_check import certificate, is_answering
from discovery.endpoint.limits import Limits
from discovery.endpoint.names import Finding, judge, names_of
from discovery.endpoint.race import Resolved, connect
from discovery.endpoint.selection import in_order, to_guard
from discovery.feed.base import FeedView

_RECONCILE_SECONDS = 0.1
_QUARANTINE_SECONDS = 1.0
_MISSED_CHECKS = 2
_log = event_log("discovery.endpoint")


class Prover(Protocol):
    """Proves brokers; see `make.py`."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """How health checks speak to the listeners; None: plain."""
        ...

    async def resolve(self, address: BrokerAddress) -> Resolved:
        """Return where a name leads to now; raises OSError."""
        ...

    async def prove(self, address: BrokerAddress, resolved: Resolved, cluster_id: ClusterId) -> str | None:
        """Find out whether the broker where clients would be led to is one of this cluster; None: it is, else why not.

        Raises:
            OSError: it does not accept connections, or descriptors are short on this side.
        """
        ...


@dataclass(slots=True)
class _Guard:
    """One address under guard."""

    task: asyncio.Task[None]
    broken: asyncio.Event


class Guards:
    """Keeps a few living brokers proved. Event loop's thread only."""

    def __init__(
        self,
        view: Callable[[], FeedView | None],
        prover: Prover,
        limits: Limits,
        counts: Counts,
        *,
        on_lost: Callable[[BrokerAddress], None],
    ) -> None:
        """Guard nobody yet; `on_lost` hears of every address that stops to count."""
        self._view = view
        self.prover = prover
        self._limits = limits
        self._counts = counts
        self._on_lost = on_lost
        self._guards: dict[BrokerAddress, _Guard] = {}
        self._standing: dict[BrokerAddress, Resolved] = {}
        self._witnesses: dict[BrokerAddress, socket.socket] = {}
        self._quarantined: dict[BrokerAddress, float] = {}
        self._changed = asyncio.Event()
        self.findings: dict[BrokerAddress, Finding] = {}
        self.sticky: BrokerAddress | None = None
        """Where the last client was led to."""
        self.port = limits.port

    @property
    def ready(self) -> tuple[tuple[BrokerAddress, Resolved], ...]:
        """Return whom a client may be led to now, best first."""
        return tuple((a, self._standing[a]) for a in in_order(tuple(self._standing), sticky=self.sticky))

    async def wait_ready(self, seconds: float) -> tuple[tuple[BrokerAddress, Resolved], ...]:
        """Return them as soon as there is one; empty after the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._standing:
                    await self._changed.wait()
        return self.ready

    def still_stands(self, address: BrokerAddress, resolved: Resolved) -> bool:
        """Tell whether the connection from before the proof stands at this very moment; if not, the address is out.

        A client's connection may have been accepted by whoever took the address over a millisecond ago, before our
        own connection's end was noticed.
        """
        witness = self._witnesses.get(address)
        if self._standing.get(address) != resolved or witness is None:
            return False
        if _is_open(witness):
            return True
        self.broken(address)
        return False

    def broken(self, address: BrokerAddress) -> None:
        """Take an address out at once: somebody found it dead."""
        guard = self._guards.get(address)
        if guard is not None:
            guard.broken.set()
        self._lose(address, "it did not accept a client's connection")

    async def run(self) -> None:
        """Follow the view until cancelled."""
        try:
            while True:
                self._reconcile(asyncio.get_running_loop().time())
                await asyncio.sleep(_RECONCILE_SECONDS)
        finally:
            for guard in self._guards.values():
                guard.task.cancel()
            await asyncio.gather(*(guard.task for guard in self._guards.values()), return_exceptions=True)

    def _reconcile(self, now: float) -> None:
        view = self._view()
        if view is None:
            return
        living = [
            address
            for address in view.bootstrap
            if (report := view.addresses.get(address)) is not None and report.verdict is Verdict.ALIVE
        ]
        self._quarantined = {address: until for address, until in self._quarantined.items() if until > now}
        guarded = [address for address, guard in self._guards.items() if not guard.task.done()]
        wanted = to_guard(living, guarded, quarantined=self._quarantined, count=self._limits.guards)
        for address in [address for address in self._guards if address not in wanted]:
            self._guards.pop(address).task.cancel()
            self._lose(address, "the discovery loop no longer calls it alive")
        for address in wanted:
            if view.cluster_id is not None and address not in guarded and address not in self._quarantined:
                event = asyncio.Event()
                task = asyncio.ensure_future(self._guard(address, view.cluster_id, event))
                self._guards[address] = _Guard(task, event)
        self._counts.forget({str(address) for address in view.addresses})

    async def _guard(self, address: BrokerAddress, cluster_id: ClusterId, broken: asyncio.Event) -> None:
        """Prove one address and watch it until it breaks."""
        why = ""
        with contextlib.ExitStack() as old:
            try:
                while not why:
                    why = await self._prove(address, cluster_id, old)
                    if not why and (standing := self._standing.get(address)) is not None:
                        why = await self._until_broken(address, self._witnesses[address], standing, broken)
            except OSError as error:
                why = f"it does not accept connections: {error}"
            except Exception as error:  # noqa: BLE001 - the other guards go on
                why = f"{BUG_PHRASE}: {error!r}"
                _log.exception("bug", sentence=BUG_PHRASE, where=f"the guard of {address}")
            except asyncio.CancelledError:
                self._standing.pop(address, None)  # logged where it was decided
                raise
            finally:
                self._quarantined[address] = asyncio.get_running_loop().time() + _QUARANTINE_SECONDS
                self._lose(address, why)

    async def _prove(self, address: BrokerAddress, cluster_id: ClusterId, old: contextlib.ExitStack) -> str:
        """Stand on a new connection and a new proof; return why the address may not. `old` holds the one that stands.

        Want of descriptors on this side says nothing about the broker: then the old connection goes on standing.

        Raises:
            OSError: it does not accept connections.
        """
        try:
            resolved = await self.prover.resolve(address)
            connection = await connect(resolved, timeout_seconds=self._limits.attempt_timeout_seconds)
            with contextlib.ExitStack() as new:
                new.enter_context(connection)
                if why := await self.prover.prove(address, resolved, cluster_id):
                    return why
                await self._look_at_names(address, resolved)
                old.close()  # only now: one of the two has stood all the time
                old.push(new.pop_all())
        except OSError as error:
            if not is_ours(error) or address not in self._standing:
                raise
            _log.warning("proof_not_renewed", upstream=str(address), error=str(error))
            return ""
        self._stand(address, resolved, connection)
        return ""

    async def _until_broken(
        self, address: BrokerAddress, connection: socket.socket, resolved: Resolved, broken: asyncio.Event
    ) -> str:
        """Return why the address no longer counts; empty when its connection only got old."""
        limits = self._limits
        renewal = limits.renew_seconds * random.uniform(0.8, 1.2)  # noqa: S311 - so that not all are renewed at once
        tasks = {
            "its connection broke": asyncio.ensure_future(_until_closed(connection)),
            "it stopped answering": asyncio.ensure_future(self._until_silent(address, resolved)),
            "it did not accept a client's connection": asyncio.ensure_future(broken.wait()),
            "": asyncio.ensure_future(asyncio.sleep(renewal)),
        }
        try:
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            return next(why for why, task in tasks.items() if task.done())
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _until_silent(self, address: BrokerAddress, resolved: Resolved) -> None:
        missed = 0
        while missed < _MISSED_CHECKS:
            await asyncio.sleep(self._limits.health_check_interval_seconds)
            limit = self._limits.health_check_timeout_seconds
            answered = await is_answering(resolved, address.host, tls=self.prover.tls, timeout_seconds=limit)
            missed = 0 if answered else missed + 1

    async def _look_at_names(self, address: BrokerAddress, resolved: Resolved) -> None:
        tls, limit = self.prover.tls, self._limits.attempt_timeout_seconds
        if tls is None:
            return
        shown = await certificate(resolved, address.host, tls=tls, timeout_seconds=limit)
        finding = None
        if shown:
            with contextlib.suppress(ValueError):  # no certificate that can be read: clients will say so themselves
                finding = judge(address, names_of(shown), host=self._limits.host, port=self.port)
        if finding is None:
            self.findings.pop(address, None)
        elif self.findings.get(address) != finding:
            self.findings[address] = finding
            _log.warning("clients_will_refuse", upstream=str(address), finding=finding.text)

    def _stand(self, address: BrokerAddress, resolved: Resolved, witness: socket.socket) -> None:
        if address not in self._standing:
            _log.info("upstream_ready", upstream=str(address), ready=len(self._standing) + 1)
        self._standing[address] = resolved
        self._witnesses[address] = witness
        self._changed.set()
        self._changed = asyncio.Event()

    def _lose(self, address: BrokerAddress, why: str) -> None:
        self._witnesses.pop(address, None)
        if self._standing.pop(address, None) is None:
            return
        self.findings.pop(address, None)
        self._counts.lost[str(address)] += 1
        _log.info("upstream_lost", upstream=str(address), why=why, ready=len(self._standing))
        self._on_lost(address)


def _is_open(connection: socket.socket) -> bool:
    """Look without waiting: a broker that is not asked says nothing, so anything there is the end."""
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


async def _until_closed(connection: socket.socket) -> None:
    """Wait for the end of a connection on which nobody speaks."""
    with contextlib.suppress(OSError):
        await asyncio.get_running_loop().sock_recv(connection, 1)
