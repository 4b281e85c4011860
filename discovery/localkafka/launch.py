"""Starts the JVMs of a cluster and waits until they answer; a broker that meets a taken port moves to another."""

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from discovery.config.java import java_command
from discovery.core.errors import DiscoveryError, KafkaUnreachableError
from discovery.localkafka.admin import Admin, wait_until
from discovery.localkafka.jars.download import kafka_jars
from discovery.localkafka.layout import CONTROLLER
from discovery.localkafka.members import Members
from discovery.localkafka.ports import Reservation, reserve_ports
from discovery.localkafka.properties import port_names

Progress = Callable[[int, int], None]
"""Gets (brokers that answer, brokers wanted)."""

_PORT_ATTEMPTS = 3
_PORT_TAKEN = ("Address already in use", "Socket server failed to bind")


class BrokerStartError(DiscoveryError):
    """A JVM of the local cluster ended when it should run; carries the last lines of its log."""


@contextlib.contextmanager
def reserved(count: int) -> Iterator[tuple[Reservation, ...]]:
    """Reserve ports until the end of the block; a keeper that inherited the locks holds them on."""
    reservations = reserve_ports(count)
    try:
        yield reservations
    finally:
        for reservation in reservations:
            reservation.release()


def format_controller(members: Members, deadline: float) -> None:
    """Format the controller's data folder with Kafka's own tool; blocks about 2 s."""
    config = str(members.files.config(f"{CONTROLLER}.properties"))
    arguments = ["kafka.tools.StorageTool", "format", "-t", members.record.cluster_id, "-c", config, "--standalone"]
    run_tool(members, "format", arguments, deadline)


def spawn(members: Members, name: str) -> None:
    """Start the JVM of the controller or of a broker."""
    command = _java(members, ["kafka.Kafka", str(members.files.config(f"{name}.properties"))])
    members.client.spawn(name, command, members.files.log(name))


def run_tool(members: Members, name: str, arguments: Sequence[str], deadline: float) -> None:
    """Run one of Kafka's own tools to its end.

    Raises:
        BrokerStartError: it failed; carries its last words.
        KafkaUnreachableError: it did not end in time.
    """
    # A child of the keeper like the brokers, so that it cannot outlive us either.
    members.client.spawn(name, _java(members, arguments), members.files.log(name))
    wait_until(
        lambda: members.children()[name].exit_code is not None,
        deadline_seconds=max(1.0, deadline - time.monotonic()),
        otherwise=lambda: f"Kafka's {name} tool did not end",
    )
    if members.children()[name].exit_code != 0:
        raise BrokerStartError(f"Kafka's {name} tool failed: {_last_words(members.files.log(name))}")


def await_ready(
    members: Members, ids: Collection[int], deadline: float, on_progress: Progress | None, *, may_move: bool = True
) -> Members:
    """Wait until these brokers answer and are registered.

    Args:
        members: The cluster.
        ids: Brokers that were spawned.
        deadline: On the monotonic clock.
        on_progress: Called about every 0.3 s.
        may_move: A broker whose port was taken meanwhile gets another one.

    Returns:
        The cluster with the ports as they are now.

    Raises:
        BrokerStartError: a JVM ended. KafkaUnreachableError: not in time.
    """
    attempts = _PORT_ATTEMPTS if may_move else 0
    waiting = set(ids)
    while waiting:
        members, moved = _revive(members, waiting, attempts)
        attempts -= moved
        waiting -= {b for b in waiting if _answers(members.address(b), b, members.record.client_options)}
        if on_progress:
            on_progress(len(ids) - len(waiting), len(ids))
        if waiting and time.monotonic() > deadline:
            logs = members.files.path / "logs"
            raise KafkaUnreachableError(f"brokers {sorted(waiting)} did not answer; logs are in {logs}")
    await_registered(members, ids, deadline_seconds=max(1.0, deadline - time.monotonic()))
    return members


def await_registered(
    members: Members, ids: Collection[int], *, registered: bool = True, deadline_seconds: float
) -> None:
    """Wait until metadata lists all (or, with `registered=False`, none) of these brokers."""
    admin = members.admin()
    missing = wanted = set(ids)

    def reached() -> bool:
        nonlocal admin, missing
        listed = admin.registered()
        if not listed:
            admin = members.admin()  # answered by a broker still fenced it may ask nobody any more (librdkafka #5301)
        missing = wanted - listed if registered else wanted & (listed or wanted)
        return not missing

    wait_until(
        reached,
        deadline_seconds=deadline_seconds,
        otherwise=lambda: (
            f"brokers {sorted(missing)} are {'not' if registered else 'still'} registered: "
            f"{_last_words(members.files.log(str(min(missing))))}"
        ),
    )


def _java(members: Members, arguments: Sequence[str]) -> list[str]:
    log4j = f"-Dlog4j2.configurationFile={members.files.config('log4j2.properties')}"
    jars = os.pathsep.join(map(str, kafka_jars()))
    shared = [f"-XX:SharedArchiveFile={members.archive}"] if members.archive else []
    return [java_command(), *members.settings.jvm_options, *shared, log4j, "-cp", jars, *arguments]


def _revive(members: Members, waiting: Collection[int], attempts: int) -> tuple[Members, int]:
    """Look for JVMs that ended; move brokers that met a taken port. Returns how many were moved."""
    children = members.children()
    ended = [name for name in (CONTROLLER, *map(str, waiting)) if children[name].exit_code is not None]
    for name in ended:
        if name == CONTROLLER or attempts <= 0 or not _met_taken_port(members.files.log(name)):
            raise BrokerStartError(_why_ended(members, name))
        members = _move(members, name)
    return members, len(ended)


def _move(members: Members, name: str) -> Members:
    names = port_names(members.settings, int(name))
    with reserved(len(names)) as reservations:
        for reservation in reservations:
            reservation.share()
            members.client.hold(reservation.lock_file)
    ports = {**members.record.ports, **{n: r.port for n, r in zip(names, reservations, strict=True)}}
    moved = replace(members, record=replace(members.record, ports=ports))
    moved.files.write_broker(moved.record, int(name))
    moved.files.save(moved.record)
    moved.files.log(name).unlink()
    spawn(moved, name)
    return moved


def _why_ended(members: Members, name: str) -> str:
    log, who = members.files.log(name), name if name == CONTROLLER else f"broker {name}"
    if _met_taken_port(log):
        port = members.record.ports[name]
        return f"{who}: port {port} is taken by another program; stop that program and try again"
    return f"{who} ended while starting: {_last_words(log)}"


def _answers(address: str, broker_id: int, options: Mapping[str, str]) -> bool:
    # A broker opens its port only after the controller has unfenced it, so its own answer is the proof.
    found = Admin(address, options).metadata(timeout_seconds=0.3)
    return found is not None and broker_id in found.brokers


def _met_taken_port(log: Path) -> bool:
    text = log.read_text(errors="replace") if log.exists() else ""
    return any(sign in text for sign in _PORT_TAKEN)


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    telling = [line for line in lines if " ERROR " in line or " FATAL " in line or "Exception" in line] or lines[-3:]
    return " | ".join(line.strip() for line in telling[-3:])[:600] or "its log is empty"
