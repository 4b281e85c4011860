"""The command line: one typer application, sub-commands by package, no traceback for a user's mistake."""

import sys

import typer

from discovery.core.errors import DiscoveryError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


def main() -> None:
    """Run the command line; a `DiscoveryError` becomes one line and its exit code."""
    try:
        app()
    except DiscoveryError as error:
        print(f"kafka-discovery: {error}", file=sys.stderr)  # noqa: T201 - the command line's own output
        raise SystemExit(error.exit_code) from error
