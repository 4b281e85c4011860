"""`kafka-discovery state`: look at saved views, and leave one that no longer fits."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from discovery.config.flags import AsJson, StateFolder
from discovery.core.errors import ConfigError, StateError
from discovery.core.model import Snapshot
from discovery.store.codec import decode
from discovery.store.files import FileLock
from discovery.store.locations import default_state_dir
from discovery.store.snapshots import file_name
from discovery.store.topic_ids import TopicIdStore

app = typer.Typer(no_args_is_help=True, help=__doc__)
_FOLDERS = ("", "service", "brokers")
"""Below a state folder: of sources, of `serve`, of `run` and `endpoint`."""


@app.command("list")
def list_views(state_dir: StateFolder = None, *, as_json: AsJson = False) -> None:
    """Show every saved view: whose it is, its brokers, when it was last confirmed, and files that cannot be read."""
    paths = _files(state_dir or default_state_dir())
    if as_json:
        typer.echo(json.dumps([_row(path) for path in paths], indent=2))
        return
    for path in paths:
        typer.echo(_line(path))
    if not paths:
        typer.echo(f"no saved view in {state_dir or default_state_dir()}")


@app.command()
def reset(
    state_dir: StateFolder = None,
    source: Annotated[
        str | None, typer.Option("--source", help="The view of this sourceId, or of this cluster of a service.")
    ] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="The view of this cluster id.")] = None,
) -> None:
    """Drop one saved view, so that the next start trusts what it finds. Refused while a process holds it."""
    if (source is None) == (cluster is None):
        raise ConfigError("state reset: give exactly one of --source and --cluster; `state list` shows what there is")
    base = state_dir or default_state_dir()
    name = f"sources/{file_name(source)}" if source is not None else f"clusters/{file_name(cluster or '')}"
    found = [path for path in _files(base) if path.match(name)]
    if not found:
        raise ConfigError(f"state reset: there is no {name} below {base}; `state list` shows what there is")
    if len(found) > 1:
        raise ConfigError(f"state reset: {', '.join(map(str, found))} have that name; name one's folder as --state-dir")
    (path,) = found
    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire()
    except StateError as error:
        raise StateError(f"state reset: {error}; stop that process first") from error
    try:
        path.unlink()
        if source is not None:
            TopicIdStore(path.parents[1], source).path.unlink(missing_ok=True)
    finally:
        lock.release()
    typer.echo(f"dropped {path}")


def _files(base: Path) -> list[Path]:
    return sorted(
        path
        for folder in _FOLDERS
        for kind in ("sources", "clusters")
        for path in (base / folder / kind).glob("*.json")
    )


def _snapshot(path: Path) -> Snapshot | str:
    """Return a saved view, or why there is none."""
    try:
        return decode(path.read_bytes()).snapshot
    except (OSError, StateError) as error:
        return str(error)


def _row(path: Path) -> dict[str, object]:
    snapshot = _snapshot(path)
    if isinstance(snapshot, str):
        return {"file": str(path), "problem": snapshot}
    return {
        "file": str(path),
        "cluster": snapshot.cluster_id,
        "generation": snapshot.generation,
        "confirmed_wall": snapshot.confirmed_wall,
        "brokers": _brokers(snapshot),
        "topics": _topics(snapshot),
    }


def _line(path: Path) -> str:
    snapshot = _snapshot(path)
    if isinstance(snapshot, str):
        return f"{path}: {snapshot}"
    when = datetime.fromtimestamp(snapshot.confirmed_wall, UTC)
    return (
        f"{path}: cluster {snapshot.cluster_id}, generation {snapshot.generation},"
        f" confirmed {when:%Y-%m-%d %H:%M:%S} UTC, brokers {_brokers(snapshot)}, topics {_topics(snapshot) or 'none'}"
    )


def _brokers(snapshot: Snapshot) -> str:
    return ",".join(str(broker.address) for broker in snapshot.brokers)


def _topics(snapshot: Snapshot) -> str:
    return ",".join(f"{topic.name}({len(topic.partitions)})" for topic in snapshot.topics.values())
