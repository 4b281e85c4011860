"""kafka-discovery: keeps Spark streams running while Kafka brokers come and go."""

import sys

import typer

from discovery.cli import checkpoint as checkpoint_commands
from discovery.cli import config as cli_config
from discovery.cli import sink as sink_commands
from discovery.cli import state as cli_state
from discovery.cli.demo import demo
from discovery.cli.doctor import doctor
from discovery.cli.endpoint import endpoint
from discovery.cli.follow import bootstrap, status, watch
from discovery.cli.health import healthcheck
from discovery.cli.jobs import jobs
from discovery.cli.local_kafka import local_kafka_app
from discovery.cli.removal import removal
from discovery.cli.run import run
from discovery.cli.serve import serve
from discovery.core.errors import ConfigError, DiscoveryError
from discovery.spark.launch.extra import PACKAGES, missing

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
app.add_typer(checkpoint_commands.app, name="checkpoint")
app.add_typer(cli_config.app, name="config")
app.add_typer(cli_state.app, name="state")
app.add_typer(local_kafka_app, name="local-kafka")
app.add_typer(sink_commands.app, name="sink")
app.command()(demo)
app.command()(serve)
app.command()(healthcheck)
app.command()(endpoint)
app.command()(run)
app.command()(jobs)
app.command()(bootstrap)
app.command()(status)
app.command()(watch)
app.command()(doctor)
app.command()(removal)


def main() -> None:
    """Run the command line; a `DiscoveryError`, or an extra that is missing, becomes one line and an exit code."""
    try:
        app()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        command = " ".join(word for word in sys.argv[1:2] if not word.startswith("-"))
        print(  # noqa: T201 - as below
            f"kafka-discovery: {command}: {missing(str(error.name))}",
            file=sys.stderr,
        )
        raise SystemExit(ConfigError.exit_code) from error
    except DiscoveryError as error:
        print(f"kafka-discovery: {error}", file=sys.stderr)  # noqa: T201 - the command line's own output
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
