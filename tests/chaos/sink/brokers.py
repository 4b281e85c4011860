"""Faults of brokers while a sink writes: one at a time, each undone after a while."""

import contextlib
import threading
import time
from collections.abc import Iterator

from confluent_kafka.admin import AdminClient

from discovery.localkafka.cluster import LocalKafka
from tests.support.helpers import partitions_of

_TRANSACTIONS = "__transaction_state"
_PAUSE_SECONDS = 4.0
_DOWN_SECONDS = 2.0
FAULTS = ("pause a broker", "bounce a broker", "kill the coordinator")


class Brokers:
    """Breaks brokers of one cluster in the background; `settled` waits until all are well again."""

    def __init__(self, cluster: LocalKafka) -> None:
        self._cluster = cluster
        self._one_at_a_time = threading.Lock()
        self._threads: list[threading.Thread] = []

    def break_(self, fault: str, transactional_id: str) -> bool:
        """Begin a fault and return at once; False, and nothing is done, while another is under way."""
        if not self._one_at_a_time.acquire(blocking=False):
            return False
        thread = threading.Thread(target=self._break, args=(fault, transactional_id), daemon=True)
        self._threads.append(thread)
        thread.start()
        return True

    @contextlib.contextmanager
    def settled(self) -> Iterator[None]:
        """Wait at the end until every fault is undone."""
        try:
            yield
        finally:
            for thread in self._threads:
                thread.join(120)

    def _break(self, fault: str, transactional_id: str) -> None:
        try:
            if fault == "pause a broker":
                broker = self._cluster.broker_ids[java_hash(transactional_id) % len(self._cluster.broker_ids)]
                self._cluster.pause([broker])
                time.sleep(_PAUSE_SECONDS)
                self._cluster.resume([broker])
                return
            broker = coordinator(self._cluster, transactional_id)
            if fault == "bounce a broker":
                broker = next(b for b in self._cluster.broker_ids if b != broker)
            self._cluster.kill([broker])
            time.sleep(_DOWN_SECONDS)
            self._cluster.restart([broker])
        finally:
            self._one_at_a_time.release()


def coordinator(cluster: LocalKafka, transactional_id: str) -> int:
    """Return the broker that coordinates the transactions of an id: the leader of its partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    partitions = partitions_of(admin, _TRANSACTIONS)
    return int(partitions[java_hash(transactional_id) % len(partitions)].leader)


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` as Kafka uses it: without its sign."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)
