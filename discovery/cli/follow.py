"""`bootstrap`, `status`, `watch`: what is known of a cluster, from a running service or found out here and now."""

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from discovery.config.flags import AsJson, together
from discovery.config.logs import configure_logging
from discovery.config.service_files import ServiceFiles
from discovery.core.errors import KafkaUnreachableError
from discovery.core.model import Verdict, parse_bootstrap_servers
from discovery.feed.base import FeedView, Interest, verdicts
from discovery.feed.service_client import ServiceClient, ServiceSilentError
from discovery.feed.wire import Position, decode_position, decode_view, report_document

_WAIT_SECONDS = 1.0
_EVERYTHING = Interest(pattern="", both_ends=True)
_SHOWN = 30
Url = Annotated[str, typer.Option("--url", help="The service to ask.")]
Servers = Annotated[str | None, typer.Option("--bootstrap", help="Ask these brokers instead: host:port,host:port.")]
ClusterName = Annotated[str, typer.Option("--cluster", help="The cluster's name at the service.")]
TokenFile = Annotated[Path | None, typer.Option("--token-file", help="File with the service's token.")]
CaFile = Annotated[Path | None, typer.Option("--ca-file", help="PEM file with the authorities of the service.")]
CertificateFile = Annotated[
    Path | None, typer.Option("--certificate-file", help="PEM file with a certificate to log in to the service.")
]
KeyFile = Annotated[Path | None, typer.Option("--key-file", help="Its key; in the certificate's file if left out.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.")]
_URL = "http://127.0.0.1:9463"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Which service to ask, and how to log in to it."""

    url: Url = _URL
    cluster: ClusterName = "default"
    token_file: TokenFile = None
    ca_file: CaFile = None
    certificate_file: CertificateFile = None
    key_file: KeyFile = None

    def client(self) -> ServiceClient:
        """Make its client; reads the files.

        Raises:
            ConfigError: the address is none, or a file cannot be read.
        """
        files = ServiceFiles(
            token=self.token_file, ca=self.ca_file, certificate=self.certificate_file, key=self.key_file
        )
        return ServiceClient.of(self.url, cluster=self.cluster, files=files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Service):
    """Whom to ask: a service, or brokers."""

    servers: Servers = None


@together(Source)
def bootstrap(source: Source, *, timeout: Timeout = 10.0, as_json: AsJson = False) -> None:
    """Print the brokers that are alive, host:port,host:port, for scripts; exit code 3 if none is."""
    with _views(source) as views:
        view = _first(views, lambda v: v.bootstrap and _is_vetted(v), timeout)
    listed = [str(address) for address in view.bootstrap]
    typer.echo(json.dumps(listed) if as_json else ",".join(listed))


@together(Source)
def status(source: Source, *, timeout: Timeout = 10.0, as_json: AsJson = False) -> None:
    """Say how a cluster is doing: one sentence, and what is thought of each address; exit code 3 if none answers."""
    with _views(source) as views:
        view = _first(views, _is_vetted, timeout)
    if as_json:
        typer.echo(json.dumps(_document(view), indent=2))
    else:
        Console().print(_picture(view))


@together(Source)
def watch(source: Source) -> None:
    """Show a cluster as it changes, until Ctrl-C."""
    with (
        contextlib.suppress(KeyboardInterrupt),
        _views(source) as views,
        Live(Text("waiting for the first answer"), console=Console(), auto_refresh=False) as live,
    ):
        for view in views:
            live.update(_picture(view), refresh=True)


@contextlib.contextmanager
def _views(source: Source) -> Iterator[Iterator[FeedView]]:
    """Yield an endless sequence of views, at least one a second."""
    if source.servers is None:
        with contextlib.closing(source.client()) as client:
            yield _of_service(client)
        return
    from discovery.feed.embedded import EmbeddedFeed  # noqa: PLC0415 - librdkafka is not needed to ask a service

    configure_logging(level=logging.ERROR)
    feed = EmbeddedFeed(bootstrap=parse_bootstrap_servers(source.servers, option="--bootstrap"), interest=_EVERYTHING)
    feed.start()
    try:
        yield _of_loop(feed.wait)
    finally:
        feed.stop()


def _of_service(client: ServiceClient) -> Iterator[FeedView]:
    held, view = Position(), None
    while True:
        try:
            document, age_seconds = client.follow(
                held, topics=None, pattern=None, wait_seconds=_WAIT_SECONDS, silence_seconds=5.0
            )
        except ServiceSilentError as error:
            raise KafkaUnreachableError(
                f"{error}; start one with `kafka-discovery serve`, or use --bootstrap"
            ) from error
        base = view if document.get("since") else None
        view = decode_view(document, held=base, interest=_EVERYTHING, version=0, age_seconds=age_seconds)
        held = decode_position(document)
        yield view


def _of_loop(wait: Callable[[int, float], FeedView]) -> Iterator[FeedView]:
    version = -1
    while True:
        view = wait(version, _WAIT_SECONDS)
        version = view.version
        yield view


def _is_vetted(view: FeedView) -> bool:
    return view.generation > 0 and all(report.verdict for report in view.addresses.values())


def _first(views: Iterator[FeedView], enough: Callable[[FeedView], object], timeout_seconds: float) -> FeedView:
    """Return the first view that is enough, or the last usable one when time is up."""
    deadline = time.monotonic() + timeout_seconds
    for view in views:
        if enough(view) or (view.generation and time.monotonic() > deadline):
            return view
        if time.monotonic() > deadline:
            raise KafkaUnreachableError(f"no broker answered within {timeout_seconds:g} s; {verdicts(view)}")
    raise AssertionError("views are endless")


def _document(view: FeedView) -> dict[str, Any]:
    age = view.age_seconds
    return {
        "state": view.state.value,
        "sentence": view.sentence,
        "cluster_id": view.cluster_id,
        "generation": view.generation,
        "age_seconds": None if age == float("inf") else round(age, 3),
        "bootstrap": [str(address) for address in view.bootstrap],
        "addresses": {str(address): report_document(report) for address, report in view.addresses.items()},
        "parked": {str(tp): one.parked_reason for tp, one in view.partitions.items() if one.parked_reason},
    }


def _picture(view: FeedView) -> Group:
    brokers = Table("address", "verdict", "why", "leads", title=view.sentence, title_justify="left")
    for address, report in view.addresses.items():
        led = sum(one.leader == address for one in view.partitions.values())
        verdict = report.verdict.value.replace("_", " ") if report.verdict else "not asked yet"
        style = "green" if report.verdict is Verdict.ALIVE else "yellow"
        brokers.add_row(str(address), Text(verdict, style=style), Text(report.detail), str(led))
    parked = [(tp, one.parked_reason) for tp, one in view.partitions.items() if one.parked_reason]
    if not parked:
        return Group(brokers)
    table = Table("parked", "why")
    for tp, reason in parked[:_SHOWN]:
        table.add_row(Text(str(tp)), Text(reason or ""))
    more = [Text(f"and {len(parked) - _SHOWN} more")] if len(parked) > _SHOWN else []
    return Group(brokers, table, *more)
