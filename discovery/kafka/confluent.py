"""The gateway on librdkafka: one AdminClient, every call with a timeout, every answer translated."""

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    Uuid,
)
from confluent_kafka import TopicPartition as RawTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as RawOffsetSpec  # type: ignore[attr-defined]

from discovery.config.client.opened_stores import fresh
from discovery.config.client.options import ClientOptions
from discovery.core.answers import MetadataAnswer
from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import BrokerAddress, BrokerId, Isolation, TopicId, TopicMetadata, TopicName, TopicPartition
from discovery.core.policy import Policy
from discovery.kafka import codes, inventory
from discovery.kafka.base import NO_RECORD, OffsetAndEpoch, OffsetSpec
from discovery.kafka.groups import GroupWriter, committed_offsets
from discovery.kafka.patience import GRACE_SECONDS
from discovery.kafka.settings import PROBE_TOPIC, QuietLog, client_properties, make_client
from discovery.kafka.translate import failure_kind, gateway_error, is_answer, metadata_answer, said

T = TypeVar("T")
_Asked = Iterable[tuple[Any, "Future[Any]"]]

_ONE_BY_ONE = 16
"""librdkafka's `list_topics` takes one topic or all; up to here one call per topic is cheaper than the full list."""
_AT_ONCE = 500
"""Most partitions of one offsets request: librdkafka takes time that grows with the square of their number."""
_LOOK_UP_SECONDS = 3.0
"""How much longer than we do librdkafka may wait for offsets. Its look-up of leaders runs on the caller's thread, can
take a second beside a metadata answer of 50 000 partitions, and the process crashes where the timeout ends first."""
_LATE_SECONDS = 30.0
_ISOLATION = {
    Isolation.READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
    Isolation.READ_COMMITTED: IsolationLevel.READ_COMMITTED,
}


class ErrorMemory:
    """The last telling error of a client's connections since it last succeeded.

    A call on a client that cannot log in only says "timed out"; the reason arrives here.
    """

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Remember it; `error_cb` of librdkafka. "All brokers down" tells nothing that the others do not."""
        if error.code() != codes.ALL_BROKERS_DOWN:
            self._last = error

    def forget(self) -> None:
        """Forget: a call succeeded."""
        self._last = None

    def explain(self, failure: GatewayError) -> GatewayError:
        """Return the failure, with the connection's reason when that says more than a timeout."""
        last = self._last
        if last is None or failure.kind is not FailureKind.TRANSIENT:
            return failure
        kind = failure_kind(last)
        if kind not in (FailureKind.AUTH, FailureKind.TLS):
            kind = failure.kind
        return GatewayError(kind, f"{failure.detail} (last connection error: {said(last)})")


