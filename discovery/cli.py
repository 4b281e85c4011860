"""kafka-discovery: keeps Spark streams running while Kafka brokers come and go."""

import sys

import typer

from discovery import cli_config, cli_state
from discovery.cli_doctor import doctor
from discovery.cli_endpoint import endpoint
from discovery.cli_follow import bootstrap, status, watch
from discovery.cli_health import healthcheck
from discovery.cli_removal import removal
from discovery.cli_run import run
from discovery.cli_serve import serve
from discovery.core.errors import DiscoveryError
from discovery.demo.commands import demo
from discovery.localkafka.commands import local_kafka_app
from spark_jobs.checkpoint import commands as checkpoint_commands
from spark_jobs.sink import commands as sink_commands

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
app.command()(bootstrap)
app.command()(status)
app.command()(watch)
app.command()(doctor)
app.command()(removal)


def main() -> None:
    """Run the command line; a `DiscoveryError` becomes one line and its exit code."""
    try:
        app()
    except DiscoveryError as error:
        print(f"kafka-discovery: {error}", file=sys.stderr)  # noqa: T201 - the command line's own output
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
