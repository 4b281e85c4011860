"""What the client library adds: processor time of real calls to librdkafka's own mock brokers, in another process."""

import time
from collections.abc import Callable, Mapping

from discovery.config.client.key_material import open_stores
from discovery.config.client.options import map_client_options
from discovery.core.model import BrokerAddress, TopicName, TopicPartition, parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.kafka.base import LATEST
from discovery.kafka.confluent import ConfluentGatewayFactory
from discovery.kafka.vetting.vet import LibrdkafkaVetter
from tests.support.fakes.mock_cluster import MockCluster

_PARTITIONS, _SMALL = 500, 20
_ROUNDS = 40
_SECONDS = 10.0
Costs = dict[str, float]


def measured_costs() -> Costs:
    """Return processor microseconds of a call, and of each partition in it; of a knock, and of a full proof.

    Runs: the benchmark's process, once; about a minute.
    """
    options, policy = open_stores(map_client_options({})), Policy()
    with MockCluster() as kafka:
        kafka.call("topic_create", "large", _PARTITIONS, 1)
        addresses = parse_bootstrap_servers(kafka.bootstrap_servers)
        gateway, vetter = ConfluentGatewayFactory(options, policy)(addresses), LibrdkafkaVetter(options, policy)
        large = [TopicPartition(TopicName("large"), number) for number in range(_PARTITIONS)]

        def metadata() -> None:
            gateway.fetch_metadata([TopicName("large")], timeout_seconds=_SECONDS)

        def offsets(count: int) -> Callable[[], object]:
            return lambda: gateway.list_offsets(large[:count], LATEST, timeout_seconds=_SECONDS)

        def vet(*, full: bool) -> None:
            _vet(vetter, addresses, full=full)

        try:
            spent = {
                "all": _microseconds(offsets(_PARTITIONS)),
                "few": _microseconds(offsets(_SMALL)),
                "metadata": _microseconds(metadata),
                "knock": _microseconds(lambda: vet(full=False)) / len(addresses),
                "proof": _microseconds(lambda: vet(full=True)) / len(addresses),
            }
        finally:
            gateway.close()
    of_end = max(0.0, (spent["all"] - spent["few"]) / (_PARTITIONS - _SMALL))
    return {
        "end": round(of_end, 2),
        "offsets request": round(max(0.0, spent["few"] - _SMALL * of_end), 1),
        "partition described": round(spent["metadata"] / _PARTITIONS, 2),
        "knock": round(spent["knock"], 1),
        "proof": round(spent["proof"], 1),
    }


def _vet(vetter: LibrdkafkaVetter, addresses: tuple[BrokerAddress, ...], *, full: bool) -> None:
    vetter.vet(
        addresses,
        connect_timeout_seconds=2.0,
        request_timeout_seconds=5.0,
        full=addresses if full else (),
        on_outcome=lambda _: None,
    )


def _microseconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call, librdkafka's threads included; the first call, which connects, is not."""
    call()
    began = time.process_time()
    for _ in range(_ROUNDS):
        call()
    return (time.process_time() - began) / _ROUNDS * 1e6


def cores(costs: Mapping[str, float], work: Mapping[str, float]) -> float:
    """Return the cores that so much work a second costs in the client library."""
    return sum(costs[name] * number for name, number in work.items()) / 1e6
