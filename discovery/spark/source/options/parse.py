"""The options of `format("kafka-discovery")`, checked as a whole before anything starts."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from discovery.config.client.options import ClientOptions, map_client_options
from discovery.config.durations import duration_option
from discovery.config.option_values import flag, one_of, optional, path_of, positive, service_url, spelled, text_of
from discovery.config.service_files import SERVICE_FILES, ServiceFiles, service_files
from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress, ClusterId, TopicName, TopicPartition, parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.feed.base import Interest
from discovery.spark.source.options import cuts as cut_options
from discovery.spark.source.options.cuts import CutOptions, parse_cut_options
from discovery.spark.source.options.sizes import parse_size
from discovery.spark.source.planning.bounds import (
    ENDING,
    STARTING,
    STRATEGY,
    Bound,
    NoneAfter,
    check_batch_bounds,
    ignored,
    option_of,
    parse_bound,
)
from discovery.spark.source.planning.offsets import COMMITTED, EARLIEST, LATEST
from discovery.spark.source.planning.plan import OnParked

BOOTSTRAP = "kafka.bootstrap.servers"
FALLBACK = "startingOffsetsFallback"
_FALLBACKS = {"error": None, "earliest": EARLIEST, "latest": LATEST}
_STRATEGIES = ("subscribe", "subscribePattern", "assign")
LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""They shape the batches of a stream."""
WITHOUT_EFFECT = {
    "kafkaConsumer.pollTimeoutMs": "a task waits for its leader as long as it takes, and says so",
    "fetchOffset.numRetries": "offsets come from the discovery loop, which asks again by itself",
    "fetchOffset.retryIntervalMs": "offsets come from the discovery loop, which asks again by itself",
    "partition.metadata.cache.ttl.ms": "the discovery loop keeps metadata fresh",
}
"""Options that tune how the native source asks again: accepted and logged, since nothing is lost without them."""
_LONGEST_SILENCE = f"{Policy().offsets_timeout_seconds:g}s"
"""Then a request for end offsets ends, and its leader is asked as a slow one."""
KNOWN = (
    *_STRATEGIES,
    *STARTING.all,
    STRATEGY,
    FALLBACK,
    *ENDING.all,
    "commitOffsets",
    *LIMITS,
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "onTopicRecreated",
    "bootstrapServersFile",
    "includeHeaders",
    "onParked",
    "parkAfter",
    "stallTimeout",
    "startupTimeout",
    "stateDir",
    "sourceId",
    "clusterId",
    "discoveryUrl",
    "discoveryCluster",
    *SERVICE_FILES,
    "discoveryMaxAge",
    "groupIdPrefix",
    "clientRackVariable",
    "fetchEngine",
    "fetchMaxMemory",
    *cut_options.NAMES,
    *WITHOUT_EFFECT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Everything a reader needs, checked. `repr` shows no client option, since those hold passwords."""

    bootstrap: tuple[BrokerAddress, ...]
    interest: Interest
    client: ClientOptions
    bootstrap_file: Path | None = None
    """Holds the list instead, and may be changed while the query runs."""
    starting: Bound | None = None
    """None: not given; see `stream_start` and `batch_start`."""
    starting_fallback: int | None = None
    """EARLIEST or LATEST where the group has no offset that can be read; None: that is an error."""
    ending: Bound | None = None
    """Batch reads only."""
    group: str | None = None
    """`kafka.group.id`."""
    commit_offsets: bool = False
    """Commit the query's offsets to that group."""
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_seconds: float = 900.0
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    restart_recreated: bool = False
    """Read a topic that was recreated from its beginning; else it is data loss that fails the query."""
    include_headers: bool = False
    on_parked: OnParked = OnParked.CONTINUE
    park_after_seconds: float = 1.0
    startup_timeout_seconds: float = 600.0
    stall_timeout_seconds: float = 120.0
    state_dir: Path | None = None
    source_id: str | None = None
    cuts: CutOptions | None = None
    """None: nothing is cut."""
    cluster_id: ClusterId | None = None
    discovery_url: str | None = None
    """A service to follow; None: an embedded loop."""
    discovery_cluster: str = "default"
    discovery_files: ServiceFiles = field(default_factory=ServiceFiles)
    discovery_max_age_seconds: float = 10.0
    group_id_prefix: str = "spark-kafka-discovery"
    rack_variable: str | None = None
    fetch_engine: str = "auto"
    fetch_max_memory_bytes: int = 64 << 20
    begins: bool = False
    """Not the user's: nothing was read yet, so the list may name another cluster than the saved view."""
    notes: tuple[str, ...] = ()
    """What a user should know about options that were accepted; logged at the start."""

    @property
    def stream_start(self) -> Bound:
        """Where a new streaming query begins; by default at the end, as in the native source."""
        return LATEST if self.starting is None else self.starting

    @property
    def batch_start(self) -> Bound:
        """Where a batch read begins; by default at the beginning."""
        return EARLIEST if self.starting is None else self.starting

    @property
    def batch_end(self) -> Bound:
        """Where a batch read ends; by default at the end of this moment."""
        return LATEST if self.ending is None else self.ending


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Check every option of the source and their combinations.

    Args:
        options: As Spark hands them over; names in any case.

    Raises:
        ConfigError: names option, value, limit and remedy in one line.

    Runs: driver, at `load()`; no I/O.
    """
    given = _given(options)
    client = map_client_options({name: value for name, value in given.items() if _is_client_option(name)})
    interest = _interest(given, client)
    strategy = one_of(STRATEGY, given.get(STRATEGY, "error"), ("error", "latest"))
    starting = parse_bound(given, STARTING, interest, NoneAfter(strategy))
    group = client.librdkafka.get("group.id")
    commit_offsets = flag("commitOffsets", given.get("commitOffsets", "false"))
    _need_group(group, {f"{STARTING.offsets}=committed": starting == COMMITTED, "commitOffsets=true": commit_offsets})
    least, most = optional(given, LIMITS[1], positive), optional(given, LIMITS[0], positive)
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"{LIMITS[1]}: {least} is more than {LIMITS[0]}={most} allows; lower the one or raise the other"
        )
    return SourceOptions(
        bootstrap=_bootstrap(given),
        bootstrap_file=optional(given, "bootstrapServersFile", path_of),
        interest=interest,
        client=client,
        starting=starting,
        starting_fallback=_FALLBACKS[one_of(FALLBACK, given.get(FALLBACK, "error"), tuple(_FALLBACKS))],
        group=group,
        commit_offsets=commit_offsets,
        ending=parse_bound(given, ENDING, interest, NoneAfter.LATEST),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_seconds=duration_option(
            given.get("maxTriggerDelay", "15m"), option="maxTriggerDelay", bare_unit="ms"
        ),
        min_partitions=optional(given, "minPartitions", positive),
        max_records_per_partition=optional(given, "maxRecordsPerPartition", positive),
        fail_on_data_loss=flag("failOnDataLoss", given.get("failOnDataLoss", "true")),
        restart_recreated=_restarts(given),
        include_headers=flag("includeHeaders", given.get("includeHeaders", "false")),
        on_parked=OnParked(one_of("onParked", given.get("onParked", "continue"), ("continue", "hold"))),
        park_after_seconds=duration_option(
            given.get("parkAfter", "1s"), option="parkAfter", within=("100ms", _LONGEST_SILENCE)
        ),
        stall_timeout_seconds=duration_option(given.get("stallTimeout", "2m"), option="stallTimeout"),
        startup_timeout_seconds=duration_option(given.get("startupTimeout", "10m"), option="startupTimeout"),
        state_dir=optional(given, "stateDir", path_of),
        source_id=optional(given, "sourceId", text_of),
        cuts=parse_cut_options(given),
        discovery_url=optional(given, "discoveryUrl", service_url),
        discovery_cluster=text_of("discoveryCluster", given.get("discoveryCluster", "default")),
        discovery_files=service_files(given),
        discovery_max_age_seconds=duration_option(given.get("discoveryMaxAge", "10s"), option="discoveryMaxAge"),
        cluster_id=optional(given, "clusterId", lambda option, text: ClusterId(text_of(option, text))),
        group_id_prefix=given.get("groupIdPrefix", "spark-kafka-discovery"),
        rack_variable=_rack_variable(given),
        fetch_engine=one_of("fetchEngine", given.get("fetchEngine", "auto"), ("auto", "native", "python")),
        fetch_max_memory_bytes=parse_size(
            given.get("fetchMaxMemory", "64m"), option="fetchMaxMemory", least="8m", most="4g"
        ),
        notes=_notes(given),
    )


def check_stream(options: SourceOptions) -> None:
    """Refuse what only a batch read can honour.

    Raises:
        ConfigError: names the option and the remedy.

    Runs: driver, before a streaming query starts; no I/O.
    """
    if options.ending is not None:
        name = option_of(options.ending, ENDING)
        raise ConfigError(
            f"{name}: a stream has no end; remove it, and use Trigger.AvailableNow to stop at the end of this moment, "
            "or spark.read for a batch read"
        )


def check_batch(options: SourceOptions) -> None:
    """Refuse bounds that no batch read can have.

    Raises:
        ConfigError: names the option and the remedy.

    Runs: driver, before a batch read is planned; no I/O.
    """
    check_batch_bounds(options.batch_start, options.batch_end)


def batch_notes(options: SourceOptions) -> tuple[str, ...]:
    """Say which options of a stream a batch read does without.

    Runs: driver; no I/O.
    """
    given = {
        "maxOffsetsPerTrigger": options.max_offsets_per_trigger,
        "minOffsetsPerTrigger": options.min_offsets_per_trigger,
        "sourceId": options.source_id,
    }
    return tuple(f"{name} has no effect in a batch read" for name, value in given.items() if value is not None)


def _notes(given: Mapping[str, str]) -> tuple[str, ...]:
    notes = [*ignored(given, STARTING), *ignored(given, ENDING)]
    if STRATEGY in given and not {STARTING.timestamp, STARTING.by_timestamp} & given.keys():
        notes.append(f"{STRATEGY} has no effect without {STARTING.timestamp} or {STARTING.by_timestamp}")
    if FALLBACK in given and given.get(STARTING.offsets, "").strip().lower() != "committed":
        notes.append(f"{FALLBACK} has no effect without {STARTING.offsets}=committed")
    if "maxTriggerDelay" in given and "minOffsetsPerTrigger" not in given:
        notes.append("maxTriggerDelay has no effect without minOffsetsPerTrigger")
    if "kafka.group.id" in given and "groupIdPrefix" in given:
        notes.append("groupIdPrefix has no effect: kafka.group.id is given too and goes first")
    notes += [f"{name} has no effect here: {reason}" for name, reason in WITHOUT_EFFECT.items() if name in given]
    return tuple(notes)


def _restarts(given: Mapping[str, str]) -> bool:
    default = "fail" if flag("failOnDataLoss", given.get("failOnDataLoss", "true")) else "restart"
    return one_of("onTopicRecreated", given.get("onTopicRecreated", default), ("fail", "restart")) == "restart"


def _rack_variable(given: Mapping[str, str]) -> str | None:
    variable = optional(given, "clientRackVariable", text_of)
    if variable is not None and "kafka.client.rack" in given:
        raise ConfigError("clientRackVariable: kafka.client.rack says the rack of all workers; remove one of the two")
    return variable


def _need_group(group: str | None, options: Mapping[str, bool]) -> None:
    if needing := [option for option, given in options.items() if given and not group]:
        raise ConfigError(f"kafka.group.id: it is missing; {' and '.join(needing)} needs the name of a consumer group")


def _is_client_option(name: str) -> bool:
    return name.startswith("kafka.") and name != BOOTSTRAP


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """Restore the names' spelling, which Spark lowers, and refuse what we do not know."""
    given: dict[str, str] = {}
    for raw, value in options.items():
        name = raw.lower()
        if not name.startswith("kafka."):
            name = spelled(raw, (*KNOWN, BOOTSTRAP))
        given[name] = value
    return given


def _bootstrap(given: Mapping[str, str]) -> tuple[BrokerAddress, ...]:
    if "bootstrapServersFile" in given and "discoveryUrl" in given:
        raise ConfigError("bootstrapServersFile: the service of discoveryUrl has its own list; remove one of the two")
    if BOOTSTRAP not in given and "bootstrapServersFile" in given:
        return ()
    if BOOTSTRAP not in given:
        raise ConfigError(f'{BOOTSTRAP}: required; list the brokers as "host:port,host:port"')
    return parse_bootstrap_servers(given[BOOTSTRAP], option=BOOTSTRAP)


def _interest(given: Mapping[str, str], client: ClientOptions) -> Interest:
    chosen = [name for name in _STRATEGIES if name in given]
    if len(chosen) != 1:
        found = " and ".join(chosen) or "none of them"
        raise ConfigError(f"exactly one of subscribe, subscribePattern and assign is needed, found {found}")
    text = given[chosen[0]]
    match chosen[0]:
        case "subscribe":
            return Interest(topics=_topics(text), isolation=client.isolation)
        case "subscribePattern":
            return Interest(pattern=_pattern(text), isolation=client.isolation)
        case _:
            return Interest(assigned=_assigned(text), isolation=client.isolation)


def _topics(text: str) -> tuple[TopicName, ...]:
    topics = tuple(dict.fromkeys(TopicName(part.strip()) for part in text.split(",") if part.strip()))
    if not topics:
        raise ConfigError('subscribe: no topic named; write topics like "orders,payments"')
    return topics


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"subscribePattern: {text!r} is not a regular expression: {error}") from None
    if not text.strip():
        raise ConfigError('subscribePattern: empty; write a pattern like "orders-.*"')
    return text


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        raw = json.loads(text)
        assigned = {
            TopicPartition(TopicName(topic), partition) for topic, partitions in raw.items() for partition in partitions
        }
        sound = all(type(tp.partition) is int and tp.partition >= 0 for tp in assigned)
    except (ValueError, AttributeError, TypeError):
        assigned, sound = set(), False
    if not assigned or not sound:
        raise ConfigError(f'assign: {text!r} does not name partitions; write JSON like {{"orders": [0, 1]}}')
    return tuple(sorted(assigned))