class ConfluentGateway:
    """See `Gateway`. Holds no thread of its own; librdkafka's end with `close`."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = dict(properties)
        self._errors = ErrorMemory()
        self._client: AdminClient | None = make_client({**properties, "error_cb": self._errors.note}, QuietLog())
        self._first_id: str | None = None
        """The cluster this client was built for: that of the vetted addresses it began with."""
        self._writers: dict[str, GroupWriter] = {}
        self._late = _Late()

    def fetch_metadata(self, topics: Collection[TopicName] | None, *, timeout_seconds: float) -> MetadataAnswer:
        """See `Gateway.fetch_metadata`."""
        return self._call("metadata", lambda client: _metadata(client, topics, timeout_seconds))

    def describe_topic_ids(
        self, topics: Collection[TopicName], *, timeout_seconds: float
    ) -> Mapping[TopicName, TopicId]:
        """See `Gateway.describe_topic_ids`. Goes to the "controller", in KRaft a random broker."""
        if not topics:
            return {}
        late = self._late
        return self._call(
            "topic ids", lambda client: self._at_home(client, lambda: _topic_ids(client, topics, timeout_seconds, late))
        )

    def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: OffsetSpec,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_seconds: float,
    ) -> Mapping[TopicPartition, OffsetAndEpoch]:
        """See `Gateway.list_offsets`.

        Leaders come from the client's cache, which only `fetch_metadata` of that topic (or of all) renews in time:
        librdkafka keeps it for 15 minutes, and calls a new partition "no leader" from it without asking anybody.
        That is wanted: an answer of a living leader must not wait for a metadata request to a frozen broker.
        """
        if not partitions:
            return {}
        wanted = _wanted(spec)
        asked = [[RawTopicPartition(*tp, wanted) for tp in some] for some in _parts(partitions, _AT_ONCE)]
        options = {
            "isolation_level_value": _ISOLATION[isolation].value,
            "request_timeout": timeout_seconds + _LOOK_UP_SECONDS,
        }
        # A dead leader is reported as success with offset -1001; "no record after this timestamp" with -1.
        least = 0 if spec.timestamp_milliseconds is None else NO_RECORD

        def ask(client: AdminClient) -> Mapping[TopicPartition, OffsetAndEpoch]:
            deadline = time.monotonic() + timeout_seconds
            futures = [pair for some in asked for pair in _request_offsets(client, some, options)]
            done, failed = _split_failed(*_settle(futures, deadline, self._late))
            if failed and not done and _known_cluster(client) is None:
                raise gateway_error(failed[0], "offsets")  # not one leader's silence: nobody reported who leads
            return _offsets(done, failed, least)

        return self._call("offsets", lambda client: self._at_home(client, lambda: ask(client)))

    def _at_home(self, client: AdminClient, ask: Callable[[], T]) -> T:
        """Return the answer only while the client knows no other cluster than its first.

        An address that goes to another cluster takes the client's idea of leaders with it; offsets and ids of a topic
        of the same name would then come from there, and unlike metadata they do not say so.
        """
        before = _known_cluster(client)
        answered = ask()
        after = _known_cluster(client)
        self._first_id = self._first_id or before or after
        if {before, after} - {None, self._first_id}:
            text = f"the client was led away from cluster {self._first_id}; its answer was dropped"
            raise GatewayError(FailureKind.TRANSIENT, text)
        return answered

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition], *, timeout_seconds: float
    ) -> Mapping[TopicPartition, int]:
        """See `Gateway.committed_offsets`."""
        if not partitions:
            return {}
        properties = {**self._properties, "error_cb": self._errors.note}
        return self._call(
            f"group {group}",
            lambda _: committed_offsets(properties, group, partitions, timeout_seconds=timeout_seconds),
        )

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_seconds: float) -> None:
        """See `Gateway.commit_offsets`. One client per group stays connected until `close`."""
        if not offsets:
            return
        if group not in self._writers:
            self._writers[group] = GroupWriter({**self._properties, "error_cb": self._errors.note}, group)
        writer = self._writers[group]

        def write(client: AdminClient) -> None:
            home = self._first_id or _known_cluster(client)
            writer.commit(offsets, cluster_id=home, timeout_seconds=timeout_seconds)

        self._call(f"commit to group {group}", write)

    def min_in_sync(self, topics: Collection[TopicName], *, timeout_seconds: float) -> Mapping[TopicName, int]:
        """See `Gateway.min_in_sync`."""
        return self._call(
            "min.insync.replicas", lambda client: inventory.min_in_sync(client, topics, timeout_seconds=timeout_seconds)
        )

    def voters(
        self, brokers: Collection[BrokerId], *, timeout_seconds: float
    ) -> Mapping[BrokerId, frozenset[BrokerId]]:
        """See `Gateway.voters`."""
        return self._call(
            "process.roles", lambda client: inventory.voters(client, brokers, timeout_seconds=timeout_seconds)
        )

    def groups(self, *, timeout_seconds: float) -> tuple[str, ...]:
        """See `Gateway.groups`."""
        return self._call("groups", lambda client: inventory.groups(client, timeout_seconds=timeout_seconds))

    def close(self) -> None:
        """See `Gateway.close`. A call still under way keeps the client alive until it returns."""
        client, self._client = self._client, None
        self._writers.clear()
        self._late.outlive(client)

    def _call(self, doing: str, ask: Callable[[AdminClient], T]) -> T:
        client = self._client
        if client is None:
            raise GatewayError(FailureKind.TRANSIENT, f"{doing}: the client is closed")
        try:
            answer = ask(client)
        except GatewayError as failure:
            client.poll(0)
            raise self._errors.explain(failure) from failure.__cause__
        except (KafkaException, TimeoutError, ValueError, TypeError) as exc:
            client.poll(0)
            raise self._errors.explain(gateway_error(exc, doing)) from exc
        finally:
            if self._client is None:
                self._late.outlive(client)
        # Log lines and connection errors queue up inside librdkafka until somebody polls.
        client.poll(0)
        self._errors.forget()
        return answer


@dataclass(frozen=True, slots=True)
class ConfluentGatewayFactory:
    """See `GatewayFactory`."""

    options: ClientOptions
    policy: Policy
    patient: bool = False
    """For brokers known to be slow: a connection is given the deadline of offsets for every answer, its first too."""

    def __call__(self, bootstrap: Sequence[BrokerAddress]) -> ConfluentGateway:
        """See `GatewayFactory.__call__`."""
        policy, patience = self.policy, self.policy.offsets_deadline_seconds
        properties = client_properties(
            fresh(self.options),
            bootstrap,
            connect_timeout_seconds=patience if self.patient else policy.connect_timeout_seconds,
            request_timeout_seconds=patience if self.patient else policy.request_timeout_seconds,
        )
        return ConfluentGateway(properties)


def _known_cluster(client: AdminClient) -> str | None:
    """Return the cluster id of the client's newest metadata, or None before the first; asks nobody."""
    try:
        return cast("str | None", client.cluster_id(timeout=0))
    except KafkaException:
        return None


