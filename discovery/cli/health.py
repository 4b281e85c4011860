"""`kafka-discovery healthcheck`: one probe asked from inside a container that has neither curl nor a shell."""

import http.client
import sys
import urllib.error
import urllib.request
from typing import Annotated, Literal

import typer

from discovery.core.errors import ConfigError, DiscoveryError

ProbeUrl = Annotated[
    str, typer.Option("--url", envvar="KAFKA_DISCOVERY_HEALTHCHECK_URL", help="The probe listener of the service.")
]
Probe = Annotated[Literal["livez", "readyz", "startupz"], typer.Option("--probe", help="Which question to ask.")]
Seconds = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the answer.")]


class UnhealthyError(DiscoveryError):
    """The service does not answer, or says that it is not well."""

    exit_code = 1


def healthcheck(url: ProbeUrl = "http://127.0.0.1:9464", probe: Probe = "livez", timeout: Seconds = 3.0) -> None:
    """Ask a running service whether it is well: exit code 0 if so, else 1 and the reason in one line."""
    typer.echo(ask(f"{url.rstrip('/')}/{probe}?verbose", timeout))


def ask(address: str, timeout_seconds: float) -> str:
    """Return what a probe says.

    Raises:
        UnhealthyError: it says no, garbage, or nothing in time; carries the reason.
        ConfigError: the address is none.

    Runs: anywhere; blocks <= timeout_seconds for each of connect and read.
    """
    if not address.startswith(("http://", "https://")):
        raise ConfigError(f"--url: {address!r} is no address; write for example http://127.0.0.1:9464")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy knows nothing of this host
    try:
        with opener.open(address, timeout=timeout_seconds) as answer:
            return _line(answer.read(65_536))
    except urllib.error.HTTPError as error:
        with error:
            raise UnhealthyError(f"unhealthy: {address} says {error.code}: {_line(error.read(65_536))}") from None
    except ValueError as error:  # InvalidURL among them
        raise ConfigError(f"--url: {address!r} is no address: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UnhealthyError(f"unhealthy: {address} does not answer within {timeout_seconds:g} s: {reason}") from error


def main() -> None:
    """Run this command alone; a `DiscoveryError` becomes one line and its exit code."""
    alone = typer.Typer(pretty_exceptions_enable=False)
    alone.callback()(lambda: None)
    alone.command()(healthcheck)
    try:
        alone()
    except DiscoveryError as error:
        print(f"kafka-discovery: {error}", file=sys.stderr)  # noqa: T201 - the command line's own output
        raise SystemExit(error.exit_code) from error


def _line(body: bytes) -> str:
    return "; ".join(body.decode(errors="replace").split("\n")).strip("; ")[:500]
