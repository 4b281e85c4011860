"""`kafka-discovery endpoint`: the local bootstrap endpoint alone, for hosts where no service runs."""

import json
import os
import sys
import threading
from typing import Annotated

import typer

from discovery.cli.config import Bootstrap, ConfigFile, StateDir, set_up_log, typed
from discovery.config.flags import AsJson
from discovery.config.provenance import load
from discovery.config.signals import on_stop_signal
from discovery.store.locations import default_state_dir

_START_SECONDS = 10.0
ListenHost = Annotated[str | None, typer.Option("--host", help="Loopback address to listen on.")]
ListenPort = Annotated[int | None, typer.Option("--port", help="Port to listen on (19092); 0: any free one.")]
ClusterName = Annotated[str | None, typer.Option("--cluster", help="Which of several configured clusters.")]
MetricsPort = Annotated[int | None, typer.Option("--metrics-port", help="Serve metrics on this loopback port.")]


def endpoint(  # noqa: PLR0917 - typer's options
    config: ConfigFile = None,
    bootstrap: Bootstrap = None,
    host: ListenHost = None,
    port: ListenPort = None,
    cluster: ClusterName = None,
    state_dir: StateDir = None,
    metrics_port: MetricsPort = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Give any Kafka client on this host one address that always leads to a living broker. Ends with SIGTERM."""
    options = typed(
        bootstrap=bootstrap,
        state_dir=state_dir,
        endpoint=True,
        endpoint_host=host,
        endpoint_port=port,
        endpoint_cluster=cluster,
    )
    settings = load(config=config, environment=os.environ, options=options).settings
    set_up_log(settings.log)
    from discovery.endpoint.make import followed  # noqa: PLC0415 - librdkafka only where it is needed

    stop = threading.Event()
    with on_stop_signal(lambda _: stop.set()):
        running = followed(settings, state_dir=settings.state_dir or default_state_dir())
        address = running.start()
        if metrics_port is not None:
            running.serve_metrics(metrics_port)
        typer.echo(
            json.dumps({"endpoint": address, "pid": os.getpid()}) if as_json else f"bootstrap endpoint: {address}"
        )
        sys.stdout.flush()
        if not running.endpoint.wait_ready(_START_SECONDS):
            running.complain(_START_SECONDS)
        stop.wait()
        running.stop()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # a resolver that hangs would hold up the interpreter
