"""A client that asks for thousands of offsets with too little time, and is let go at once: run as a process of its own.

librdkafka 2.16 crashes where a request's timeout ends while its leaders are looked up, and where a client ends before
its requests do.
"""

import contextlib

from discovery.config.client.options import map_client_options
from discovery.core.errors import GatewayError
from discovery.core.model import TopicName, TopicPartition, parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.kafka.base import LATEST
from discovery.kafka.confluent import ConfluentGatewayFactory
from tests.support.fakes.mock_cluster import MockCluster

PARTITIONS = 8_000
ROUNDS = 3


def main() -> None:
    """Ask, let go, ask again; print how often it lived to tell."""
    with MockCluster(3) as mock:
        mock.call("topic_create", "t", PARTITIONS, 1)
        tps = [TopicPartition(TopicName("t"), index) for index in range(PARTITIONS)]
        for _ in range(ROUNDS):
            gateway = ConfluentGatewayFactory(map_client_options({}), Policy())(
                parse_bootstrap_servers(mock.bootstrap_servers)
            )
            gateway.fetch_metadata(None, timeout_seconds=20)
            with contextlib.suppress(GatewayError):
                gateway.list_offsets(tps, LATEST, timeout_seconds=0.01)
            gateway.close()
            del gateway
    print("lived")  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
