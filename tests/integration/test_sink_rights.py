"""A login that lacks a right: the sink names what to grant, before the first record where brokers tell it so early."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from discovery.core.errors import ConfigError, DiscoveryError
from discovery.core.interest import SINK_LEDGER_TOPIC
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import PLAIN_LOGIN, ClusterSettings
from discovery.spark.sink.ledger import SinkLedger
from discovery.spark.sink.writer import Outcome
from tests.support.acls import AUTHORIZER, PREFIXED, rule
from tests.support.helpers import eventually
from tests.support.sink import Sink

pytestmark = pytest.mark.kafka
USER, PASSWORD, TOPIC = "alice", "secret", "orders"
READ, WRITE, DESCRIBE, CREATE = (
    AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    """One broker that checks permissions."""
    settings = ClusterSettings(
        brokers=1, sasl_users={USER: PASSWORD}, extra_properties=AUTHORIZER, controller_properties=AUTHORIZER
    )
    with LocalKafka(settings) as made:
        made.create_topic(TOPIC, partitions=1, replication_factor=1)
        yield made


def refused_until_named(sink: Sink, said: str) -> None:
    """Wait until brokers know the last grant and refuse for want of the next one."""
    heard: list[str] = []

    def named() -> bool:
        try:
            sink.write(0, ["a"])
        except DiscoveryError as error:
            heard.append(str(error))
        return bool(heard) and said in heard[-1]

    try:
        eventually(named, 60)
    except AssertionError:
        raise AssertionError(f"not refused with {said!r}, but: {heard[-1:]}") from None
    assert "\n" not in heard[-1]
    assert PASSWORD not in heard[-1]


def test_given_a_login_when_a_right_is_missing_then_it_is_named_and_the_listed_rights_are_enough(
    cluster: LocalKafka, tmp_path: Path
) -> None:
    login = f'{PLAIN_LOGIN} required username="{USER}" password="{PASSWORD}";'
    more = {
        "startupTimeout": "20s",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": login,
    }
    sink = Sink(cluster, tmp_path, sink_id="orders-eu", topic=TOPIC, more=more)
    with pytest.raises(ConfigError, match=f"topic {TOPIC}: .*; allow WRITE and DESCRIBE on it"):
        sink.plan()
    rule(cluster, USER, ResourceType.TOPIC, TOPIC, DESCRIBE)
    refused_until_named(sink, f"topic: this login may not write to topic {TOPIC}; allow WRITE on it")
    rule(cluster, USER, ResourceType.TOPIC, TOPIC, WRITE)
    refused_until_named(sink, f"topic {SINK_LEDGER_TOPIC}: Broker: Topic authorization failed; allow READ")
    rule(cluster, USER, ResourceType.TOPIC, SINK_LEDGER_TOPIC, READ, DESCRIBE, CREATE)
    refused_until_named(sink, f"markerTopic: this login may not write to topic {SINK_LEDGER_TOPIC}; allow READ, WRITE")
    rule(cluster, USER, ResourceType.TOPIC, SINK_LEDGER_TOPIC, WRITE)
    refused_until_named(sink, "sinkId: the brokers refuse transactional id 'orders-eu-preflight'; allow WRITE and DES")
    rule(cluster, USER, ResourceType.TRANSACTIONAL_ID, "orders-eu", WRITE, DESCRIBE, pattern=PREFIXED)
    refused_until_named(sink, "allow READ and DESCRIBE on groups that begin with __spark_sink.")
    rule(cluster, USER, ResourceType.GROUP, "__spark_sink.", READ, DESCRIBE, pattern=PREFIXED)
    eventually(lambda: written(sink), 60, "a batch with the rights that are listed")
    # From now on there are markers to read: a second sink reads their topic at its first start.
    second = Sink(cluster, tmp_path, sink_id="orders-eu-2", topic=TOPIC, more=more)
    assert second.write(0, ["b"]).outcome is Outcome.WRITTEN
    assert SinkLedger(second.plan()).recorded(timeout_seconds=60).keys() == {0}


def written(sink: Sink) -> bool:
    try:
        return sink.write(0, ["a"]).outcome in {Outcome.WRITTEN, Outcome.KEPT}
    except DiscoveryError:
        return False
