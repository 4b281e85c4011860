"""Connecting to the first of several verified brokers that accepts: attempts overlap, the slow ones lose."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from discovery.core.model import BrokerAddress


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a name stood for when its broker was verified: clients are led there and nowhere else."""

    family: socket.AddressFamily
    address: tuple[str, int]


async def connect(resolved: Resolved, *, timeout_seconds: float) -> socket.socket:
    """Open one connection.

    Raises:
        OSError: refused, unreachable, or not within the timeout.
    """
    made = socket.socket(resolved.family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(timeout_seconds):
            await asyncio.get_running_loop().sock_connect(made, resolved.address)
    except BaseException:
        made.close()
        raise
    return made


async def race(
    candidates: Sequence[tuple[BrokerAddress, Resolved]],
    *,
    every_seconds: float,
    timeout_seconds: float,
    on_failure: Callable[[BrokerAddress, BaseException], None],
) -> tuple[BrokerAddress, socket.socket] | None:
    """Try candidates in order, a new one every `every_seconds` or at once after a failure; the first to accept wins.

    Args:
        candidates: Best first.
        every_seconds: How long one attempt is alone before the next begins beside it.
        timeout_seconds: Of each attempt.
        on_failure: Hears of every address that refused or was silent.

    Returns:
        The winner and its connection; None if nobody accepted.

    Runs: the endpoint's event loop; at most (n - 1) x every + timeout seconds.
    """
    waiting = list(candidates)
    running: dict[asyncio.Task[socket.socket], BrokerAddress] = {}
    try:
        while waiting or running:
            if waiting:
                address, resolved = waiting.pop(0)
                running[asyncio.ensure_future(connect(resolved, timeout_seconds=timeout_seconds))] = address
            done, _ = await asyncio.wait(
                running, timeout=every_seconds if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            won = _settle(done, running, on_failure)
            if won is not None:
                return won
    finally:
        _abandon(running)
    return None


def _settle(
    done: set[asyncio.Task[socket.socket]],
    running: dict[asyncio.Task[socket.socket], BrokerAddress],
    on_failure: Callable[[BrokerAddress, BaseException], None],
) -> tuple[BrokerAddress, socket.socket] | None:
    winner = None
    for task in [task for task in running if task in done]:  # of two that are done, the better candidate wins
        address = running[task]
        if (error := task.exception()) is not None:
            del running[task]
            on_failure(address, error)
        elif winner is None:
            del running[task]
            winner = address, task.result()
    return winner


def _abandon(running: Mapping[asyncio.Task[socket.socket], BrokerAddress]) -> None:
    """Without waiting: a cancellation that came meanwhile would lose the winner."""
    for task in running:
        if not task.cancel() and not task.cancelled() and task.exception() is None:
            task.result().close()
