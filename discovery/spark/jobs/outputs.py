"""Where a job writes: read from the command line, made ready before Spark starts, and written batch by batch."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from discovery.config.option_values import topic_name
from discovery.core.errors import ConfigError
from discovery.core.model import TopicName
from discovery.kafka.topics import TopicAdmin
from discovery.kafka.transactions import Access
from discovery.spark.jobs.folder import FORMATS, FolderOutput, FolderWriter
from discovery.spark.jobs.jdbc import SCHEME, JdbcOutput, JdbcWriter
from discovery.spark.jobs.letters import shaped
from discovery.spark.jobs.sqlite import SQLITE, SqliteOutput, SqliteWriter, make_file, sqlite_file
from discovery.spark.jobs.tables import Results, records_of, tables_of
from discovery.spark.jobs.texts import Parser, pairs, positive
from discovery.spark.sink import exactly_once
from discovery.spark.sink.checks import living_brokers
from discovery.spark.sink.options import NAMED_TOPIC, parse_options
from discovery.spark.sink.preflight import prepare
from discovery.spark.sink.stops import stoppable
from discovery.spark.sink.targets import OVERHEAD_BYTES, Targets

_ANSWER_SECONDS = 30.0
_OF_KAFKA = ("output_topic", "dead_letter_topic", "sink_id", "lanes", "sink_option", "create_topics")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOutput:
    """Results as records of a topic, each once."""

    bootstrap_servers: str
    topic: str
    sink_id: str
    dead_letter_topic: str | None = None
    lanes: int = 1
    sink_options: tuple[tuple[str, str], ...] = ()
    create_topics: bool = False

    @property
    def sink(self) -> dict[str, str]:
        """The options of the sink."""
        named = {"kafka.bootstrap.servers": self.bootstrap_servers, "sinkId": self.sink_id, "lanes": str(self.lanes)}
        dead = self.dead_letter_topic
        fitting = {} if dead is None else {"onBadRecord": "dead-letter", "deadLetterTopic": dead}
        return named | fitting | dict(self.sink_options)

    @property
    def topics(self) -> dict[str, str]:
        """What must exist, by the option that names it."""
        dead = {"--dead-letter-topic": self.dead_letter_topic} if self.dead_letter_topic else {}
        return {"--output-topic": self.topic, **dead}


Output = KafkaOutput | SqliteOutput | JdbcOutput | FolderOutput


def add_outputs(parser: Parser, *, sink_id: str, dead_letters: str) -> None:
    """Add what `output_of` reads.

    Args:
        parser: Takes it.
        sink_id: Of the job.
        dead_letters: What becomes of records that cannot be used, where no topic is named for them.

    Runs: main thread.
    """
    add = parser.add_argument
    kinds = f"kafka|{SQLITE}FILE|{SCHEME}URL|parquet:FOLDER|orc:FOLDER"
    add("--output", default="kafka", metavar=kinds, help="where the results go (default: kafka)")
    options = f"with --output {SCHEME}URL: an option of Spark's JDBC writer or of the driver, driver=CLASS among them"
    add("--output-option", action="append", metavar="NAME=VALUE", help=options)
    add("--output-topic", metavar="TOPIC", help="with kafka: the topic of the results; it must exist")
    add("--dead-letter-topic", metavar="TOPIC", help=f"with kafka: of records of no use (default: {dead_letters})")
    add("--sink-id", help=f"with kafka: name of the sink, of this query alone (default: {sink_id})")
    add("--lanes", metavar="N", help="with kafka: tasks that write, one transaction each (default: 1)")
    add("--sink-option", action="append", metavar="NAME=VALUE", help="with kafka: any other option of the sink")
    add("--create-topics", action="store_true", default=None, help="with kafka: make missing topics, 3 partitions each")
    parser.set_defaults(default_sink_id=sink_id)


def output_of(given: Namespace) -> Output:
    """Check what `add_outputs` added.

    Raises:
        ConfigError: names option, value and remedy.

    Runs: main thread; looks at the file system.
    """
    if given.output != "kafka":
        if odd := [name for name in _OF_KAFKA if getattr(given, name) is not None]:
            raise ConfigError(f"--{odd[0].replace('_', '-')}: it has no effect without --output kafka; leave it out")
        return _tables(given.output, pairs(given.output_option or (), "--output-option"))
    if given.output_topic is None:
        raise ConfigError("--output-topic: required with --output kafka; name an existing topic")
    if given.topic == given.output_topic:
        raise ConfigError(f"--output-topic: {given.output_topic!r} is what is read; name another topic")
    state = () if given.state_dir is None else (("stateDir", str(given.state_dir.absolute())),)
    return KafkaOutput(
        bootstrap_servers=given.bootstrap_servers,
        topic=topic_name("--output-topic", given.output_topic),
        dead_letter_topic=given.dead_letter_topic and topic_name("--dead-letter-topic", given.dead_letter_topic),
        sink_id=given.sink_id or given.default_sink_id,
        lanes=positive(given.lanes, "--lanes") or 1,
        sink_options=(*state, *pairs(given.sink_option or (), "--sink-option")),
        create_topics=bool(given.create_topics),
    )


def _tables(text: str, options: tuple[tuple[str, str], ...]) -> Output:
    if text.startswith(SCHEME):
        return JdbcOutput(url=text, options=dict(options))
    if options:
        raise ConfigError(f"--output-option: it has no effect without --output {SCHEME}URL; leave it out")
    kind, _, path = text.partition(":")
    if kind in FORMATS and path:
        return FolderOutput(format=kind, path=path if "://" in path else str(Path(path).absolute()))
    if text.startswith(SQLITE):
        return sqlite_file(text)
    raise ConfigError(
        f"--output: {text!r} is not supported; write kafka, {SQLITE}FILE, {SCHEME}URL, parquet:FOLDER or orc:FOLDER"
    )


def make_ready(output: Output, topic: str) -> None:
    """Look whether it can be written, before Spark starts.

    Args:
        output: A file is made where it is missing; topics too, if that is asked for.
        topic: What is read; made with them.

    Raises:
        ConfigError: a topic is missing, or may not be made.
        KafkaUnreachableError: no living broker.
        StateError: the file cannot be written.

    Runs: main thread; blocks <= 10 min for a living broker.
    """
    if isinstance(output, SqliteOutput):
        make_file(output)
    elif isinstance(output, KafkaOutput):
        read = {"--topic": topic} if output.create_topics else {}
        _ready_topics(output.sink, read | output.topics, create=output.create_topics)


def _ready_topics(sink: Mapping[str, str], topics: Mapping[str, str], *, create: bool) -> None:
    options = parse_options(sink).opened()
    admin = TopicAdmin(Access(options.client.connection, living_brokers(options)))
    for option, topic in {option: TopicName(name) for option, name in topics.items()}.items():
        if admin.shape(topic, timeout_seconds=_ANSWER_SECONDS) is not None:
            continue
        if not create:
            raise ConfigError(f"{option}: topic {topic} does not exist; create it, or add --create-topics")
        admin.create(topic, partitions=3, timeout_seconds=_ANSWER_SECONDS, compacted=False)


def writer_of(output: Output, results: Results, *, job: str, checkpoint: str) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that writes each micro-batch whole and once.

    Args:
        output: Where to; `make_ready` has seen it.
        results: What is written of a batch, beside dead letters.
        job: Its name, under which a database keeps the number of the last batch.
        checkpoint: The one that the output belongs to.

    Raises:
        ConfigError: an option of the sink is wrong.
        KafkaUnreachableError, TransactionError, SinkRefusedError: `--output kafka`, as `preflight.prepare`.

    Runs: driver, once, blocking for `startupTimeout` and two minutes at most; the function once per micro-batch,
    blocking for the batch and its transactions.
    """
    shape = partial(tables_of, results=results)
    match output:
        case KafkaOutput():
            options = {**output.sink, NAMED_TOPIC: output.topic}
            # Asked once: within a batch, where a stop cannot interrupt Python, it might wait for brokers.
            letters = output.dead_letter_topic or output.topic
            room_bytes = Targets(prepare(parse_options(options))).largest(letters) - OVERHEAD_BYTES
            letter = shaped(letters, room_bytes=room_bytes)
            return exactly_once(
                options, "key", transform=partial(records_of, results=results, topic=output.topic, letter=letter)
            )
        case JdbcOutput():
            return stoppable(JdbcWriter(output, shape, job=job, checkpoint=checkpoint))
        case FolderOutput():
            return stoppable(FolderWriter(output, shape, checkpoint=checkpoint))
        case SqliteOutput():
            return stoppable(SqliteWriter(output, shape, checkpoint=checkpoint))
