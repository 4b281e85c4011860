"""What systemd is notified of, by a real datagram socket."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from discovery.service.notify import Notifier


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(10)
        yield address, listener


def test_given_no_systemd_when_notified_then_nothing_happens() -> None:
    notifier = Notifier.of({})
    notifier.tell("READY=1")
    assert notifier == Notifier(address=None, watchdog_seconds=None)


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "20000000"}, 20.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid())}, 20.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_given_what_systemd_says_when_read_then_the_watchdog_is_ours_or_nobodys(
    environment: dict[str, str], seconds: float | None
) -> None:
    assert Notifier.of({"NOTIFY_SOCKET": "/run/x", **environment}).watchdog_seconds == seconds


def test_given_a_supervisor_when_notified_then_it_hears_the_lines(supervisor: tuple[str, socket.socket]) -> None:
    address, listener = supervisor
    Notifier(address=address).tell("READY=1", "STATUS=well")
    assert listener.recv(1_000) == b"READY=1\nSTATUS=well"


def test_given_an_abstract_address_when_notified_then_it_is_heard() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        name = f"kafka-discovery-test-{os.getpid()}"
        listener.bind(f"\0{name}")
        listener.settimeout(10)
        Notifier(address=f"@{name}").tell("READY=1")
        assert listener.recv(1_000) == b"READY=1"


def test_given_a_supervisor_that_is_gone_when_notified_then_the_service_goes_on(tmp_path: Path) -> None:
    Notifier(address=str(tmp_path / "nobody")).tell("READY=1")


@pytest.mark.parametrize(
    ("alive", "heard"), [(True, b"STATUS=turning\nWATCHDOG=1"), (False, b"STATUS=turning")], ids=["well", "stuck"]
)
def test_given_a_watchdog_when_the_loops_turn_or_hang_then_only_the_living_sign(
    supervisor: tuple[str, socket.socket], *, alive: bool, heard: bytes
) -> None:
    address, listener = supervisor
    notifier = Notifier(address=address, watchdog_seconds=0.02)

    async def main() -> list[bytes]:
        telling = asyncio.ensure_future(notifier.keep_alive(lambda: (alive, "turning")))
        said = [await asyncio.to_thread(listener.recv, 1_000) for _ in range(3)]
        telling.cancel()
        return said

    assert asyncio.run(main()) == [heard] * 3
