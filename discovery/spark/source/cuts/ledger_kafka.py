"""A ledger in a compacted topic: for drivers that move between hosts and share no volume."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from discovery.core.errors import LedgerDamagedError, StateError
from discovery.core.model import BrokerAddress, TopicName
from discovery.kafka.journal import Journal
from discovery.spark.source.cuts.ledger import ADOPT, Entry, LedgerState, Where, decode, encode, entries_of, fold, prune
from discovery.spark.source.cuts.rules import CutRecord

_log = logging.getLogger("kafka_discovery.source")


class KafkaLedger:
    """Entries as records of a topic; `sourceId` is the holder's name, whom a second driver fences."""

    def __init__(
        self,
        topic: TopicName,
        source_id: str,
        *,
        properties: Callable[[], Mapping[str, Any]],
        brokers: Callable[[], Sequence[BrokerAddress]],
        timeout_seconds: float = 30.0,
        open_timeout_seconds: float | None = None,
    ) -> None:
        """Remember where; connects to nobody."""
        self._topic = topic
        self._source_id = source_id
        self._journal = Journal(
            topic,
            source_id,
            properties=properties,
            brokers=brokers,
            timeout_seconds=timeout_seconds,
            open_timeout_seconds=open_timeout_seconds,
        )

    def open(self) -> LedgerState:
        """See `Ledger.open`; blocks up to `open_timeout_seconds`."""
        found = self._journal.open()
        state = self._fold(found)
        kept = prune(state)
        if forgotten := found.keys() - _keys(kept):
            self._journal.append(dict.fromkeys(forgotten))
        return kept

    def look(self) -> LedgerState | None:
        """Read the ledger without holding it; None where there is none.

        Raises:
            StateError: Kafka does not answer, or it is damaged.

        Runs: anywhere; its holder may write meanwhile.
        """
        found = self._journal.look()
        return self._fold(found) if found else None

    def look_all(self, *, held: bool = True) -> dict[Where, LedgerState]:
        """Read the ledgers of all sources; a damaged one is logged, no more.

        Args:
            held: Also those that a living process of this machine holds.

        Raises:
            StateError: Kafka does not answer.

        Runs: anywhere; their holders may write meanwhile.
        """
        states = {}
        for source_id, found in self._journal.look_all(held=held).items():
            try:
                states[Where(source_id, in_kafka=True)] = self._fold(found, source_id)
            except LedgerDamagedError as error:
                _log.warning("a cut in it cannot be reported: %s", error)
        return states

    def set_aside(self) -> str:
        """Forget all entries, readable or not; see `Ledger.set_aside`.

        Raises:
            StateError: Kafka did not let us.
        """
        self._journal.append(dict.fromkeys(self._journal.open()))
        return "its entries are forgotten"

    def _fold(self, found: Mapping[str, str], source_id: str | None = None) -> LedgerState:
        entries = []
        for key, line in found.items():
            try:
                entries.append(decode(line))
            except StateError as error:
                name = source_id or self._source_id
                raise LedgerDamagedError(
                    f"topic {self._topic}: entry {key} of sourceId {name!r} is damaged: {error}; {ADOPT}"
                ) from error
        return fold(LedgerState(), entries)

    def append(self, entries: Sequence[Entry]) -> None:
        """See `Ledger.append`.

        Runs: driver; blocks for a transaction, up to 30 s while the topic or its coordinator has no leader.
        """
        self._journal.append({_key(entry): encode(entry) for entry in entries})

    def forget(self, before: LedgerState, kept: LedgerState) -> None:
        """See `Ledger.forget`.

        Runs: driver; blocks as `append` does.
        """
        if forgotten := _keys(before) - _keys(kept):
            self._journal.append(dict.fromkeys(forgotten))

    def close(self) -> None:
        """See `Ledger.close`; the next holder fences this one in any case."""
        self._journal.close()

    def describe(self) -> str:
        """See `Ledger.describe`."""
        return f"topic {self._topic}"


def _keys(state: LedgerState) -> set[str]:
    return set(map(_key, entries_of(state)))


def _key(entry: Entry) -> str:
    if isinstance(entry, CutRecord):
        return f"cut/{entry.incarnation}/{entry.plan}/{entry.topic_partition}"
    return f"incarnation/{entry.number}"
