"""Consumers of one worker process: built once per client configuration, assigned at exact offsets, whichever engine."""

import logging
import os
import time
from collections.abc import Collection, Mapping, Sequence

from confluent_kafka import KafkaError

from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import BrokerAddress, TopicId, TopicName, TopicPartition
from discovery.spark.fetch.client import Client, ClientFactory, Piece
from discovery.spark.fetch.heap import trim
from discovery.spark.fetch.ranges import FetchSettings
from discovery.spark.fetch.tuning import Limits, complete, limits_of, with_uncounted

_log = logging.getLogger("kafka_discovery.fetch")
_INTRODUCE_SECONDS = 1.0
_DOUBTED_AFTER_SECONDS = 60.0
_DOUBTED_AT_LAST_SECONDS = 900.0
"""How old a client is that is doubted: twice as old after each one that was, and at last a quarter of an hour."""
_WORTH_KEEPING_ROWS = 10_000
_FIRST_ROWS = 100

_DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_UNKNOWN_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - confluent-kafka's public name
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    }
)
_FATAL = {
    **dict.fromkeys(_DENIED, FailureKind.AUTH),
    KafkaError._AUTHENTICATION: FailureKind.AUTH,  # noqa: SLF001
    KafkaError._SSL: FailureKind.TLS,  # noqa: SLF001
}


def _rack(variable: str | None) -> dict[str, str]:
    """Say where this very worker runs: a broker near it may then answer. Without the variable the leaders do."""
    rack = os.environ.get(variable, "").strip() if variable else ""
    if variable and not rack:
        _log.warning("clientRackVariable: %s is not set for this worker, so it reads from the leaders", variable)
    return {"client.rack": rack} if rack else {}


