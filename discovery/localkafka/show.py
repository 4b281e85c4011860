"""What `kafka-discovery local-kafka` prints: progress, status, results, and what to do next."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.folders import DEFAULT_NAME
from discovery.localkafka.keeper.processes import resident_bytes

_out, _err = Console(), Console(stderr=True)


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error, where nobody watches a line; yields what takes (done, wanted)."""
    if not _err.is_terminal:
        note(title)
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=_err, disable=not _err.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def busy(title: str) -> Iterator[None]:
    """Show on standard error that something of unknown length goes on."""
    with _err.status(title):
        yield


def note(text: str) -> None:
    """Tell a person something, on standard error so that scripts can read the rest."""
    _err.print(text, soft_wrap=True, highlight=False, markup=False)


def result(facts: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    """Print what was done: JSON for scripts on standard output, else a sentence."""
    if as_json:
        _out.print_json(json.dumps(facts))
    else:
        note(sentence)


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


def status(cluster: LocalKafka, name: str, *, as_json: bool) -> None:
    """Print brokers, addresses and logs."""
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
    _say(f"bootstrap.servers={shown['bootstrap_servers']}")
    _say(f"logs: {Path(shown['folder']) / 'logs'}")


def next_steps(cluster: LocalKafka, name: str) -> None:
    """Print what a newcomer can do with a fresh cluster, ready to be copied."""
    last = cluster.broker_ids[-1]
    _say("")
    _say("The cluster is up. Read from it in Spark:")
    _say('  spark.readStream.format("kafka-discovery")')
    _say(f'    .option("kafka.bootstrap.servers", "{cluster.bootstrap_servers}")')
    _say("Break it and mend it from another terminal:")
    lines = [
        (command_line(command, name), does)
        for command, does in (
            (f"kill {last}", "a host is gone"),
            (f"restart {last}", "it is back"),
            (f"pause {last}", "it hangs (undo: resume)"),
            ("add-partitions TOPIC 6", "a topic grows to 6 partitions"),
            ("status", "who lives"),
            ("down", "the end, data included"),
        )
    ]
    width = max(len(line) for line, _ in lines)
    for line, does in lines:
        _say(f"  {line:<{width}}  # {does}")


def command_line(command: str, name: str) -> str:
    """Write a command of `local-kafka` for the cluster called `name`."""
    return f"kafka-discovery local-kafka {command}" + ("" if name == DEFAULT_NAME else f" --name {name}")


def _say(text: str) -> None:
    _out.print(text, soft_wrap=True, highlight=False, markup=False)


def _state(cluster: LocalKafka, broker_id: int) -> str:
    if not cluster.is_alive(broker_id):
        return "dead"
    return "paused" if cluster.is_paused(broker_id) else "alive"


def _resident(pid: int | None) -> int | None:
    return None if pid is None else resident_bytes(pid)
