"""`kafka-discovery state`: look at saved views, and leave one that no longer fits."""

import json
from pathlib import Path
from typing import Annotated

import typer

from discovery.config.flags import AsJson, StateFolder
from discovery.core.errors import ConfigError, StateError
from discovery.store.codec import Saved, decode
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
    rows = [_row(path) for path in _files(state_dir or default_state_dir())]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        typer.echo("  ".join(str(value) for value in row.values()))
    if not rows:
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


def _row(path: Path) -> dict[str, object]:
    try:
        saved: Saved = decode(path.read_bytes())
    except (OSError, StateError) as error:
        return {"file": str(path), "problem": str(error)}
    snapshot = saved.snapshot
    return {
        "file": str(path),
        "cluster": snapshot.cluster_id,
        "generation": snapshot.generation,
        "confirmed_wall": snapshot.confirmed_wall,
        "brokers": ",".join(str(b.address) for b in snapshot.brokers),
        "topics": ",".join(f"{t.name}({len(t.partitions)})" for t in snapshot.topics.values()),
    }
