"""Ports for what tests listen on, never ephemeral ones.

A client that still tries the address of a listener that is gone would else meet whoever got the port next. Where that
is the socket from which PySpark fetches rows, Spark takes the stranger for its own client and the query fails.
"""

import contextlib
import socket

from discovery.localkafka.ports import reserve_ports

_ATTEMPTS = 20


def free_port() -> int:
    """Return a port of loopback that nobody listens on now and that the system gives to nobody by itself."""
    (reservation,) = reserve_ports(1)
    reservation.release()
    return reservation.port


def service_ports() -> tuple[str, ...]:
    """Return the options that give a service two free ports."""
    return ("--port", str(free_port()), "--probe-port", str(free_port()))


def bound_socket() -> socket.socket:
    """Return a socket of loopback, bound to a port as above, that does not listen; nobody else can have its port.

    A port whose last connection has just ended is free for a server that asks for it, and not for this one: then
    another is taken.
    """
    for _ in range(_ATTEMPTS):
        bound = socket.socket()
        with contextlib.suppress(OSError):
            bound.bind(("127.0.0.1", free_port()))
            return bound
        bound.close()
    raise AssertionError(f"no port could be bound in {_ATTEMPTS} attempts")
