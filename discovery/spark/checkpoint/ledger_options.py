"""Where a source keeps its ledger of cuts, as the options of `kafka-discovery checkpoint` name it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import ClientOptions, map_client_options
from discovery.config.option_values import is_uri
from discovery.core.errors import ConfigError
from discovery.core.interest import CUT_LEDGER_TOPIC
from discovery.core.model import TopicName, parse_bootstrap_servers
from discovery.spark.source.cuts.ledger import Ledger, LedgerState, Where
from discovery.spark.source.cuts.ledger_file import FileLedger, other_ledgers, read_ledger
from discovery.spark.source.options.cuts import parse_cut_options
from discovery.store.locations import default_state_dir

if TYPE_CHECKING:
    from discovery.spark.source.cuts.ledger_kafka import KafkaLedger


def _folder(text: str) -> Path:
    if text.startswith("file:"):  # as Spark's users write it
        return Path(urlsplit(text).path)
    if is_uri(text):
        raise ConfigError(
            f"{text} is no path of this machine; copy its metadata, offsets, commits and sources here (hadoop fs -get) "
            "and name the copy"
        )
    return Path(text)


Folder = Annotated[
    Path,
    typer.Argument(parser=_folder, help="The query's checkpointLocation, or a copy, on a local or mounted disk."),
]
Kind = Annotated[str, typer.Option("--cut-ledger", help="file or kafka, as the source's cutLedger.")]
Topic = Annotated[str | None, typer.Option("--cut-ledger-topic", help="The source's cutLedgerTopic.")]
Bootstrap = Annotated[str | None, typer.Option("--bootstrap", help="Where Kafka is: HOST:PORT,…")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The ledger of one source."""

    source_id: str
    state_dir: Path | None = None
    kind: str = "file"
    topic: str | None = None
    bootstrap: str | None = None
    client_options: Sequence[str] = ()
    timeout_seconds: float = 30.0

    def ledger(self) -> Ledger:
        """Name the ledger, to be held.

        Raises:
            ConfigError: the options contradict each other.

        Runs: an operator's command; no I/O but the key stores that options name.
        """
        return self._in_kafka() if self.is_kafka() else self._in_file()

    def look(self) -> LedgerState | None:
        """Read the ledger without holding it; None where there is none.

        Raises:
            ConfigError: the options contradict each other.
            StateError: it cannot be read, or is damaged.

        Runs: an operator's command; blocks <= `timeout_seconds` for one in Kafka.
        """
        if self.is_kafka():
            return self._in_kafka().look()
        return read_ledger(self.state_dir or default_state_dir(), self.source_id)

    def others(self, named: Iterable["Place"]) -> dict[Where, LedgerState]:
        """Read all ledgers but those of some sources: the files of `state_dir`, and the topic where Kafka is known.

        Raises:
            StateError: Kafka does not answer.

        Runs: an operator's command; blocks <= `timeout_seconds`.
        """
        found = other_ledgers(self.state_dir or default_state_dir())
        if self.bootstrap is not None:
            found |= self._in_kafka().look_all()
        own = {place.where() for place in named}
        return {where: state for where, state in found.items() if where not in own}

    def where(self) -> Where:
        """Return the ledger's place as `others` names it."""
        return Where(self.source_id, in_kafka=True) if self.is_kafka() else Where(self._in_file().path.stem)

    def is_kafka(self) -> bool:
        """Tell whether it is a topic.

        Raises:
            ConfigError: the options contradict each other.
        """
        given = {"sourceId": self.source_id, "cutLedger": self.kind}
        options = parse_cut_options(given | ({"cutLedgerTopic": self.topic} if self.topic is not None else {}))
        is_kafka = options is not None and options.in_kafka
        if is_kafka and self.bootstrap is None:
            raise ConfigError("--cut-ledger kafka: where is it? add --bootstrap HOST:PORT")
        return is_kafka

    def _in_file(self) -> FileLedger:
        return FileLedger(self.state_dir or default_state_dir(), self.source_id, lock_wait_seconds=0)

    def _in_kafka(self) -> "KafkaLedger":
        # It brings librdkafka along, which a look at files does not need.
        from discovery.spark.source.cuts.ledger_kafka import KafkaLedger  # noqa: PLC0415

        brokers = parse_bootstrap_servers(self.bootstrap or "", option="--bootstrap")
        connection = client_options(self.client_options).connection
        return KafkaLedger(
            TopicName(self.topic or CUT_LEDGER_TOPIC),
            self.source_id,
            properties=lambda: connection,
            brokers=lambda: brokers,
            timeout_seconds=self.timeout_seconds,
        )


def client_options(texts: Sequence[str]) -> ClientOptions:
    """Read `--client-option`.

    Raises:
        ConfigError: names the option.

    Runs: an operator's command; reads the files that it names.
    """
    return open_stores(map_client_options(dict(_pair(text) for text in texts)))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--client-option: {name!r} has no value; write kafka.NAME=VALUE, or kafka.NAME=@FILE")
    return name, _content(name, Path(value[1:])) if value.startswith("@") else value


def _content(name: str, file: Path) -> str:
    try:
        return file.expanduser().read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--client-option: {name}: cannot read {file}: {error}; name a text file") from error
