"""`kafka-discovery local-kafka`: a real cluster for trying things out, and the faults to try on it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from discovery.core.errors import ConfigError, StateError
from discovery.localkafka.admin import wait_until
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.folders import DEFAULT_NAME, cluster_folder
from discovery.localkafka.layout import ClusterFolder, held
from discovery.localkafka.processes import resident_bytes
from discovery.localkafka.properties import ClusterSettings

local_kafka_app = typer.Typer(no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)

Name = Annotated[str, typer.Option("--name", help="Which cluster; several may be up at once.")]
Json = Annotated[bool, typer.Option("--json", help="Print the status as JSON.")]
Ids = Annotated[list[str], typer.Argument(metavar="IDS...", help="Broker ids: 1 2, 1,2 or 9-12.")]

_out, _err = Console(), Console(stderr=True)


@local_kafka_app.command()
def up(
    *,
    brokers: Annotated[int, typer.Option(help="How many brokers; each is a JVM of about 150 MB.")] = 3,
    racks: Annotated[int, typer.Option(help="Racks the brokers fill in order of their ids.")] = 1,
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is up; end it with `down`.")] = False,
    name: Name = DEFAULT_NAME,
    as_json: Json = False,
) -> None:
    """Start a cluster and hold it until Ctrl-C (or, with --detach, until `down`)."""
    cluster = LocalKafka(ClusterSettings(brokers=brokers, racks=racks), folder=cluster_folder(name))
    try:
        with _progress(f"starting {brokers} brokers") as show:
            cluster.start(on_progress=show)
        _print_status(cluster, name, as_json=as_json)
        if detach:
            cluster.detach()
            return
        _err.print("Ctrl-C ends the cluster and deletes its data.")
        _hold(cluster)
    except KeyboardInterrupt:
        _err.print("ending the cluster")
    finally:
        if not cluster.is_detached:
            cluster.stop()


@local_kafka_app.command()
def down(*, name: Name = DEFAULT_NAME) -> None:
    """End a cluster, whoever started it, and delete its data."""
    folder = ClusterFolder(cluster_folder(name))
    try:
        cluster = LocalKafka.attach(folder.path)
    except StateError:
        _sweep(folder, name)
        return
    cluster.stop()
    wait_until(
        lambda: _is_free(folder), deadline_seconds=30, otherwise=lambda: f"local cluster {name!r} is still ending"
    )
    _err.print(f"local cluster {name!r} is down")


@local_kafka_app.command()
def status(*, name: Name = DEFAULT_NAME, as_json: Json = False) -> None:
    """Show brokers, addresses, processes and memory."""
    _print_status(_attach(name), name, as_json=as_json)


@local_kafka_app.command()
def kill(ids: Ids, *, name: Name = DEFAULT_NAME, as_json: Json = False) -> None:
    """Kill brokers with SIGKILL, all at once: a host that is gone."""
    _act(name, ids, LocalKafka.kill, as_json=as_json)


@local_kafka_app.command()
def pause(ids: Ids, *, name: Name = DEFAULT_NAME, as_json: Json = False) -> None:
    """Freeze brokers with SIGSTOP: connections are accepted and nothing is answered."""
    _act(name, ids, LocalKafka.pause, as_json=as_json)


@local_kafka_app.command()
def resume(ids: Ids, *, name: Name = DEFAULT_NAME, as_json: Json = False) -> None:
    """Thaw frozen brokers."""
    _act(name, ids, LocalKafka.resume, as_json=as_json)


@local_kafka_app.command()
def restart(ids: Ids, *, name: Name = DEFAULT_NAME, as_json: Json = False) -> None:
    """Start brokers again on their address and data, killing those that still run."""
    _act(name, ids, LocalKafka.restart, as_json=as_json)


@local_kafka_app.command()
def add_partitions(
    topic: str,
    total: Annotated[int, typer.Argument(help="How many partitions the topic has afterwards.", min=1)],
    *,
    name: Name = DEFAULT_NAME,
) -> None:
    """Grow a topic."""
    _attach(name).add_partitions(topic, total)
    _err.print(f"topic {topic} has {total} partitions")


@local_kafka_app.command()
def reassign_off(ids: Ids, *, name: Name = DEFAULT_NAME) -> None:
    """Move all replicas off brokers and wait until it is done: what precedes a planned scale-in."""
    wanted = parse_ids(ids)
    with _err.status(f"moving replicas off brokers {wanted}"):
        _attach(name).reassign_off(wanted)
    _err.print(f"brokers {wanted} hold nothing any more")


def parse_ids(texts: list[str]) -> list[int]:
    """Read `1 2`, `1,2` and `9-12`: ids in the given order, without repeats.

    Raises:
        ConfigError: something else was written.
    """
    found: list[int] = []
    for part in (part for text in texts for part in text.split(",") if part):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError(f"broker ids {part!r}: write numbers as 1 2, 1,2 or 9-12")
        found += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(found))


def _act(name: str, ids: list[str], action: Callable[[LocalKafka, list[int]], None], *, as_json: bool) -> None:
    wanted, cluster = parse_ids(ids), _attach(name)
    action(cluster, wanted)
    _print_status(cluster, name, as_json=as_json)


def _attach(name: str) -> LocalKafka:
    return LocalKafka.attach(cluster_folder(name))


def _sweep(folder: ClusterFolder, name: str) -> None:
    if not folder.path.is_dir():
        raise StateError(f"no local cluster named {name!r} is up; nothing to do")
    with held(folder.lock()):
        ended = folder.sweep()
    _err.print(f"local cluster {name!r} had crashed; ended {len(ended)} processes it left and deleted its data")


def _is_free(folder: ClusterFolder) -> bool:
    try:
        with held(folder.lock()):
            return True
    except StateError:
        return False


def _hold(cluster: LocalKafka) -> None:
    while not cluster.wait_ended(timeout_seconds=3600):
        pass
    _err.print("the cluster was ended by another command")


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int], None]]:
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=_err) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def describe(cluster: LocalKafka, name: str) -> dict[str, Any]:
    """Return the status as JSON values."""
    processes = cluster.process_ids()
    return {
        "name": name,
        "folder": str(cluster.folder),
        "cluster_id": cluster.cluster_id,
        "bootstrap_servers": cluster.bootstrap_servers,
        "brokers": [
            {
                "id": broker_id,
                "address": cluster.address(broker_id),
                "rack": cluster.settings.rack_of(broker_id),
                "state": _state(cluster, broker_id),
                "pid": processes.get(str(broker_id)),
                "resident_bytes": _resident(processes.get(str(broker_id))),
            }
            for broker_id in cluster.broker_ids
        ],
    }


def _state(cluster: LocalKafka, broker_id: int) -> str:
    if not cluster.is_alive(broker_id):
        return "dead"
    return "paused" if cluster.is_paused(broker_id) else "alive"


def _resident(pid: int | None) -> int | None:
    return None if pid is None else resident_bytes(pid)


def _print_status(cluster: LocalKafka, name: str, *, as_json: bool) -> None:
    shown = describe(cluster, name)
    if as_json:
        _out.print_json(json.dumps(shown))
        return
    table = Table("id", "address", "rack", "state", "pid", "MB", title=f"local cluster {name!r}")
    for broker in shown["brokers"]:
        megabytes = "" if broker["resident_bytes"] is None else str(broker["resident_bytes"] // 1_000_000)
        row = (broker["id"], broker["address"], broker["rack"], broker["state"], broker["pid"] or "", megabytes)
        table.add_row(*map(str, row))
    _out.print(table)
    _out.print(f"bootstrap.servers={shown['bootstrap_servers']}", soft_wrap=True, highlight=False)
    _out.print(f"logs: {Path(shown['folder']) / 'logs'}", soft_wrap=True, highlight=False)
