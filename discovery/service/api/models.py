"""What the API takes and returns: requests are validated by these models, and the description is made from all.

Answers are plain dictionaries of a declared shape: one may hold fifty thousand partitions.
"""

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.config import JsonDict

# pydantic reads the standard library's only from Python 3.12 on.
from typing_extensions import TypedDict

from discovery.config.durations import seconds
from discovery.core.diff import EventKind
from discovery.core.model import BrokerAddress, LoopState, Verdict, parse_bootstrap_servers
from discovery.core.prediction.removal import Level, Safety
from discovery.feed.wire import ROW

LONGEST_TEXT = 200
_DIGITS = 20
_MAX_SECONDS = 60.0
_T = TypeVar("_T")


def _values(kinds: type[Enum]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "enum": [one.value for one in kinds]})


def _number(given: str | int) -> int:
    text = str(given)
    if not (text.isascii() and text.isdigit() and len(text) < _DIGITS) or int(text) >= 2**63:
        raise ValueError(f"{text[:50]!r} is not a whole number of 0 or more")
    return int(text)


def _flag(given: str) -> bool:
    if given not in {"true", "false"}:
        raise ValueError(f"{given[:50]!r} is neither true nor false")
    return given == "true"


def _duration(given: str) -> float:
    try:
        return min(seconds(given), _MAX_SECONDS)
    except ValueError as error:
        raise ValueError(f"{given[:50]!r}: {error}") from None


def _read_by(parse: Callable[[Any], object], **schema: object) -> tuple[BeforeValidator, WithJsonSchema]:
    return BeforeValidator(parse), WithJsonSchema(schema)


Number = Annotated[int, *_read_by(_number, type="integer", minimum=0, maximum=2**63 - 1)]
Flag = Annotated[bool, *_read_by(_flag, type="string", enum=["true", "false"])]
Duration = Annotated[float, *_read_by(_duration, type="string", pattern=r"^\d+(\.\d+)?(ms|s|m|h)?$", examples=["30s"])]
_FALSE: JsonDict = {"default": "false"}
Reading = Literal["read_uncommitted", "read_committed"]
LogLevel = Literal["debug", "info", "warning", "error"]


class Query(BaseModel):
    """The parameters of a query; a misspelt `generation` would not wait, so an unknown one is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Waiting(Query):
    epoch: str | None = Field(None, description="The epoch the caller knows; another one is answered at once.")
    wait: Duration = Field(
        30.0, json_schema_extra={"default": "30s"}, description="How long to wait for a change; at most 60s."
    )


class WatchQuery(_Waiting):
    """Which generation the caller has."""

    generation: Number | None = Field(None, description="The generation the caller has.")


class FollowQuery(_Waiting):
    """Which version the caller has, and what it wants."""

    version: Number = Field(0, description="The version the caller has; 0 or none: everything.")
    topics: str = Field("", description="Only these topics, separated by commas.")
    pattern: str | None = Field(None, description="Only topics in which this expression is found.")
    isolation: Reading | None = Field(None, description="Which ends must be fresh; none: both.")


class EventsQuery(Query):
    """Which events."""

    since: Number = Field(0, description="Only events with a higher number.")
    limit: Number = Field(100, description="At most so many, the newest.")


class AskQuery(Query):
    """How long Kafka may take."""

    timeout: Duration = Field(
        10.0, json_schema_extra={"default": "10s"}, description="How long Kafka may take; at most 60s."
    )


class ResolveQuery(AskQuery):
    """What `latest` means."""

    isolation: Reading = Field("read_uncommitted", description="What `latest` means.")


class GroupQuery(AskQuery):
    """Which of the group's offsets."""

    topics: str = Field("", description="Only these topics, separated by commas.")


class RemovalQuery(AskQuery):
    """Which brokers leave, and how."""

    brokers: Annotated[str, WithJsonSchema({"type": "string", "pattern": r"^\d{1,9}(,\d{1,9})*$"})] = Field(
        description="The ids in question.", examples=["9,10"]
    )
    temporary: Flag = Field(
        False, json_schema_extra=_FALSE, description="They come back: fewer replicas meanwhile will do."
    )
    verify: Flag = Field(False, json_schema_extra=_FALSE, description="They were removed: is it complete, is all well?")
    lists: str | None = Field(
        None, description="Bootstrap lists of clients that report nothing: lines of name = host:port,host:port."
    )
    assume_no_other_clients: Flag = Field(
        False,
        json_schema_extra=_FALSE,
        description="You confirm it: without it, or a list, nothing is safe while no consumer has reported.",
    )


