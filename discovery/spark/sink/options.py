"""The options of the sink, checked as a whole before anything is written."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import ClientOptions, map_client_options
from discovery.config.durations import duration_option
from discovery.config.option_values import one_of, optional, path_of, service_url, spelled, text_of, topic_name
from discovery.config.service_files import SERVICE_FILES, ServiceFiles, service_files
from discovery.core.errors import ConfigError
from discovery.core.interest import SINK_LEDGER_TOPIC
from discovery.core.model import BrokerAddress, TopicName, parse_bootstrap_servers
from discovery.spark.sink.lanes import OnMismatch
from discovery.spark.sink.marker import MAX_LANES

BOOTSTRAP = "kafka.bootstrap.servers"
_PREFIX, _CONTROL = "__spark_sink.", ".ctl"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,150}")
_SPARKS_OWN = ("checkpointLocation", "queryName", "path", "outputMode")
"""Spark hands them on with ours."""
_ASYNCHRONOUS = "asyncProgressTrackingEnabled"
_ASYNCHRONOUS_INTERVAL = "asyncProgressTrackingCheckpointIntervalMs"
_LEAST_SECONDS, _MOST_SECONDS = 10.0, 900.0
"""Of a transaction: less would abort a healthy batch, more is above the default cap of a broker."""
FOREACH_BATCH, BY_OFFSET, NAMED_TOPIC = "_foreachBatch", "_byOffset", "_namedTopic"
"""Set by our own functions alone: which batch of which query; the topic it came from; the topic of a ready job."""
_INNER = frozenset({FOREACH_BATCH.lower(), BY_OFFSET.lower(), NAMED_TOPIC.lower()})
KNOWN = (
    "topic",
    "sinkId",
    "lanes",
    "onMismatch",
    "writeId",
    "onBadRecord",
    "deadLetterTopic",
    "transactionTimeout",
    "startupTimeout",
    "markerTopic",
    "discoveryUrl",
    "discoveryCluster",
    *SERVICE_FILES,
    "clusterId",
    "stateDir",
)
PRODUCER_OPTIONS: Mapping[str, tuple[str, str]] = {
    "acks": ("acks", "must be all"),
    "batch.size": ("batch.size", "passed on"),
    "buffer.memory": ("queue.buffering.max.kbytes", "bytes become kilobytes"),
    "compression.level": ("compression.level", "passed on"),
    "compression.type": ("compression.type", "passed on"),
    "delivery.timeout.ms": ("", "a transaction has one limit: transactionTimeout"),
    "enable.idempotence": ("enable.idempotence", "must be true"),
    "linger.ms": ("linger.ms", "passed on"),
    "max.block.ms": ("", "a transaction has one limit: transactionTimeout"),
    "max.in.flight.requests.per.connection": ("max.in.flight", "passed on; 5 at most"),
    "max.request.size": ("message.max.bytes", "passed on"),
    "partitioner": ("partitioner", "passed on; murmur2_random, as the JVM client's, by default"),
    "retries": ("", "a transaction has one limit: transactionTimeout"),
    "sticky.partitioning.linger.ms": ("sticky.partitioning.linger.ms", "passed on"),
}
"""Options of a producer alone: librdkafka's name (empty: without effect) and what is made of them."""
_REFUSED = {
    "transactional.id": "the sink makes it of sinkId and lane; set sinkId",
    "transaction.timeout.ms": "set transactionTimeout",
    "key.serializer": "keys are bytes; cast them in the DataFrame",
    "value.serializer": "values are bytes; cast them in the DataFrame",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Everything a writer needs, checked. `repr` shows no client option, since those hold passwords."""

    bootstrap: tuple[BrokerAddress, ...]
    client: ClientOptions
    sink_id: str
    producer: Mapping[str, str]
    topic: TopicName | None = None
    """None: each record names its own."""
    named_topic: TopicName | None = None
    """What a ready job puts into the column `topic`, by its own option: that it is missing is no record's fault."""
    lanes: int = 1
    on_mismatch: OnMismatch = OnMismatch.FAIL
    write_id: str | None = None
    """Batch writes only."""
    dead_letter_topic: TopicName | None = None
    """Where records go that can never be written; None: they fail the query."""
    transaction_timeout_seconds: float = 120.0
    startup_timeout_seconds: float = 600.0
    marker_topic: TopicName = SINK_LEDGER_TOPIC
    discovery_url: str | None = None
    discovery_cluster: str = "default"
    discovery_files: ServiceFiles = field(default_factory=ServiceFiles)
    cluster_id: str | None = None
    state_dir: Path | None = None
    foreach_batch: tuple[int, str, str] | None = None
    """Batch, query and run of a write from within `foreachBatch`."""
    source_topic: TopicName | None = None
    """Not None: the markers are the offsets of this topic."""
    source_topic_id: str = ""

    @property
    def group(self) -> str:
        """The group whose offsets are the markers."""
        return marker_group(self.sink_id)

    @property
    def control_group(self) -> str:
        """The group that holds the control record."""
        return control_group(self.sink_id)

    @property
    def is_recorded(self) -> bool:
        """Whether markers are records too; those of batch writes expire, or the topic would grow by each `writeId`."""
        return self.write_id is None

    def transactional_id(self, lane: int) -> str:
        """Return the stable id of one lane."""
        return f"{self.sink_id}-{lane}"

    def opened(self) -> "SinkOptions":
        """Read the key and trust stores that the options name.

        Raises:
            ConfigError: one cannot be opened.

        Runs: driver; blocks for milliseconds, 1-2 s for a JKS store.
        """
        return replace(self, client=open_stores(self.client))


def marker_group(sink_id: str) -> str:
    """Return the group whose committed offsets are a sink's markers: lane i at partition i of the marker topic."""
    return f"{_PREFIX}{sink_id}"


def control_group(sink_id: str) -> str:
    """Return the group whose committed offset at partition 0 is a sink's control record."""
    return f"{_PREFIX}{sink_id}{_CONTROL}"


def parse_options(options: Mapping[str, str], *, batch: bool = False) -> SinkOptions:
    """Check every option of the sink and their combinations.

    Args:
        options: As Spark hands them over; names in any case.
        batch: A batch write, which needs `writeId`.

    Raises:
        ConfigError: names option, value, limit and remedy in one line.

    Runs: driver, before a query starts; no I/O.
    """
    inner = {name.lower(): value for name, value in options.items() if name.lower() in _INNER}
    given = _given({name: value for name, value in options.items() if name.lower() not in inner})
    of_stream = _of_stream(inner.get(FOREACH_BATCH.lower()))
    named = inner.get(NAMED_TOPIC.lower())
    batch = batch and of_stream is None
    client, producer = _client(given)
    lanes = _lanes(given.get("lanes", "1"))
    if BOOTSTRAP not in given:
        raise ConfigError(f'{BOOTSTRAP}: required; list the brokers as "host:port,host:port"')
    return SinkOptions(
        bootstrap=parse_bootstrap_servers(given[BOOTSTRAP], option=BOOTSTRAP),
        client=client,
        producer=producer,
        sink_id=_sink_id(given, batch=batch),
        topic=optional(given, "topic", topic_name),
        named_topic=None if named is None else TopicName(named),
        lanes=lanes,
        on_mismatch=_policy(given),
        write_id=given.get("writeId"),
        dead_letter_topic=_dead_letters(given),
        transaction_timeout_seconds=_transaction_timeout(given),
        startup_timeout_seconds=duration_option(given.get("startupTimeout", "10m"), option="startupTimeout"),
        marker_topic=optional(given, "markerTopic", topic_name) or SINK_LEDGER_TOPIC,
        discovery_url=optional(given, "discoveryUrl", service_url),
        discovery_cluster=given.get("discoveryCluster", "default"),
        discovery_files=service_files(given),
        cluster_id=given.get("clusterId"),
        state_dir=optional(given, "stateDir", path_of),
        foreach_batch=of_stream,
        **_of_source(inner.get(BY_OFFSET.lower())),
    )


def _of_source(found: str | None) -> dict[str, Any]:
    if found is None:
        return {}
    topic, _, topic_id = found.partition(" ")
    return {"source_topic": TopicName(topic), "source_topic_id": topic_id}


def _of_stream(found: str | None) -> tuple[int, str, str] | None:
    if found is None:
        return None
    batch_id, query_id, run = found.split(" ")
    return int(batch_id), query_id, run


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """Restore the names' spelling, which Spark lowers, and refuse what we do not know."""
    asynchronous = {name.lower(): value for name, value in options.items()}.get(_ASYNCHRONOUS.lower(), "false")
    if asynchronous.strip().lower() != "false":
        raise ConfigError(
            f"{_ASYNCHRONOUS}: {asynchronous!r} replays several batches after a failure, and a sink that writes "
            "exactly once knows the last one only; leave it out"
        )
    sparks = {name.lower() for name in (*_SPARKS_OWN, _ASYNCHRONOUS, _ASYNCHRONOUS_INTERVAL)}
    given: dict[str, str] = {}
    for raw, value in options.items():
        name = raw.lower()
        if name in sparks:
            continue
        if not name.startswith("kafka."):
            name = spelled(raw, (*KNOWN, BOOTSTRAP), of=" of the sink")
            value = text_of(name, value)  # noqa: PLW2901 - the same value, as it is meant
        given[name] = value
    return given


def _client(given: Mapping[str, str]) -> tuple[ClientOptions, dict[str, str]]:
    """Part the connection's options, which source and sink share, from the producer's."""
    connection: dict[str, str] = {}
    producer: dict[str, str] = {}
    for name, value in given.items():
        plain = name.removeprefix("kafka.")
        if not name.startswith("kafka.") or name == BOOTSTRAP:
            continue
        if plain in _REFUSED:
            raise ConfigError(f"{name} is not supported: {_REFUSED[plain]}")
        if plain in PRODUCER_OPTIONS:
            producer |= _producer_option(plain, value.strip())
        else:
            connection[name] = value
    return map_client_options(connection), producer


def _producer_option(name: str, value: str) -> dict[str, str]:
    property_name = PRODUCER_OPTIONS[name][0]
    if name == "acks" and value not in {"all", "-1"}:
        raise ConfigError(f"kafka.acks: {value!r} may lose records that were said to be written; it must be all")
    if name == "enable.idempotence" and value.lower() != "true":
        raise ConfigError(f"kafka.enable.idempotence: {value!r}; transactions need it: leave it out")
    if name == "buffer.memory":
        if not value.isascii() or not value.isdigit() or int(value) < 1 << 20:
            raise ConfigError(f"kafka.buffer.memory: {value!r} is not a number of bytes of 1048576 or more")
        value = str(int(value) >> 10)
    return {property_name: value} if property_name else {}


def _sink_id(given: Mapping[str, str], *, batch: bool) -> str:
    name = given.get("sinkId")
    write = given.get("writeId")
    if batch and write is None:
        raise ConfigError("writeId: required; it names this write, and a second write of that name changes nothing")
    if not batch and write is not None:
        raise ConfigError("writeId: only batch writes have one; a stream's batches are numbered by its checkpoint")
    if name is None and not batch:
        raise ConfigError("sinkId: required; a name of your choice that no other query writes under, like orders-eu")
    for option, text in (("sinkId", name), ("writeId", write)):
        if text is not None and not _NAME.fullmatch(text):
            raise ConfigError(f"{option}: {text!r}: use letters, digits, '.', '_' and '-', 1 to 150 of them")
        if text is not None and text.endswith(_CONTROL):
            raise ConfigError(
                f"{option}: {text!r} names the control group of another sink; do not let it end in {_CONTROL}"
            )
    return f"{name or 'batch'}.write.{write}" if batch else str(name)


def _lanes(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_LANES:
        raise ConfigError(f"lanes: {text!r} is not a whole number of 1 to {MAX_LANES}")
    return int(text)


def _policy(given: Mapping[str, str]) -> OnMismatch:
    text = given.get("onMismatch", OnMismatch.FAIL.value)
    return OnMismatch(one_of("onMismatch", text, [policy.value for policy in OnMismatch]))


def _dead_letters(given: Mapping[str, str]) -> TopicName | None:
    policy = one_of("onBadRecord", given.get("onBadRecord", "fail"), ("fail", "dead-letter"))
    topic = optional(given, "deadLetterTopic", topic_name)
    if policy == "dead-letter" and topic is None:
        raise ConfigError("deadLetterTopic: required with onBadRecord=dead-letter; name an existing topic")
    if policy == "fail" and topic is not None:
        raise ConfigError("deadLetterTopic: it has no effect with onBadRecord=fail; set onBadRecord=dead-letter")
    return topic


def _transaction_timeout(given: Mapping[str, str]) -> float:
    text = given.get("transactionTimeout", "2m")
    seconds = duration_option(text, option="transactionTimeout")
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise ConfigError(
            f"transactionTimeout: {text!r} is not within 10s..15m; longer than the slowest task, and not above the "
            "brokers' transaction.max.timeout.ms"
        )
    return seconds
