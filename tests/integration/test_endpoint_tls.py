"""The endpoint before listeners that want TLS and certificates: whom it proves, and that clients get through."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import ClientOptions, map_client_options
from discovery.core.model import BrokerAddress, ClusterId, parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.endpoint.limits import Limits
from discovery.endpoint.make import Followed, KafkaProver, brokers_feed, make_endpoint
from discovery.endpoint.race import Resolved
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.faults import refused_port
from tests.support.tls import KEY_PASSWORD, MISNAMED, MUTUAL, Certificates, make_certificates, secured_settings

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def kafka(made: Certificates) -> Iterator[LocalKafka]:
    """Two brokers: one listener wants certificates, one shows a certificate of another name."""
    listeners = secured_settings(made).listeners
    with LocalKafka(ClusterSettings(brokers=2, listeners={n: listeners[n] for n in (MUTUAL, MISNAMED)})) as cluster:
        yield cluster


def options_of(made: Certificates, *, certificate: bool = True) -> ClientOptions:
    own = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": made.path("client.pem"),
        "ssl.key.password": KEY_PASSWORD,
    }
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": made.path("ca.pem")}
    return open_stores(map_client_options({"security.protocol": "SSL", **trust, **(own if certificate else {})}))


def test_given_brokers_that_want_certificates_when_a_client_comes_through_the_endpoint_then_it_gets_through(
    kafka: LocalKafka, made: Certificates
) -> None:
    options, policy = options_of(made), Policy()
    addresses = parse_bootstrap_servers(",".join(kafka.address(b, listener=MUTUAL) for b in (1, 2)))
    feed = brokers_feed(addresses, options, policy, state_dir=None)
    one = Followed(feed=feed, endpoint=make_endpoint(feed.view, options, policy, Limits(port=0)))
    try:
        address = one.start()
        assert one.endpoint.wait_ready(60)
        client = AdminClient({**options.connection, "bootstrap.servers": address})
        assert len(client.list_topics(timeout=30).brokers) == 2
        anonymous = options_of(made, certificate=False).connection
        with pytest.raises(KafkaException):
            AdminClient({**anonymous, "bootstrap.servers": address}).list_topics(timeout=5)
        shown = one.endpoint.shown()
        assert shown.ready, "a client without a certificate is no fault of the broker's"
        assert not shown.findings
    finally:
        one.stop()


def test_given_a_name_that_leads_elsewhere_when_proved_then_it_counts_where_clients_would_be_led_to(
    kafka: LocalKafka, made: Certificates
) -> None:
    prover = KafkaProver(options_of(made), Policy())
    right, misnamed = (int(kafka.address(1, listener=name).rpartition(":")[2]) for name in (MUTUAL, MISNAMED))
    name = BrokerAddress("localhost", right)

    async def proved(port: int, cluster_id: str) -> str | None:
        resolved = Resolved(socket.AF_INET, ("127.0.0.1", port))
        return await prover.prove(name, resolved, ClusterId(cluster_id))

    async def main(elsewhere: int) -> None:
        assert await proved(right, kafka.cluster_id) is None
        assert "it belongs to cluster" in str(await proved(right, "another"))
        assert "it does not show the name localhost" in str(await proved(misnamed, kafka.cluster_id))
        with pytest.raises(ConnectionRefusedError):
            await proved(elsewhere, kafka.cluster_id)
        assert await proved(right, kafka.cluster_id) is None

    with refused_port() as elsewhere:
        asyncio.run(main(int(elsewhere.rpartition(":")[2])))
