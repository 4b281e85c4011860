"""`kafka-discovery run -- spark-submit …`: a job that does not change, protected."""

import json
import logging
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from discovery.config.logs import configure_logging
from discovery.config.signals import on_stop_signal
from discovery.core.errors import ConfigError
from discovery.store.locations import default_state_dir


class Inject(StrEnum):
    """What a job is given in place of its list."""

    AUTO = "auto"
    ENDPOINT = "endpoint"
    LIST = "list"
    NONE = "none"


class Policy(StrEnum):
    """When a failed job is started again."""

    EXPONENTIAL = "exponential"
    FIXED = "fixed"
    RATE = "rate"


Command = Annotated[list[str], typer.Argument(help="The command, behind `--`.", metavar="-- COMMAND…")]
InjectOption = Annotated[
    Inject, typer.Option("--inject", help="auto: the endpoint where the master is local, else the vetted list.")
]
ClientConfig = Annotated[
    Path | None, typer.Option("--client-config", help="Properties file with security.*, sasl.*, ssl.* for the vetting.")
]
StateDir = Annotated[Path | None, typer.Option("--state-dir", help="Folder where brokers are remembered.")]
Restart = Annotated[Policy, typer.Option("--restart", help="How restarts are counted and spaced.")]
Restarts = Annotated[
    int, typer.Option("--restarts", min=0, help="Most restarts: in a row, in all, or within --per seconds.")
]
Delay = Annotated[float, typer.Option("--delay", min=0.0, help="Seconds before the first restart.")]
MaxDelay = Annotated[float, typer.Option("--max-delay", min=0.0, help="Longest delay of the exponential policy.")]
Per = Annotated[float, typer.Option("--per", min=1.0, help="Window of the rate policy, seconds.")]
VetTimeout = Annotated[
    float, typer.Option("--vet-timeout", min=1.0, help="Seconds to wait for a living broker before a start.")
]
ReportFile = Annotated[Path | None, typer.Option("--report", help="Write the final report there, as JSON.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show what the discovery loop does, too.")]


def run(  # noqa: PLR0917 - typer's options
    command: Command,
    inject: InjectOption = Inject.AUTO,
    client_config: ClientConfig = None,
    state_dir: StateDir = None,
    restart: Restart = Policy.EXPONENTIAL,
    restarts: Restarts = 20,
    delay: Delay = 1.0,
    max_delay: MaxDelay = 60.0,
    per: Per = 600.0,
    vet_timeout: VetTimeout = 60.0,
    report: ReportFile = None,
    *,
    verbose: Verbose = False,
) -> None:
    """Start a job with living brokers, and start it again where that helps.

    Exit codes: 0 finished, 3 no broker or no leader, 5 login, 6 wrong cluster, 7 data loss, else the job's own.
    """
    configure_logging(level=logging.INFO if verbose else logging.ERROR)
    from discovery.spark.supervise.budget import Budget, Exponential, FailureRate, FixedDelay  # noqa: PLC0415 - as below
    from discovery.spark.supervise.inject import Injector  # noqa: PLC0415 - as above
    from discovery.spark.supervise.list_locations import shape_of  # noqa: PLC0415 - as above
    from discovery.spark.supervise.list_vetting import ListVetter  # noqa: PLC0415 - librdkafka only where it is needed
    from discovery.spark.supervise.safe_options import UNKNOWN, version_in  # noqa: PLC0415 - as below
    from discovery.spark.supervise.supervisor import Supervisor  # noqa: PLC0415 - as above

    policies: dict[Policy, Budget] = {
        Policy.EXPONENTIAL: Exponential(restarts=restarts, first_seconds=delay, cap_seconds=max(delay, max_delay)),
        Policy.FIXED: FixedDelay(restarts=restarts, delay_seconds=delay),
        Policy.RATE: FailureRate(failures=restarts, per_seconds=per, delay_seconds=delay),
    }
    shape = shape_of(command)
    version = version_in(command)
    supervisor = Supervisor(
        injector=Injector(
            command=command,
            environment=dict(os.environ),
            vetter=ListVetter(state_dir=state_dir or default_state_dir(), client=_client(client_config)),
            shape=shape,
            inject=inject.value,
            version=version if version != UNKNOWN or not shape.spark_submit else _bundled(),
        ),
        budget=policies[restart],
        say=_say,
        vet_seconds=vet_timeout,
    )
    with on_stop_signal(supervisor.stop):
        made = supervisor.run()
        for line in made.lines():
            _say(line)
        if report is not None:
            document = {**made.document(), "set": sorted({line for one in supervisor.advised for line in one.say})}
            try:
                report.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
            except OSError as error:
                _say(f"--report: {report} cannot be written: {error.strerror or error}")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(made.exit_code)  # a resolver that hangs would hold up the interpreter


def _say(line: str) -> None:
    typer.echo(f"kafka-discovery run: {line}", err=True)


def _client(path: Path | None) -> dict[str, str]:
    from discovery.spark.supervise.list_locations import keys_of  # noqa: PLC0415 - as above

    if path is None:
        return {}
    try:
        return keys_of(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--client-config: {path} cannot be read: {error}; name a Java properties file") from error


def _bundled() -> tuple[int, int]:
    """Return the kafka-clients that belong to the Spark installed here, if there is one."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - here alone

    from discovery.spark.supervise.safe_options import UNKNOWN, clients_of_spark, parse_version  # noqa: PLC0415 - above

    try:
        return clients_of_spark(parse_version(version("pyspark")))
    except PackageNotFoundError:
        return UNKNOWN
