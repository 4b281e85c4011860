"""`kafka-discovery doctor`: what is wrong with a list, what a start with it will do, and what helps."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from discovery.core.errors import KafkaUnreachableError
from discovery.core.policy import Policy
from discovery.core.prediction.clients import ClientKind
from discovery.doctor.diagnose import Weight, diagnose
from discovery.doctor.inputs import described
from discovery.doctor.processor import processor_here
from discovery.doctor.render import document, report

_RETRIES_FILE = Path("/proc/sys/net/ipv4/tcp_syn_retries")
_DEFAULT_RETRIES = 6
_File = Path | None


def doctor(  # noqa: PLR0917 - typer's options
    bootstrap: Annotated[str | None, typer.Option("--bootstrap", help="The list: host:port,host:port.")] = None,
    spark_conf: Annotated[_File, typer.Option("--spark-conf", help="spark-defaults.conf with kafka.… options.")] = None,
    properties: Annotated[_File, typer.Option("--properties", help="Java properties of the client.")] = None,
    flink_conf: Annotated[
        _File, typer.Option("--flink-conf", help="Flink configuration, properties.… options.")
    ] = None,
    client_version: Annotated[
        str | None, typer.Option("--client-version", help="Of kafka-clients: 2.6, 3.9, 4.1.")
    ] = None,
    kind: Annotated[
        ClientKind, typer.Option("--kind", help="admin: finds partitions for Spark and Flink; consumer: reads.")
    ] = ClientKind.ADMIN,
    timeout: Annotated[float, typer.Option("--timeout", min=0.5, max=60, help="Seconds each stage may take.")] = 3.0,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine a bootstrap list and explain what a JVM client will do with it; exit code 1: grave, 3: nobody answers."""
    # librdkafka is needed by few commands.
    from discovery.doctor.examine import examine  # noqa: PLC0415

    what = described(
        bootstrap=bootstrap,
        spark_conf=spark_conf,
        properties=properties,
        flink_conf=flink_conf,
        client_version=client_version,
        kind=kind,
        system_seconds=system_connect_seconds(),
    )
    limits = Policy(
        connect_timeout_seconds=timeout,
        request_timeout_seconds=timeout,
        api_timeout_seconds=2 * timeout,
        staleness_seconds=max(60.0, 3 * timeout),
    )
    facts = replace(examine(what.addresses, what.options, limits), processor=processor_here())
    diagnosis = diagnose(facts, what)
    if as_json:
        typer.echo(json.dumps(document(diagnosis), indent=2))
    else:
        Console(highlight=False, soft_wrap=True).print(report(diagnosis))
    if not any(seen.answered for seen in diagnosis.facts.listed):
        raise typer.Exit(KafkaUnreachableError.exit_code)
    if diagnosis.weight is Weight.GRAVE:
        raise typer.Exit(1)


def system_connect_seconds() -> float:
    """Return how long this operating system tries to connect: 1 s, 2 s, 4 s … for every repetition and the first."""
    try:
        retries = int(_RETRIES_FILE.read_text(encoding="ascii"))
    except (OSError, ValueError):
        retries = _DEFAULT_RETRIES
    return float(2 ** (retries + 1) - 1)