def _metadata(client: AdminClient, topics: Collection[TopicName] | None, timeout_seconds: float) -> MetadataAnswer:
    if topics is None:
        return metadata_answer(client.list_topics(timeout=timeout_seconds), complete=True)
    if len(topics) > _ONE_BY_ONE:
        return _only(metadata_answer(client.list_topics(timeout=timeout_seconds), complete=True), topics)
    deadline = time.monotonic() + timeout_seconds
    names = tuple(topics) or (PROBE_TOPIC,)
    answers = []
    for name in names:
        left = max(0.001, deadline - time.monotonic())
        answers.append(metadata_answer(client.list_topics(name, timeout=left)))
    return _joined(answers, asked=topics)


def _only(answer: MetadataAnswer, topics: Collection[TopicName]) -> MetadataAnswer:
    """Keep the asked topics of a full list; those it lacks do not exist (or are hidden from us)."""
    wanted = frozenset(topics)
    kept = tuple(t for t in answer.topics if t.name in wanted)
    missing = wanted - {t.name for t in kept}
    return _rebuilt(answer, topics=kept, unknown=sorted(missing))


def _joined(answers: Sequence[MetadataAnswer], *, asked: Collection[TopicName]) -> MetadataAnswer:
    """Join answers for single topics; brokers are those of the last one. One of another cluster speaks for all."""
    strange = next((answer for answer in answers if answer.cluster_id != answers[0].cluster_id), None)
    if strange is not None:
        return strange
    known: list[TopicMetadata] = [t for answer in answers for t in answer.topics]
    unknown = [name for answer in answers for name in answer.unknown_topics if name in asked]
    return _rebuilt(answers[-1], topics=tuple(sorted(known, key=lambda t: t.name)), unknown=sorted(unknown))


def _rebuilt(answer: MetadataAnswer, *, topics: tuple[TopicMetadata, ...], unknown: list[TopicName]) -> MetadataAnswer:
    return MetadataAnswer(
        cluster_id=answer.cluster_id,
        brokers=answer.brokers,
        topics=topics,
        unknown_topics=tuple(unknown),
        controller_id=answer.controller_id,
    )


class _Late:
    """Requests that did not end in time.

    Their client must not be let go before they do: at its end librdkafka 2.16 wakes them out of freed memory.
    """

    def __init__(self) -> None:
        self._futures: set[Future[Any]] = set()

    def note(self, future: "Future[Any]") -> None:
        """Remember one; those that have ended meanwhile are forgotten."""
        self._futures = {one for one in (*self._futures, future) if not one.done()}

    def outlive(self, client: AdminClient | None) -> None:
        """Hold the client until all have ended; for good where they do not."""
        if self._futures and wait(self._futures, _LATE_SECONDS).not_done:
            _KEPT.append(client)


_KEPT: list[AdminClient | None] = []
"""Clients whose end would end the process."""


def _parts(partitions: Collection[TopicPartition], size: int) -> Iterator[list[TopicPartition]]:
    rest = iter(partitions)
    while some := list(itertools.islice(rest, size)):
        yield some


