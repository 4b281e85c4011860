"""What tells a killed leader from a slow one: its host refuses connections. Silence proves nothing."""

import socket
import threading
from collections.abc import Callable, Collection

from discovery.core.model import BrokerAddress

FIRST_CHECK_SECONDS = 0.1
"""Two polls without anything: a living leader answers sooner, or accepts the connection."""
_LONGEST_SECONDS = 30.0
_CONNECT_SECONDS = 2.0

Check = Callable[[], bool | None]
"""Whether a host refused; None: it has not answered yet."""


class Evidence:
    """What TCP checks of leaders showed while nothing came. One thread; each check runs on a thread of its own."""

    def __init__(self, begin_check: Callable[[BrokerAddress], Check]) -> None:
        """Begin without any; `begin_check` must not block."""
        self._begin_check = begin_check
        self._checks: dict[BrokerAddress, tuple[float, float, Check]] = {}
        """The last one of each: when it began, how long until the next may, and itself."""

    def shows_dead(self, leaders: Collection[BrokerAddress | None], *, since: float, now: float) -> bool:
        """Tell whether each of these leaders refused a connection since then.

        Who accepts one is asked again after 0.1, 0.2, 0.4 s ... up to 30 s, however often something comes in between,
        and never while a check runs: it may be killed while we wait for it. A living broker that closed a connection
        accepts the next one, and the client connects again by itself.

        Args:
            leaders: Of the ranges that are not at their ends; None is unknown, and then nothing is shown.
            since: What was seen before does not count: something came, or the refusal was explained.
            now: Monotonic seconds.

        Runs: worker; does not block.
        """
        if now - since < FIRST_CHECK_SECONDS or None in leaders or not leaders:
            return False
        refused = [self._refuses(leader, since, now) for leader in set(leaders) if leader is not None]
        return all(refused)

    def _refuses(self, leader: BrokerAddress, since: float, now: float) -> bool:
        begun_at, rest_seconds, check = self._checks.get(leader, _NEVER)
        refused = check()
        if refused is not None and not (refused and begun_at > since) and now >= begun_at + rest_seconds:
            rest_seconds = min(2 * rest_seconds, _LONGEST_SECONDS)
            begun_at, _, check = self._checks[leader] = now, rest_seconds, self._begin_check(leader)
        return begun_at > since and check() is True


_NEVER: tuple[float, float, Check] = (float("-inf"), FIRST_CHECK_SECONDS / 2, lambda: False)


def begin_check(address: BrokerAddress) -> Check:
    """Try to connect to a broker, which sends it nothing. Without a thread to spare, nothing is shown.

    Runs: worker; does not block, a thread ends after 2 s or with the resolver.
    """
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(_refuses(address)), name="check-leader", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return lambda: False
    return lambda: found[0] if found else None


def _refuses(address: BrokerAddress) -> bool:
    """A name may have several addresses: all must refuse."""
    try:
        with socket.create_connection((address.host, address.port), _CONNECT_SECONDS, all_errors=True):
            return False
    except ExceptionGroup as failed:
        return all(isinstance(error, ConnectionRefusedError) for error in failed.exceptions)
    except OSError:
        return False
