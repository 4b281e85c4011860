"""Ports for what tests listen on, never ephemeral ones.

A client that still tries the address of a listener that is gone would else meet whoever got the port next. Where that
is the socket from which PySpark fetches rows, Spark takes the stranger for its own client and the query fails.
"""

from discovery.localkafka.ports import reserve_ports


def free_port() -> int:
    """Return a port of loopback that nobody listens on now and that the system gives to nobody by itself."""
    (reservation,) = reserve_ports(1)
    reservation.release()
    return reservation.port


def service_ports() -> tuple[str, ...]:
    """Return the options that give a service two free ports."""
    return ("--port", str(free_port()), "--probe-port", str(free_port()))
