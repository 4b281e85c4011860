"""`kafka-discovery local-kafka`: a real cluster for trying things out, and the faults to try on it."""

from collections.abc import Callable
from typing import Annotated

import typer

from discovery.config.java import java_command
from discovery.core.errors import ConfigError, StateError
from discovery.core.plural import counted
from discovery.localkafka import show
from discovery.localkafka.admin import wait_until
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.folders import DEFAULT_NAME, cluster_folder
from discovery.localkafka.jars.download import kafka_jars
from discovery.localkafka.layout import ClusterFolder, held
from discovery.localkafka.properties import ClusterSettings

local_kafka_app = typer.Typer(no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)

Name = Annotated[str, typer.Option("--name", help="Which cluster; several may be up at once.")]
Json = Annotated[bool, typer.Option("--json", help="Print the status or the result as JSON.")]
Ids = Annotated[list[str], typer.Argument(metavar="IDS...", help="Broker ids: 1 2, 1,2 or 9-12.")]


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
    java_command()
    kafka_jars()  # shows its own bar
    try:
        with show.progress(f"starting {counted(brokers, 'broker')}") as report:
            cluster.start(on_progress=report)
        show.status(cluster, name, as_json=as_json)
        if not as_json:
            show.next_steps(cluster, name)
        if detach:
            cluster.detach()
            return
        show.note("Ctrl-C ends the cluster and deletes its data.")
        _hold(cluster)
    except KeyboardInterrupt:
        show.note("ending the cluster")
    finally:
        if not cluster.is_detached:
            cluster.stop()


@local_kafka_app.command()
def down(*, name: Name = DEFAULT_NAME, as_json: Json = False) -> None:
    """End a cluster, whoever started it, and delete its data."""
    folder = ClusterFolder(cluster_folder(name))
    try:
        cluster = LocalKafka.attach(folder.path)
    except StateError:
        _sweep(folder, name, as_json=as_json)
        return
    cluster.stop()
    wait_until(
        lambda: _is_free(folder), deadline_seconds=30, otherwise=lambda: f"local cluster {name!r} is still ending"
    )
    _report_down(name, None, f"local cluster {name!r} is down", as_json=as_json)


@local_kafka_app.command()
def status(*, name: Name = DEFAULT_NAME, as_json: Json = False) -> None:
    """Show brokers, addresses, processes and memory."""
    show.status(_attach(name), name, as_json=as_json)


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
    as_json: Json = False,
) -> None:
    """Grow a topic."""
    _attach(name).add_partitions(topic, total)
    facts = {"name": name, "topic": topic, "partitions": total}
    show.result(facts, f"topic {topic} has {counted(total, 'partition')}", as_json=as_json)


@local_kafka_app.command()
def reassign_off(ids: Ids, *, name: Name = DEFAULT_NAME, as_json: Json = False) -> None:
    """Move all replicas off brokers and wait until it is done: what precedes a planned scale-in."""
    wanted, cluster = parse_ids(ids), _attach(name)
    with show.busy(f"moving replicas off brokers {wanted}"):
        cluster.reassign_off(wanted)
    show.result({"name": name, "emptied": wanted}, f"brokers {wanted} hold nothing any more", as_json=as_json)


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
    show.status(cluster, name, as_json=as_json)


def _attach(name: str) -> LocalKafka:
    return LocalKafka.attach(cluster_folder(name))


def _sweep(folder: ClusterFolder, name: str, *, as_json: bool) -> None:
    if not folder.path.is_dir():
        raise StateError(f"no local cluster named {name!r} is up; nothing to do")
    with held(folder.lock()):
        ended = [identity.pid for identity in folder.sweep()]
    left = counted(len(ended), "process", "processes")
    sentence = f"local cluster {name!r} had crashed; ended {left} of it and deleted its data"
    _report_down(name, ended, sentence, as_json=as_json)


def _report_down(name: str, swept: list[int] | None, sentence: str, *, as_json: bool) -> None:
    facts = {"name": name, "down": True, "had_crashed": swept is not None, "swept_pids": swept or []}
    show.result(facts, sentence, as_json=as_json)


def _is_free(folder: ClusterFolder) -> bool:
    try:
        with held(folder.lock()):
            return True
    except StateError:
        return False


def _hold(cluster: LocalKafka) -> None:
    while not cluster.wait_ended(timeout_seconds=3600):
        pass
    show.note("the cluster was ended by another command")