class DropQuery(Query):
    """Whose id it is."""

    instance: str | None = Field(None, description="Only if this process has the id.")


class Body(BaseModel):
    """What a request carries."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Count = Annotated[int, Field(ge=0)]
Whole = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
ByPartition = dict[str, dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], _T]]
"""`{"topic": {"0": value}}`, the shape of Spark's offsets."""


def _addresses(given: list[str]) -> list[str]:
    if given:
        parse_bootstrap_servers(",".join(given), option="bootstrap_servers")
    return given


class Wanted(Body):
    """Which offsets to look up: by place, or by timestamp."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["offsets"]}, {"required": ["timestamps"]}]})

    offsets: ByPartition[Annotated[Literal[-2, -1], Field(description="-2 earliest, -1 latest")]] = {}
    timestamps: ByPartition[
        Annotated[int, Field(strict=True, ge=0, lt=2**53, description="Milliseconds since the epoch.")]
    ] = {}

    @model_validator(mode="after")
    def _is_one(self) -> "Wanted":
        if len(self.model_fields_set) != 1:
            raise ValueError(
                'write {"offsets": {"topic": {"0": -2}}} (-2 earliest, -1 latest), or "timestamps" in its place'
            )
        return self


class Commit(Body):
    """A group's offsets."""

    offsets: ByPartition[Whole]


class SetLogLevel(Body):
    """The least level that is written from now on."""

    level: LogLevel


class Report(Body):
    """What a consumer reports of itself."""

    instance: Text = Field("", description="Names the process; two with one id are refused.")
    replaces: Text = Field("", description="The instance whose id it takes over: one that has ended.")
    cluster: str = "default"
    kind: Text = "unknown"
    acked_generation: Whole = Field(0, description="The newest generation it applied.")
    isolation_level: Reading = "read_uncommitted"
    positions: ByPartition[Whole] = {}
    parked: ByPartition[Annotated[str, AfterValidator(lambda reason: reason[:LONGEST_TEXT])]] = {}
    bootstrap_servers: Annotated[list[str], AfterValidator(_addresses)] = []
    fallback: Text = Field("", description="Why its embedded loop leads; empty while it follows.")

    @property
    def addresses(self) -> tuple[BrokerAddress, ...]:
        """Its own list of brokers."""
        return parse_bootstrap_servers(",".join(self.bootstrap_servers)) if self.bootstrap_servers else ()


class Answer(TypedDict):
    """A shape that holds all its fields and nothing else."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]


Wall = Annotated[float, Field(description="Seconds since the epoch.")]
State = Annotated[str, _values(LoopState)]
Condition = Literal["healthy", "quarantined", "rejected", "unasked"]


class Error(Answer):
    """Why there is no other answer."""

    error: Annotated[str, Field(description="One line: what, which, and what to do.")]
    holder: NotRequired[Annotated[str, Field(description="409 to a report: the instance that has the id, or empty.")]]


class SnapshotBroker(Answer):
    """A broker as metadata names it."""

    broker_id: int
    address: str
    rack: str | None


class SnapshotPartition(Answer):
    """A partition as metadata names it."""

    partition: Count
    leader_id: int | None
    replicas: list[int]
    in_sync: list[int]


class SnapshotTopic(Answer):
    """A topic as metadata names it."""

    topic_id: str | None
    partitions: list[SnapshotPartition]


class Snapshot(Answer):
    """The agreed view."""

    cluster: str
    epoch: Annotated[str, Field(description="Another one means: the service was restarted; start over.")]
    generation: Annotated[
        Count, Field(description="Grows with every change of this document; 0 before the first view.")
    ]
    cluster_id: str | None
    brokers: list[SnapshotBroker]
    topics: dict[str, SnapshotTopic]
    gone: list[str]


class AddressVerdict(Answer):
    """What is known of an address."""

    verdict: Annotated[str, _values(Verdict)] | None
    detail: str
    since_wall: Wall | None
    configured: bool


class FollowTopic(Answer):
    """A topic's partitions as short rows."""

    topic_id: str | None
    gone: bool
    partitions: list[Annotated[list[Any], Field(min_length=len(ROW), max_length=len(ROW), description=", ".join(ROW))]]


class FollowScope(Answer):
    """What the service follows at all."""

    topics: list[str]
    pattern: str | None