def _settle(futures: _Asked, deadline: float, late: _Late) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Wait for all until the deadline; return results and failures apart."""
    done: list[tuple[Any, Any]] = []
    failed: list[Any] = []
    for key, future in futures:
        try:
            done.append((key, future.result(timeout=max(0.0, deadline - time.monotonic()))))
        except (KafkaException, TimeoutError) as exc:
            failed.append(exc.with_traceback(None))  # whose frames hold this list
            if not future.done():
                late.note(future)
    return done, failed


def _deadline(timeout_seconds: float) -> float:
    return time.monotonic() + timeout_seconds + GRACE_SECONDS


def _topic_ids(
    client: AdminClient, topics: Collection[TopicName], timeout_seconds: float, late: _Late
) -> Mapping[TopicName, TopicId]:
    futures = client.describe_topics(TopicCollection(list(topics)), request_timeout=timeout_seconds)
    done, failed = _settle(futures.items(), _deadline(timeout_seconds), late)
    unanswered = [exc for exc in failed if gateway_error(exc, "").kind is not FailureKind.TOPIC_UNKNOWN]
    if unanswered and not done:
        raise gateway_error(unanswered[0], "topic ids")
    return {TopicName(name): _topic_id(d.topic_id) for name, d in done if d.topic_id is not None}


def _topic_id(raw: Uuid) -> TopicId:
    """Write it as Kafka's own tools do: base64 for URLs, where librdkafka writes the plain kind."""
    return TopicId(str(raw).replace("+", "-").replace("/", "_"))


def _wanted(spec: OffsetSpec) -> int:
    """Return which offset is meant, as librdkafka writes it: in place of an offset."""
    if spec.latest:
        return OFFSET_END
    return OFFSET_BEGINNING if spec.timestamp_milliseconds is None else spec.timestamp_milliseconds


def _request_offsets(client: AdminClient, partitions: list[RawTopicPartition], options: Mapping[str, Any]) -> _Asked:
    """Send one request and return one future for all of it, keyed None.

    `AdminClient.list_offsets` makes a future, with a lock and a condition, of each partition: four fifths of what a
    loop over a thousand of them cost. It is what is asked where another release's C layer is called otherwise.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    try:
        _call_below(client, partitions, future, options)
    except (AttributeError, TypeError):
        specs = {RawTopicPartition(tp.topic, tp.partition): _raw_spec(tp.offset) for tp in partitions}
        level = IsolationLevel(options["isolation_level_value"])
        return client.list_offsets(specs, isolation_level=level, request_timeout=options["request_timeout"]).items()
    return [(None, future)]


def _call_below(
    client: AdminClient, partitions: list[RawTopicPartition], future: "Future[Any]", options: Mapping[str, Any]
) -> None:
    super(AdminClient, client).list_offsets(partitions, future, **options)


def _raw_spec(wanted: int) -> Any:
    if wanted == OFFSET_END:
        return RawOffsetSpec.latest()  # type: ignore[no-untyped-call]
    if wanted == OFFSET_BEGINNING:
        return RawOffsetSpec.earliest()  # type: ignore[no-untyped-call]
    return RawOffsetSpec.for_timestamp(wanted)


def _split_failed(done: Iterable[tuple[Any, Any]], failed: list[Any]) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Join the answers of several requests; a partition's error inside an answer is a failure too."""
    pairs = [pair for key, answered in done for pair in (answered.items() if key is None else [(key, answered)])]
    refused = [KafkaException(result) for _, result in pairs if isinstance(result, KafkaError)]
    return [pair for pair in pairs if not isinstance(pair[1], KafkaError)], failed + refused


def _offsets(
    done: Iterable[tuple[Any, Any]], failed: Iterable[Exception], least: int
) -> Mapping[TopicPartition, OffsetAndEpoch]:
    """Return what was answered; silence is no error here, a refusal of everything is."""
    refused = [exc for exc in failed if not is_answer(exc) and not isinstance(exc, TimeoutError)]
    if refused and not done:
        raise gateway_error(refused[0], "offsets")
    return {
        TopicPartition(TopicName(raw.topic), raw.partition): OffsetAndEpoch(result.offset, result.leader_epoch)
        for raw, result in done
        if result.offset >= least
    }
