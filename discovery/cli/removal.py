"""`kafka-discovery removal`: may these brokers be removed, and are they?"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.text import Text

from discovery.cli.follow import Service
from discovery.config.flags import AsJson, together
from discovery.core.errors import ConfigError, KafkaUnreachableError
from discovery.core.model import BrokerAddress, BrokerId
from discovery.core.policy import Policy
from discovery.core.prediction.removal import RemovalFacts, judge, parse_broker_ids, parse_lists, verify
from discovery.core.prediction.removal_report import plan_text, removal_document, text_lines
from discovery.doctor.inputs import described
from discovery.feed.service_client import ServiceSilentError

EXIT = {"safe": 0, "not": 1, "unknown": 4}
MOST_LISTS_BYTES = 14 * 1024
"""In an address; 2 KiB of what a service reads (`api.header_max_bytes`) are for the other parameters and the token."""
_STYLES = {"✗": "bold red", "!": "yellow", "?": "yellow", "✓": "bold green", "·": "", "→": "cyan"}


@together(Service)
def removal(
    service: Service,
    *,
    brokers: Annotated[str, typer.Option("--brokers", help="The ids in question: 9,10,11,12.")],
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", help="Ask this cluster instead of a service; checks this list too.")
    ] = None,
    properties: Annotated[
        Path | None, typer.Option("--properties", help="Java properties: how to log in, with --bootstrap.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=1, max=60, help="Seconds Kafka may take.")] = 10.0,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Write where replicas should go, for kafka-reassign-partitions.")
    ] = None,
    temporary: Annotated[
        bool, typer.Option("--temporary", help="They come back: fewer replicas meanwhile will do.")
    ] = False,
    verify_done: Annotated[
        bool, typer.Option("--verify", help="They were removed: is it complete, is all well?")
    ] = False,
    lists: Annotated[
        Path | None,
        typer.Option("--lists", help="Lists of clients that report nothing: lines of name = host:port,host:port."),
    ] = None,
    assume_no_other_clients: Annotated[
        bool, typer.Option("--assume-no-other-clients", help="Confirm that no other client lists these brokers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether brokers may be removed; exit code 0 safe, 1 not, 4 unknown."""
    leaving = parse_broker_ids(brokers, option="--brokers")
    if temporary and verify_done:
        raise ConfigError(
            "--temporary and --verify contradict each other: a removal that is temporary is never complete"
        )
    others = _read(lists) if lists is not None else None
    given = parse_lists(others, option="--lists") if others is not None else {}
    if bootstrap is None and properties is None:
        _refuse_large(lists, others or "")
        clients = {"lists": others, "assume_no_other_clients": assume_no_other_clients}
        document = _of_service(service, brokers, timeout, temporary=temporary, verifies=verify_done, clients=clients)
    else:
        facts = _surveyed(bootstrap, properties, leaving, timeout, lists=given)
        facts = replace(facts, clients_known=bool(given) or assume_no_other_clients)
        found = verify(facts, leaving) if verify_done else judge(facts, leaving, temporary=temporary)
        document = removal_document(found, facts, temporary=temporary, verified=verify_done)
        document["note"] = "no service was asked: the lists of its consumers were not looked at"
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    else:
        _show(document)
    if plan is not None:
        _write(plan, document)
    raise typer.Exit(EXIT[document["verdict"]])


def _of_service(
    service: Service, brokers: str, timeout: float, *, temporary: bool, verifies: bool, clients: Mapping[str, Any]
) -> dict[str, Any]:
    client = service.client()
    try:
        return client.removal(brokers, temporary=temporary, verify=verifies, timeout_seconds=timeout, **clients)
    except (ServiceSilentError, KafkaUnreachableError) as error:
        doubt = f"{error}; start a service with `kafka-discovery serve`, or use --bootstrap."
        facts = RemovalFacts(brokers=(), topics=(), doubts=(doubt,))
        found = judge(facts, parse_broker_ids(brokers), temporary=temporary)
        return removal_document(found, facts, temporary=temporary, verified=verifies)
    finally:
        client.close()


def _surveyed(
    bootstrap: str | None,
    properties: Path | None,
    leaving: frozenset[BrokerId],
    timeout: float,
    *,
    lists: Mapping[str, tuple[BrokerAddress, ...]],
) -> RemovalFacts:
    # librdkafka is needed by few commands.
    from discovery.kafka.confluent import ConfluentGatewayFactory  # noqa: PLC0415
    from discovery.kafka.survey import survey  # noqa: PLC0415
    from discovery.kafka.vetting.vet import LibrdkafkaVetter  # noqa: PLC0415

    what = described(bootstrap=bootstrap, properties=properties)
    limits = Policy(connect_timeout_seconds=min(2.0, timeout), request_timeout_seconds=min(5.0, timeout))
    return survey(
        ConfluentGatewayFactory(what.options, limits),
        LibrdkafkaVetter(what.options, limits),
        what.addresses,
        leaving,
        timeout_seconds=timeout,
        lists={**lists, "the list given here": what.addresses},
        trusted=[one for entries in lists.values() for one in entries],
    )


def _read(lists: Path) -> str:
    try:
        return lists.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--lists: {lists} cannot be read: {error}; name a text file") from error


def _refuse_large(lists: Path | None, text: str) -> None:
    if (size := len(quote(text, safe=""))) > MOST_LISTS_BYTES:
        raise ConfigError(
            f"--lists: {lists} takes {size} bytes in a request, and a service reads at most {MOST_LISTS_BYTES};"
            " use --bootstrap instead of a service: it has no limit"
        )


def _show(document: Mapping[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for mark, line in text_lines(document):
        console.print(Text.assemble((f"{mark} ", _STYLES[mark]), line))
    if "note" in document:
        console.print(Text(f"· {document['note']}"))


def _write(path: Path, document: Mapping[str, Any]) -> None:
    if not document["plan"]:
        typer.echo(
            f"--plan: {path} is not written: no replica is to move, or no broker is left to move it to", err=True
        )
        return
    try:
        path.write_text(plan_text(document["plan"]) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--plan: {path} cannot be written: {error.strerror}; name another file") from error
