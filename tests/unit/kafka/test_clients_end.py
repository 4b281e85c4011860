"""A client ends with the last reference to its owner: until the garbage collector came by, it would go on."""

import contextlib
import gc
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from discovery.config.client.options import map_client_options
from discovery.core.errors import DiscoveryError, FailureKind, GatewayError
from discovery.core.model import BrokerAddress, BrokerId, TopicName, TopicPartition
from discovery.core.policy import Policy
from discovery.kafka.base import LATEST
from discovery.kafka.confluent import ConfluentGateway, ConfluentGatewayFactory
from discovery.kafka.groups import GroupWriter, committed_offsets
from discovery.kafka.journal import Journal
from discovery.kafka.patience import OutOfTimeError, retried
from discovery.kafka.topics import TopicAdmin
from discovery.kafka.transactions import Access, GroupNotes, Transaction
from tests.support.faults import refused_port
from tests.support.helpers import eventually

TOPIC, SECONDS = TopicName("t"), 0.3
PLACE = TopicPartition(TOPIC, 0)
EXPECTED = (DiscoveryError, KafkaException, OutOfTimeError, TimeoutError)
"""What a call may raise where nobody answers."""


def access(address: str) -> Access:
    return Access({}, (BrokerAddress.parse(address),))


def gateway(address: str) -> ConfluentGateway:
    return ConfluentGatewayFactory(map_client_options({}), Policy())([BrokerAddress.parse(address)])


def threads() -> int:
    """Count those of this process, librdkafka's too."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


class Asking:
    """A client whose futures fail, all or the first, and keep their exceptions as those of confluent-kafka do."""

    def __init__(self, code: int, *, recovers: bool = False) -> None:
        self._failure: KafkaException | None = KafkaException(KafkaError(code))
        self._recovers = recovers

    def ask(self) -> None:
        def once(_left: float) -> None:
            futures: dict[str, Future[None]] = {"t": Future()}
            if (failure := self._failure) is None:
                return
            if self._recovers:
                self._failure = None
            futures["t"].set_exception(failure)
            futures["t"].result()

        retried(once, time.monotonic() + SECONDS)


def refused(_client: object) -> None:
    raise GatewayError(FailureKind.AUTH, "no rights")


def offsets(asked: ConfluentGateway) -> None:
    try:
        asked.list_offsets([PLACE], LATEST, timeout_seconds=SECONDS)
    finally:
        asked.close()  # waits for what is on its way


CALLS: dict[str, tuple[Callable[[str], Any], Callable[[Any], object]]] = {
    "notes that are read": (
        lambda address: GroupNotes(access(address), group="g", topic=TOPIC),
        lambda notes: notes.read([0], timeout_seconds=SECONDS),
    ),
    "a commit": (
        lambda address: GroupWriter({"bootstrap.servers": address}, "g"),
        lambda writer: writer.commit({PLACE: 1}, cluster_id=None, timeout_seconds=SECONDS),
    ),
    "a fence": (
        lambda address: Transaction(access(address), transactional_id="i", topic=TOPIC, timeout_seconds=10, options={}),
        lambda transaction: transaction.fence(time.monotonic() + SECONDS),
    ),
    "a topic's id": (
        lambda address: TopicAdmin(access(address)),
        lambda admin: admin.topic_id(TOPIC, timeout_seconds=SECONDS),
    ),
    "a topic's records": (
        lambda address: TopicAdmin(access(address)),
        lambda admin: admin.filled(TOPIC, [0], timeout_seconds=SECONDS),
    ),
    "options of brokers": (
        gateway,
        lambda gateway: gateway.voters([BrokerId(1)], timeout_seconds=SECONDS),
    ),
    "options of topics": (
        gateway,
        lambda gateway: gateway.min_in_sync([TOPIC], timeout_seconds=SECONDS),
    ),
    "offsets": (
        gateway,
        offsets,
    ),
    "metadata": (
        gateway,
        lambda gateway: gateway.fetch_metadata(None, timeout_seconds=SECONDS),
    ),
    "what a gateway may not do": (
        gateway,
        lambda gateway: gateway._call("asking", refused),
    ),
    "offsets of a group": (
        lambda address: partial(committed_offsets, {"bootstrap.servers": address}, "g", [PLACE]),
        lambda ask: ask(timeout_seconds=SECONDS),
    ),
    "a ledger": (
        lambda address: Journal(
            TOPIC, "n", properties=dict, brokers=lambda: [BrokerAddress.parse(address)], timeout_seconds=SECONDS
        ),
        lambda journal: journal.open(),
    ),
    "what passes": (
        lambda _: Asking(KafkaError.NOT_COORDINATOR, recovers=True),
        lambda client: client.ask(),
    ),
    "what may pass": (
        lambda _: Asking(KafkaError.NOT_COORDINATOR),
        lambda client: client.ask(),
    ),
    "what is refused": (
        lambda _: Asking(KafkaError.TOPIC_AUTHORIZATION_FAILED),
        lambda client: client.ask(),
    ),
}


@pytest.mark.parametrize("what", CALLS)
def test_given_a_call_that_failed_when_its_client_is_dropped_then_nothing_keeps_it(what: str) -> None:
    make, call = CALLS[what]

    def failed(address: str) -> weakref.ref[Any]:
        owner = make(address)
        with contextlib.suppress(*EXPECTED):
            call(owner)
        return weakref.ref(owner)

    gc.collect()
    gc.disable()
    try:
        before = threads()
        with refused_port() as address:
            kept = failed(address)
        assert kept() is None
        # The system shows a thread for a moment after it was joined; one that a client keeps does not end.
        eventually(lambda: threads() <= before, 10, "the end of a client")
    finally:
        gc.enable()