class Follow(Answer):
    """What changed since a version."""

    epoch: str
    version: Count
    since: Annotated[Count, Field(description="The version this builds on; 0: the document is whole.")]
    generation: Count
    state: State
    cluster_id: str | None
    bootstrap: list[str]
    missing_topics: list[str]
    addresses: dict[str, AddressVerdict]
    sentence: str
    fatal: str | None
    scope: FollowScope
    leaders: dict[str, str]
    answer_seconds: Annotated[
        dict[str, float], Field(description="How long an answer of a leader takes, those left out: less than a second.")
    ]
    topics: dict[str, FollowTopic]


class Address(AddressVerdict):
    """An address and what it means for partitions."""

    address: str
    broker_id: int | None
    rack: str | None
    advertised: bool
    condition: Condition
    failures: Count
    quarantined_until_wall: Wall | None
    leads_partitions: Count


class Brokers(Answer):
    """Every address."""

    cluster: str
    generation: Count
    bootstrap: list[str]
    brokers: list[Address]


class TopicPartitionState(SnapshotPartition):
    """A partition with offsets, and why it is parked."""

    leader: str | None
    start_offset: Count | None
    high_watermark: Count | None
    last_stable_offset: Count | None
    parked_reason: str | None
    parked_since_wall: Wall | None


class Topic(Answer):
    """One topic."""

    cluster: str
    generation: Count
    topic: str
    topic_id: str | None
    gone: bool
    partitions: list[TopicPartitionState]


class Conditions(Answer):
    """How many addresses are in which condition."""

    healthy: Count
    quarantined: Count
    rejected: Count
    unasked: Count


class LoopVitals(Answer):
    """How the loop itself is doing."""

    idle_seconds: float | None
    stuck_calls: Count
    clients_built: Count
    bugs: Count
    state_write_failures: Count


class Status(Answer):
    """How a cluster is doing."""

    cluster: str
    cluster_id: str | None
    epoch: str
    generation: Count
    state: State
    sentence: str
    fatal: str | None
    age_seconds: float | None
    brokers: Conditions
    topics: Count
    partitions: Count
    parked: Count
    missing_topics: list[str]
    consumers: Count
    fallen_back: Annotated[list[str], Field(description="Consumers whose embedded loop leads in this service's place.")]
    loop: LoopVitals


class Clusters(Answer):
    """The followed clusters."""

    clusters: list[Status]


class Happening(Answer):
    """One event."""

    number: Count
    wall: Wall
    kind: Annotated[str, _values(EventKind)]
    subject: str
    sentence: str


class Events(Answer):
    """What happened lately."""

    cluster: str
    events: list[Happening]


class Offsets(Answer):
    """Offsets by topic and partition."""

    group: NotRequired[str]
    offsets: dict[str, dict[str, int]]


class ConsumerState(Answer):
    """One consumer, its lag, and dead brokers it still lists."""

    id: str
    instance: str
    cluster: str
    kind: str
    acked_generation: Count
    behind: Annotated[bool, Field(description="Something was discovered that it has not applied.")]
    fallback: Annotated[
        str, Field(description="Why its embedded loop leads in this service's place; empty while it follows.")
    ]
    heard_seconds_ago: float
    bootstrap_servers: list[str]
    bad_bootstrap_servers: dict[str, Annotated[str, Field(description="Why the address it lists will not serve it.")]]
    lag: Count | None
    lags: dict[str, Count]
    parked: dict[str, str]


class Consumers(Answer):
    """Who uses the service."""

    consumers: list[ConsumerState]


class Finding(Answer):
    """One reason of a removal's verdict."""

    code: str
    level: Annotated[str, _values(Level)]
    sentence: str
    subjects: list[str]


class Move(Answer):
    """Where a partition's replicas should go first."""

    topic: str
    partition: Count
    replicas: list[Count]


class Removal(Answer):
    """May these brokers be removed?"""

    verdict: Annotated[str, _values(Safety)]
    sentence: Annotated[str, Field(description="The verdict in one line.")]
    brokers: list[Count]
    temporary: Annotated[bool, Field(description="The brokers were said to come back.")]
    verified: Annotated[bool, Field(description="The question was whether the removal is complete.")]
    findings: list[Finding]
    commands: Annotated[list[str], Field(description="What makes it safe, or where it is safe, what does it.")]
    plan: Annotated[list[Move], Field(description="Where the replicas should go first.")]


class Reloaded(Answer):
    """The configuration was read again."""

    ok: bool
    clusters: list[str]


class LoggedLevel(Answer):
    """The least level that is written, and the configuration's."""

    level: LogLevel
    configured: LogLevel
