"""`kafka-discovery config`: what is in force and who said so, before anything starts."""

import json
import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from discovery.config.flags import AsJson, state_folder
from discovery.config.layers import Where
from discovery.config.logs import configure_logging
from discovery.config.opened import open_files
from discovery.config.provenance import Effective, load
from discovery.config.settings import LogSettings
from discovery.core.plural import counted

app = typer.Typer(no_args_is_help=True, help=__doc__)
ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file.")]
Bootstrap = Annotated[str | None, typer.Option("--bootstrap", help="host:port,host:port of the only cluster.")]
Host = Annotated[str | None, typer.Option("--host", help="Address of the API; beyond loopback a token is required.")]
Port = Annotated[int | None, typer.Option("--port", help="Port of the API and the status page; 0: any free one.")]
ProbeHost = Annotated[str | None, typer.Option("--probe-host", help="Address of probes and metrics.")]
ProbePort = Annotated[int | None, typer.Option("--probe-port", help="Port of probes and metrics; 0: any free one.")]
StateDir = Annotated[
    Path | None,
    typer.Option("--state-dir", parser=state_folder, help="Folder of the last good views."),
]
TokenFile = Annotated[Path | None, typer.Option("--token-file", help="File with the token of the API.")]
WithEndpoint = Annotated[
    bool | None, typer.Option("--endpoint/--no-endpoint", help="Offer the local bootstrap endpoint, 127.0.0.1:19092.")
]
EndpointPort = Annotated[
    int | None, typer.Option("--endpoint-port", help="Port of the local bootstrap endpoint; 0: any free one.")
]


def typed(
    *,
    bootstrap: str | None = None,
    host: str | None = None,
    port: int | None = None,
    probe_host: str | None = None,
    probe_port: int | None = None,
    state_dir: Path | None = None,
    token_file: Path | None = None,
    endpoint: bool | None = None,
    endpoint_host: str | None = None,
    endpoint_port: int | None = None,
    endpoint_cluster: str | None = None,
) -> dict[Where, tuple[str, object]]:
    """Return what was typed, by setting, with the option that said it."""
    return {
        ("bootstrap_servers",): ("--bootstrap", bootstrap),
        ("api", "host"): ("--host", host),
        ("api", "port"): ("--port", port),
        ("api", "token_file"): ("--token-file", token_file),
        ("probes", "host"): ("--probe-host", probe_host),
        ("probes", "port"): ("--probe-port", probe_port),
        ("endpoint", "enabled"): ("--endpoint", endpoint),
        ("endpoint", "host"): ("--endpoint-host", endpoint_host),
        ("endpoint", "port"): ("--endpoint-port", endpoint_port),
        ("endpoint", "cluster"): ("--cluster", endpoint_cluster),
        ("state_dir",): ("--state-dir", state_dir),
    }


def set_up_log(log: LogSettings, *, owns_process: bool = False) -> None:
    """Log as the configuration says; `owns_process`: see `configure_logging`."""
    configure_logging(
        as_json=None if log.format == "auto" else log.format == "json",
        level=logging.getLevelNamesMapping()[log.level.upper()],
        owns_process=owns_process,
    )


@app.command("print")
def print_settings(config: ConfigFile = None, bootstrap: Bootstrap = None, *, as_json: AsJson = False) -> None:
    """Show every setting in force, secrets hidden, with where it came from."""
    rows = _load(config, bootstrap).rows()
    if as_json:
        typer.echo(json.dumps([{"name": n, "value": v, "origin": o} for n, v, o in rows], indent=2))
        return
    width = max(len(name) for name, _, _ in rows)
    for name, value, origin in rows:
        typer.echo(f"{name:<{width}}  {value or '-'}  ({origin})")


@app.command()
def check(config: ConfigFile = None, bootstrap: Bootstrap = None, *, as_json: AsJson = False) -> None:
    """Say whether the service would start with this; exit code 2 and the reason if not."""
    effective = _load(config, bootstrap)
    from discovery.service.cluster import FeedMaker, check_clients  # noqa: PLC0415 - librdkafka only where it is needed

    open_files(effective.settings.api)
    check_clients(effective.settings, effective.settings.clusters, FeedMaker())
    clusters = sorted(effective.settings.clusters)
    if as_json:
        typer.echo(json.dumps({"ok": True, "clusters": clusters, "ignored": effective.ignored}, indent=2))
        return
    for name in effective.ignored:
        typer.echo(f"note: {name} is no setting of ours and is ignored")
    typer.echo(f"the configuration is sound: {counted(len(clusters), 'cluster')}: {', '.join(clusters)}")


def _load(config: Path | None, bootstrap: str | None) -> Effective:
    return load(config=config, environment=os.environ, options=typed(bootstrap=bootstrap))
