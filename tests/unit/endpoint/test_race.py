"""Connecting to the first of several brokers: what was won is handed over or closed, whenever it is cancelled."""

import asyncio
import socket
from typing import cast

import pytest

from discovery.core.model import BrokerAddress
from discovery.endpoint import race as racing
from discovery.endpoint.race import Resolved, race

FAST, SLOW = BrokerAddress("fast", 9092), BrokerAddress("slow", 9092)
TO_FAST = Resolved(socket.AF_INET, ("127.0.0.1", 1))
TO_SLOW = Resolved(socket.AF_INET, ("127.0.0.1", 2))


class Connection:
    """Stands for a socket; says whether it was made and closed."""

    def __init__(self) -> None:
        self.is_made = self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("steps", range(16))
def test_given_a_race_when_cancelled_at_any_moment_then_it_ends_so_and_the_winner_is_not_left_open(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    won = Connection()

    async def connect(resolved: Resolved, *, timeout_seconds: float) -> socket.socket:
        await asyncio.sleep(timeout_seconds if resolved == TO_SLOW else 0)
        won.is_made = True
        return cast("socket.socket", won)

    async def play() -> None:
        candidates = [(SLOW, TO_SLOW), (FAST, TO_FAST)]
        task = asyncio.ensure_future(
            race(candidates, every_seconds=0, timeout_seconds=60, on_failure=lambda _address, _error: None)
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.01)
            assert won.closed == won.is_made
        else:
            assert task.result() == (FAST, cast("socket.socket", won))
            assert not won.closed

    monkeypatch.setattr(racing, "connect", connect)
    asyncio.run(play())
