"""`kafka-discovery serve`: the service beside a driver."""

import asyncio
import json
import logging
import os
import sys
from functools import partial

import typer

from discovery.cli.config import (
    Bootstrap,
    ConfigFile,
    EndpointPort,
    Host,
    Port,
    ProbeHost,
    ProbePort,
    StateDir,
    TokenFile,
    WithEndpoint,
    set_up_log,
    typed,
)
from discovery.config.clock import SystemClock
from discovery.config.flags import AsJson
from discovery.config.provenance import Effective, load
from discovery.core.errors import StateError


def serve(  # noqa: PLR0917 - typer's options
    config: ConfigFile = None,
    bootstrap: Bootstrap = None,
    host: Host = None,
    port: Port = None,
    probe_host: ProbeHost = None,
    probe_port: ProbePort = None,
    state_dir: StateDir = None,
    token_file: TokenFile = None,
    endpoint_port: EndpointPort = None,
    *,
    endpoint: WithEndpoint = None,
    as_json: AsJson = False,
) -> None:
    """Follow clusters for many queries: HTTP API, metrics, status page. Ends with SIGTERM; never because of Kafka."""
    read = partial(
        load,
        config=config,
        environment=os.environ,
        options=typed(
            bootstrap=bootstrap,
            host=host,
            port=port,
            probe_host=probe_host,
            probe_port=probe_port,
            state_dir=state_dir,
            token_file=token_file,
            endpoint=True if endpoint is None and endpoint_port is not None else endpoint,
            endpoint_port=endpoint_port,
        ),
    )
    effective: Effective = read()
    set_up_log(effective.settings.log, owns_process=True)
    # The other commands start without what only the service needs.
    from discovery.service.cluster import FeedMaker  # noqa: PLC0415
    from discovery.service.notify import Notifier  # noqa: PLC0415
    from discovery.service.server import serve as run  # noqa: PLC0415
    from discovery.service.service import Service  # noqa: PLC0415

    def say(service: Service, api: str, probes: str) -> None:
        scheme = "https" if effective.settings.api.tls_certificate_file else "http"
        text = {"api": f"{scheme}://{api}", "probes": f"http://{probes}", "pid": os.getpid()}
        line = f"API and status page: {text['api']}   probes: {text['probes']}"
        if service.endpoint is not None:
            text["endpoint"] = service.endpoint.address
            line += f"   bootstrap endpoint: {service.endpoint.address}"
        typer.echo(json.dumps(text) if as_json else line)
        sys.stdout.flush()

    async def main() -> None:
        service = Service(effective, clock=SystemClock(), maker=FeedMaker(), reload_from=read)
        await run(service, on_listening=partial(say, service), notifier=Notifier.of(os.environ))

    try:
        asyncio.run(main())
    except OSError as error:
        raise StateError(f"state_dir: the state cannot be kept: {error}; name a folder you may write") from error
    # Closing librdkafka's clients may wait for a resolver that hangs, and the interpreter would wait for them.
    sys.stdout.flush()
    logging.shutdown()
    sys.stderr.flush()
    os._exit(0)