class CachedConsumer:
    """One client, where its streams stand, and what went wrong lately. One thread at a time."""

    def __init__(self, settings: FetchSettings, brokers: Sequence[BrokerAddress], make_client: ClientFactory) -> None:
        """Build the client; it connects in the background."""
        self.brokers = tuple(brokers)
        """Whom the client was built with."""
        self.present_brokers = self.brokers
        """The list of the task that uses it now: a client that goes on undisturbed keeps an older one."""
        self.settings = settings
        self.positions: dict[TopicPartition, int] = {}
        """Offset that the stream delivers next, by assigned partition."""
        self.topic_ids: dict[TopicName, TopicId] = {}
        """Under which id the client has read each topic, where that is known."""
        self.failure: GatewayError | None = None
        self.all_down = False
        self.stood_still = False
        """Its last task ended without some of its records, since none came."""
        self.awaited: frozenset[TopicPartition] = frozenset()
        """Partitions that its last task left while a slow leader owed an answer."""
        self._doubted_after = _DOUBTED_AFTER_SECONDS
        self._limits: Limits = limits_of(settings)
        self._poll_rows = _FIRST_ROWS
        self._may_hold_records = False
        """Also of partitions it has left: librdkafka drops those when it is polled."""
        self._introduced: set[TopicPartition] = set()
        self._make_client = make_client
        self._client = self._build()

    def _build(self) -> Client:
        self._built_at = time.monotonic()
        options = {**complete(self.settings.client_options, self._limits), **_rack(self.settings.rack_variable)}
        return self._make_client(options, self.brokers, headers=self.settings.include_headers, on_error=self._on_error)

    def is_doubtful(self) -> bool:
        """Tell whether it may be the client itself that hears nothing. From memory.

        Not sooner: a leader that is slow needs a client that is connected already.
        """
        return self.stood_still and time.monotonic() - self._built_at >= self._doubted_after

    def knew_otherwise(self, topic_ids: Mapping[TopicName, TopicId]) -> bool:
        """Tell whether the client has read one of these topics under another id. From memory."""
        return any(self.topic_ids.get(topic, topic_id) != topic_id for topic, topic_id in topic_ids.items())

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions from these offsets; those that stand there already go on undisturbed.

        Runs: worker; blocks <= 1 s, and only for partitions that this consumer has not read before.
        """
        self.unassign([tp for tp, position in self.positions.items() if starts.get(tp) != position])
        added = {tp: start for tp, start in starts.items() if tp not in self.positions}
        if added:
            self._introduce(added.keys() - self._introduced)
            self._may_hold_records = True
            self._client.assign(added)
            self.positions.update(added)

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these no longer.

        Runs: worker; does not block.
        """
        if partitions:
            self._client.unassign(partitions)
            for tp in partitions:
                del self.positions[tp]

    def _introduce(self, strangers: Collection[TopicPartition]) -> None:
        """Let the client hear of partitions before it reads them.

        librdkafka looks for a partition it does not know at its next refresh, 0.3-0.6 s later; asked for the topic it
        knows at once. One that no broker names yet is asked for again; one without a leader is known well enough.
        """
        deadline = time.monotonic() + _INTRODUCE_SECONDS
        for topic in {tp.topic for tp in strangers}:
            wanted = {tp.partition for tp in strangers if tp.topic == topic}
            while (remaining := deadline - time.monotonic()) > 0:
                reported = self._client.topic(topic, remaining)
                if reported is None or wanted <= reported.partitions.keys():
                    break
                time.sleep(0.01)
        self._introduced.update(strangers)

    def keep_backlog(self) -> None:
        """Between tasks: stay only where a backlog is left, whose prefetched part the next task will want.

        And where a slow leader owes an answer: thrown away each time, it would never be heard. A partition that is read
        to its end would be polled for nothing, fifty times a second at each broker.

        Runs: worker; does not block.
        """
        self.assign({tp: at for tp, at in self.positions.items() if tp in self.awaited or self._backlog(tp, at)})

    def make_room(self) -> None:
        """Give up what was fetched ahead: the bound is the worker's, and another consumer needs it now.

        One that awaits a slow leader's answer keeps its quarter of it.

        Runs: worker; blocks for milliseconds where something was fetched ahead.
        """
        if self._may_hold_records and not self.awaited:
            self._may_hold_records = False
            self.unassign(list(self.positions))
            self._client.read({}, self.settings.batch_rows, 0.0)  # librdkafka drops what is outdated when polled
            trim()

    def _backlog(self, tp: TopicPartition, position: int) -> bool:
        end = self._client.known_end(tp)
        return end is not None and 0 <= position <= end - _WORTH_KEEPING_ROWS

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read one assigned partition from an offset, even if the stream stands there: a failed one stands still.

        Runs: worker; does not block.
        """
        self.positions[tp] = -1
        self.assign({**self.positions, tp: offset})

    def read(self, ends: Mapping[TopicPartition, int], missing_rows: int | None, timeout_seconds: float) -> Piece:
        """Take what came, as much as one batch may hold; forgets earlier connection errors once something came.

        Args:
            ends: Where the wanted ranges end, by partition.
            missing_rows: Most rows that are wanted, so that a stream seldom runs beyond its range; None: unknown.
            timeout_seconds: How long to wait for the first one.

        Runs: worker; blocks <= timeout_seconds.
        """
        rows = self._poll_rows if missing_rows is None else max(1, min(self._poll_rows, missing_rows))
        piece = self._client.read(ends, rows, timeout_seconds)
        if piece.heard:
            self.all_down, self.failure = False, None
            self.positions.update({tp: at for tp, at in piece.reached.items() if tp in self.positions})
            self._adapt(piece)
        return piece

    def _adapt(self, piece: Piece) -> None:
        if piece.batch is not None:
            rows = piece.batch.num_rows
            row_bytes = piece.batch.nbytes / rows
            self._poll_rows = max(1, min(self.settings.batch_rows, int(self._limits.batch_bytes / row_bytes)))
            self._limit_keys(int((piece.batch.nbytes - piece.batch.column("value").nbytes) / rows))

    def _limit_keys(self, uncounted_bytes: int) -> None:
        """Prefetch fewer messages where keys and headers are large: librdkafka counts the bytes of values alone."""
        fewer = with_uncounted(self._limits, uncounted_bytes)
        if fewer.queue_messages < self._limits.queue_messages // 2:
            self._limits = fewer
            self.rebuild(self.present_brokers)

    def watermarks(self, tp: TopicPartition, timeout_seconds: float) -> tuple[int, int] | None:
        """Ask the leader for the earliest and the end offset; None when it does not answer.

        Runs: worker; blocks <= timeout_seconds.
        """
        return self._client.watermarks(tp, timeout_seconds)

    def exists(self, tp: TopicPartition, timeout_seconds: float) -> bool | None:
        """Ask any broker whether the partition exists; None when nobody answers.

        Raises:
            GatewayError: AUTH, this user may not see the topic.

        Runs: worker; blocks <= 2 x timeout_seconds.
        """
        found = self._client.topic(TopicName(tp.topic), timeout_seconds)
        if found is None:
            return None
        if found.error_code in _DENIED:
            raise GatewayError(FailureKind.AUTH, f"{tp}: {found.error_text}; grant this user READ on the topic")
        if found.error_code in _UNKNOWN_TOPIC:
            return False
        return None if found.error_code else tp.partition in found.partitions

    def leaders(
        self, partitions: Collection[TopicPartition], timeout_seconds: float
    ) -> dict[TopicPartition, BrokerAddress | None]:
        """Ask any broker where their leaders are now; None: there is none, left out: nobody says so in time.

        Runs: worker; blocks <= timeout_seconds.
        """
        deadline = time.monotonic() + timeout_seconds
        found: dict[TopicPartition, BrokerAddress | None] = {}
        for topic in {tp.topic for tp in partitions}:
            answer = self._client.topic(topic, max(0.0, deadline - time.monotonic()))
            known = {} if answer is None else answer.partitions
            found |= {tp: known[tp.partition] for tp in partitions if tp.topic == topic and tp.partition in known}
        return found

    def rebuild(self, brokers: Sequence[BrokerAddress]) -> None:
        """Start over with another list and the same positions: the old client knows nobody who answers.

        Runs: worker; does not block.
        """
        starts = dict(self.positions)
        # Whoever stands still with a new client too has a leader that is slow or dead, and needs a client that waits.
        if self.stood_still:
            self._doubted_after = min(2 * self._doubted_after, _DOUBTED_AT_LAST_SECONDS)
        self.close()
        self.brokers = self.present_brokers = tuple(brokers)
        self.positions, self.failure, self.all_down, self.stood_still = {}, None, False, False
        self._introduced = set()
        self._client = self._build()
        self.assign(starts)

    def close(self) -> None:
        """Give the client up.

        Runs: worker; does not block.
        """
        self._client.close()

    def _on_error(self, code: int, text: str) -> None:
        kind = _FATAL.get(code)
        if kind is not None:
            self.failure = GatewayError(kind, f"{kind.value}: {text}")
        elif code == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self.all_down = True
