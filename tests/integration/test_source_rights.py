"""A login that lacks a right hears in one line what to allow; no right on the cluster is needed."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType  # type: ignore[attr-defined]

from discovery.core.errors import DiscoveryError, KafkaUnreachableError
from discovery.core.model import TopicName, TopicPartition
from discovery.kafka.groups import committed_offsets
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import PLAIN_LOGIN, ClusterSettings
from discovery.spark.source.batch import KafkaDiscoveryReader
from discovery.spark.source.options.parse import parse_options
from tests.support.acls import AUTHORIZER, PREFIXED, rule
from tests.support.helpers import eventually, numbered, produce

pytestmark = pytest.mark.kafka
USER, PASSWORD = "bob", "secret"
TENANTS, OF_EACH = ("mine", "theirs"), 150
READ, DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE
LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{PLAIN_LOGIN} required username="{USER}" password="{PASSWORD}";',
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    """One broker that checks permissions, with two topics of ten records."""
    settings = ClusterSettings(
        brokers=1, sasl_users={USER: PASSWORD}, extra_properties=AUTHORIZER, controller_properties=AUTHORIZER
    )
    with LocalKafka(settings) as made:
        for topic in ("seen-1", "hidden-1"):
            made.create_topic(topic, 2)
            produce(made.bootstrap_servers, topic, *numbered(10, prefix=topic), options=made.client_options)
        yield made


def read(cluster: LocalKafka, **options: str) -> list[str]:
    """Read as a batch, as Spark would; returns the values."""
    given = {**LOGIN, "kafka.bootstrap.servers": cluster.bootstrap_servers, "startupTimeout": "5s", **options}
    reader = KafkaDiscoveryReader(parse_options(given))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(value.decode() for batch in batches for value in batch.column("value").to_pylist())


def test_given_a_login_without_rights_when_they_are_granted_one_by_one_then_each_that_is_missing_is_named(
    cluster: LocalKafka,
) -> None:
    with pytest.raises(KafkaUnreachableError, match=r"topic seen-1: .* authorization failed; allow DESCRIBE") as unseen:
        read(cluster, subscribe="seen-1")
    rule(cluster, USER, ResourceType.TOPIC, "seen-1", DESCRIBE)
    heard: list[str] = [str(unseen.value)]

    def refused() -> bool:
        try:
            read(cluster, subscribe="seen-1")
        except DiscoveryError as error:
            heard.append(str(error))
        return "grant this user READ on the topic" in heard[-1]

    eventually(refused, 60, "the refusal for want of READ")
    assert all("\n" not in text and PASSWORD not in text for text in heard), heard
    rule(cluster, USER, ResourceType.TOPIC, "seen-1", READ)
    wanted = sorted(numbered(10, prefix="seen-1"))
    eventually(lambda: granted(cluster, subscribe="seen-1") == wanted, 60, "the rows of the topic")
    assert read(cluster, subscribePattern=".*-1") == wanted, "a pattern reads what the login may see"


def granted(cluster: LocalKafka, **options: str) -> list[str]:
    """Read; nothing as long as brokers do not know the grant."""
    try:
        return read(cluster, **options)
    except DiscoveryError:
        return []


def test_given_hundreds_of_topics_half_of_them_hidden_when_a_pattern_matches_all_then_the_visible_ones_flow(
    cluster: LocalKafka,
) -> None:
    names = {tenant: [f"{tenant}.{number}" for number in range(OF_EACH)] for tenant in TENANTS}
    admin = AdminClient({**cluster.client_options, "bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for made in admin.create_topics([NewTopic(n, 1, 1) for some in names.values() for n in some]).values():
        made.result(60)
    for topic in ("mine.0", f"mine.{OF_EACH - 1}", "theirs.0"):
        produce(cluster.bootstrap_servers, topic, topic, options=cluster.client_options)
    rule(cluster, USER, ResourceType.TOPIC, "mine.", READ, DESCRIBE, pattern=PREFIXED)
    wanted = ["mine.0", f"mine.{OF_EACH - 1}"]
    pattern = r"(mine|theirs)\..*"
    eventually(lambda: granted(cluster, subscribePattern=pattern) == wanted, 60, "the rows of the visible topics")


def test_given_a_topic_that_the_login_may_not_see_when_a_groups_offsets_are_asked_for_then_it_does_not_count_as_none(
    cluster: LocalKafka,
) -> None:
    rule(cluster, USER, ResourceType.GROUP, "readers", READ, DESCRIBE)
    cluster.create_topic("of-readers", 1)  # its own: the other tests begin without rights on theirs
    rule(cluster, USER, ResourceType.TOPIC, "of-readers", READ, DESCRIBE)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login |= {"sasl.username": USER, "sasl.password": PASSWORD, "bootstrap.servers": cluster.bootstrap_servers}

    def asked(*topics: str) -> str:
        partitions = [TopicPartition(TopicName(topic), 0) for topic in topics]
        try:
            return str(committed_offsets(login, "readers", partitions, timeout_seconds=10))
        except KafkaException as error:
            return str(error)

    eventually(lambda: asked("of-readers") == "{}", 60, "the grants to be known")
    assert "Topic authorization failed" in asked("of-readers", "hidden-1")
