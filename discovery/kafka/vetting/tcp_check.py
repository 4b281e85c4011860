"""Step one of vetting, for all addresses at once: does the name resolve, does anybody accept a connection?"""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, replace

from discovery.config.descriptors import OUT_OF, exhausted, is_ours
from discovery.core.model import BrokerAddress, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What a TCP connect showed. `endpoint` is the address that accepted, for a closer look later."""

    failure: Verdict | None = None
    detail: str = ""
    endpoint: tuple[str, int] | None = None
    lookup_seconds: float | None = None
    """How long the name took; None: it did not resolve, or needed no lookup."""
    connect_seconds: float | None = None
    """How long the connection took, or its failure; None: none was tried."""
    no_route: bool = False
    """The network itself said that there is no way to it."""
    ours: bool = False
    """It failed on this side, for want of descriptors: nothing was learned of the address."""


_NOT_ASKED = Reached(failure=Verdict.SILENT, detail=f"not asked: {OUT_OF}", ours=True)
Sockaddr = tuple[int, tuple[str, int]]
"""Address family, and host and port as `connect` takes them (IPv6 flow and scope are left to the system)."""


class Resolver:
    """Looks names up on threads that may be left behind; one thread per name, however often it is asked.

    `getaddrinfo` has no timeout, and a thread pool would make the interpreter wait for it at exit.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, int], list[Callable[[list[Sockaddr] | OSError], None]]] = {}

    def lookup(self, host: str, port: int, tell: Callable[[list[Sockaddr] | OSError], None]) -> None:
        """Call `tell` with the addresses or the error, on another thread, some time.

        Runs: anywhere; does not block.
        """
        with self._lock:
            waiting = self._waiting.setdefault((host, port), [])
            waiting.append(tell)
            if len(waiting) > 1:
                return
        threading.Thread(target=self._run, args=(host, port), name=f"resolve-{host}", daemon=True).start()

    def _run(self, host: str, port: int) -> None:
        found: list[Sockaddr] | OSError
        try:
            found = _sockaddrs(host, port, flags=0)
        except (OSError, UnicodeError) as exc:
            found = exc if isinstance(exc, OSError) else OSError(str(exc))
        with self._lock:
            waiting = self._waiting.pop((host, port))
        for tell in waiting:
            tell(found)


def _sockaddrs(host: str, port: int, *, flags: int) -> list[Sockaddr]:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, (str(address[0]), port)) for family, _, _, _, address in infos]


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


async def reach_all(
    addresses: Collection[BrokerAddress],
    resolver: Resolver,
    *,
    timeout_seconds: float,
    on_reached: Callable[[BrokerAddress, Reached], None],
) -> None:
    """Try all addresses at once; report each as soon as it is known.

    Runs: an event loop of the vetting thread; blocks <= timeout_seconds, whatever the resolver does.
    """

    async def one(address: BrokerAddress) -> None:
        on_reached(address, await _reach(address, resolver, timeout_seconds))

    await asyncio.gather(*(one(address) for address in addresses))


async def _reach(address: BrokerAddress, resolver: Resolver, timeout_seconds: float) -> Reached:
    clock = asyncio.get_running_loop().time
    begun = clock()
    deadline = begun + timeout_seconds
    try:
        async with asyncio.timeout_at(deadline):
            found = await _resolve(address, resolver)
    except TimeoutError:
        if exhausted():
            return _NOT_ASKED
        return Reached(failure=Verdict.UNRESOLVABLE, detail=f"name lookup did not answer within {timeout_seconds:g} s")
    except OSError as exc:
        if is_ours(exc) or exhausted():
            return _NOT_ASKED
        return Reached(failure=Verdict.UNRESOLVABLE, detail=f"name lookup failed: {exc.strerror or exc}")
    looked_up = clock()
    reached = await _first_accepting(found, deadline, timeout_seconds)
    lookup_seconds = None if _is_literal(address.host) else looked_up - begun
    return replace(reached, lookup_seconds=lookup_seconds, connect_seconds=clock() - looked_up)


async def _resolve(address: BrokerAddress, resolver: Resolver) -> list[Sockaddr]:
    if _is_literal(address.host):
        return _sockaddrs(address.host, address.port, flags=socket.AI_NUMERICHOST)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Sockaddr]] = loop.create_future()

    def settle(found: list[Sockaddr] | OSError) -> None:
        if answer.done():
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def tell(found: list[Sockaddr] | OSError) -> None:
        # The loop is closed when the lookup was given up long ago.
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, found)

    resolver.lookup(address.host, address.port, tell)
    return await answer


async def _first_accepting(found: list[Sockaddr], deadline: float, timeout_seconds: float) -> Reached:
    """Connect to every resolved address at once; the first that accepts wins."""
    attempts = [asyncio.ensure_future(_connect(*sockaddr, deadline)) for sockaddr in dict.fromkeys(found)]
    failures: list[OSError] = []
    try:
        for attempt in asyncio.as_completed(attempts):
            result = await attempt
            if not isinstance(result, OSError):
                return Reached(endpoint=result)
            failures.append(result)
    finally:
        for pending in attempts:
            pending.cancel()
    return _worst(failures, timeout_seconds)


async def _connect(family: int, sockaddr: tuple[str, int], deadline: float) -> tuple[str, int] | OSError:
    """Return the address that accepted, or the error as a value: nobody may be left to catch a late one."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            async with asyncio.timeout_at(deadline):
                await asyncio.get_running_loop().sock_connect(connection, sockaddr)
    except OSError as exc:
        return exc
    return sockaddr


def _worst(failures: list[OSError], timeout_seconds: float) -> Reached:
    """Silence of one address leaves hope where another refused, so it is what we report."""
    if any(map(is_ours, failures)):
        return _NOT_ASKED
    if any(isinstance(exc, TimeoutError) for exc in failures):
        return Reached(failure=Verdict.SILENT, detail=f"no connection within {timeout_seconds:g} s")
    refused = next((exc for exc in failures if isinstance(exc, ConnectionError)), None)
    if refused is not None:
        return Reached(failure=Verdict.REFUSED, detail="connection refused")
    first = failures[0] if failures else OSError("the name has no address")
    return Reached(failure=Verdict.SILENT, detail=f"not reachable: {first.strerror or first}", no_route=True)


def run_reach(work: Coroutine[None, None, None]) -> bool:
    """Run step one on an event loop of its own; False: this process is out of descriptors, so not all were asked.

    Runs: the vetting thread; opens and closes one selector.
    """
    try:
        if not exhausted():
            asyncio.run(work)
            return True
    except OSError as error:
        if not is_ours(error):
            raise
    finally:
        work.close()
    return False
