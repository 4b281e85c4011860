"""The feed alone, on real brokers, under faults: what a planner would see."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator

import pytest

from discovery.config.client.options import map_client_options
from discovery.core.answers import ProbeOutcome
from discovery.core.interest import Interest
from discovery.core.model import (
    BrokerAddress,
    Isolation,
    LoopState,
    TopicName,
    TopicPartition,
    Verdict,
    parse_bootstrap_servers,
)
from discovery.core.policy import Policy
from discovery.feed.base import FeedView
from discovery.feed.embedded import EmbeddedFeed
from discovery.kafka.vetting.vet import LibrdkafkaVetter
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.faults import UNRESOLVABLE, Garbage, accept_and_hang, black_hole, garbage_speaker, refused_port
from tests.support.foreign_broker import ForeignBroker
from tests.support.helpers import eventually, numbered, produce
from tests.support.kafka_fixtures import KafkaFactory

pytestmark = pytest.mark.kafka
SESSION_SECONDS = 6.0
"""The local brokers' session timeout: how long the cluster itself needs to notice a death."""
FollowTopic = Callable[..., EmbeddedFeed]


@pytest.fixture(scope="module")
def _three_brokers() -> Iterator[LocalKafka]:
    with LocalKafka(ClusterSettings(brokers=3)) as cluster:
        yield cluster


@pytest.fixture
def breakable(_three_brokers: LocalKafka) -> Iterator[LocalKafka]:
    """Three brokers to kill and freeze; mended after each test."""
    yield _three_brokers
    _three_brokers.heal()


@pytest.fixture
def follow() -> Iterator[FollowTopic]:
    """Start feeds: `follow("host:port,host:port", topic, state_dir=...)`; all stop with the test."""
    with contextlib.ExitStack() as stack:

        def start(bootstrap_servers: str, topic: str, **details: object) -> EmbeddedFeed:
            feed = EmbeddedFeed(
                bootstrap=_addresses(bootstrap_servers),
                interest=Interest(topics=(TopicName(topic),)),
                **details,  # type: ignore[arg-type]
            )
            stack.callback(feed.stop)
            feed.start()
            return feed

        yield start


def _addresses(text: str) -> tuple[BrokerAddress, ...]:
    return parse_bootstrap_servers(text, option="bootstrap")


def _address(text: str) -> BrokerAddress:
    return _addresses(text)[0]


def _end(view: FeedView, topic: str, partition: int) -> int | None:
    found = view.partitions.get(TopicPartition(TopicName(topic), partition))
    return found.end_offset(Isolation.READ_UNCOMMITTED) if found and found.parked_reason is None else None


def _ends(view: FeedView, topic: str, count: int) -> list[int | None]:
    return [_end(view, topic, partition) for partition in range(count)]


def _wait(feed: EmbeddedFeed, condition: Callable[[FeedView], object], deadline_seconds: float, what: str) -> FeedView:
    eventually(lambda: condition(feed.view()), deadline_seconds, f"{what}; last: {feed.view().sentence}")
    return feed.view()


def test_given_everything_a_list_may_wrongly_hold_when_followed_then_each_is_named_and_the_view_stays_fresh(
    kafka_cluster: LocalKafka, follow: FollowTopic, topic_name: str
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    seen = {Garbage.TLS_ALERT: Verdict.TLS_FAILED, Garbage.CLOSE: Verdict.REFUSED}
    with contextlib.ExitStack() as stack:
        wrong = {stack.enter_context(garbage_speaker(kind)): seen.get(kind, Verdict.NOT_KAFKA) for kind in Garbage}
        wrong[stack.enter_context(garbage_speaker(Garbage.SSH, greets=True))] = Verdict.NOT_KAFKA
        wrong[stack.enter_context(accept_and_hang())] = Verdict.SILENT
        wrong[stack.enter_context(black_hole())] = Verdict.SILENT
        wrong[stack.enter_context(refused_port())] = Verdict.REFUSED
        wrong[UNRESOLVABLE] = Verdict.UNRESOLVABLE
        feed = follow(",".join([*wrong, kafka_cluster.address(1)]), topic_name)
        _wait(feed, lambda v: _end(v, topic_name, 0) == 0, 10, "the end, whatever the others do")
        view = _wait(feed, lambda v: all(v.addresses[_address(a)].verdict for a in wrong), 20, "every verdict")
        assert {address: view.addresses[_address(address)].verdict for address in wrong} == wrong
        produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(7))
        view = _wait(feed, lambda v: _end(v, topic_name, 0) == 7, 10, "the new end")
        assert view.state is LoopState.FRESH
        assert set(view.bootstrap) == set(_addresses(kafka_cluster.bootstrap_servers))


def test_given_a_brokers_address_taken_by_another_cluster_when_followed_then_no_foreign_offset_is_ever_shown(
    breakable: LocalKafka, follow: FollowTopic, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    # A dead address rests up to a minute by default: the verdict on who lives there now would take as long.
    feed = follow(breakable.bootstrap_servers, topic_name, policy=Policy(quarantine_cap_seconds=3))
    _wait(feed, lambda v: _ends(v, topic_name, 3) == [0, 0, 0], 10, "every end")
    taken = _address(breakable.address(2))
    breakable.kill([2])
    shown: set[int | None] = set()
    with ForeignBroker(breakable.address(2)) as other:
        other.create_topic(topic_name, 3)
        produce(other.bootstrap_servers, topic_name, *numbered(300))

        def rejected(view: FeedView) -> bool:
            shown.update(_ends(view, topic_name, 3))
            return view.addresses[taken].verdict is Verdict.FOREIGN_CLUSTER

        _wait(feed, rejected, 30, "the verdict")
        _wait(feed, lambda v: not rejected(v) or _ends(v, topic_name, 3) == [0, 0, 0], 30, "our ends by new leaders")
        assert feed.view().cluster_id == breakable.cluster_id
        assert taken not in feed.view().bootstrap
        assert shown <= {None, 0}


def test_given_no_saved_view_when_started_on_a_dead_list_then_it_stays_cold_and_heals_when_the_broker_returns(
    breakable: LocalKafka, follow: FollowTopic, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=[[2, 3], [3, 2]])
    breakable.kill([1])
    feed = follow(breakable.address(1), topic_name)
    view = _wait(feed, lambda v: v.addresses[_address(breakable.address(1))].verdict, 10, "a verdict")
    assert view.state is LoopState.COLD
    assert view.addresses[_address(breakable.address(1))].verdict is Verdict.REFUSED
    assert view.bootstrap == ()
    breakable.restart([1])
    _wait(feed, lambda v: _ends(v, topic_name, 2) == [0, 0], 10, "every end")


def test_given_sole_leaders_dead_when_followed_then_theirs_are_parked_with_a_reason_and_the_others_keep_their_pace(
    breakable: LocalKafka, follow: FollowTopic, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=[[1], [2], [3]])
    feed = follow(breakable.bootstrap_servers, topic_name)
    _wait(feed, lambda v: _ends(v, topic_name, 3) == [0, 0, 0], 10, "every end")
    breakable.kill([3])
    lost = TopicPartition(TopicName(topic_name), 2)
    _wait(feed, lambda v: v.partitions[lost].parked_reason, 10, "the parking")
    produce(breakable.bootstrap_servers, topic_name, "a", partition=0)
    _wait(feed, lambda v: _ends(v, topic_name, 3) == [1, 0, None], 10, "the others' new ends")
    view = _wait(
        feed,
        lambda v: v.partitions[lost].parked_reason == "it has no leader",
        SESSION_SECONDS + 6,
        "the cluster's own word",
    )
    assert view.partitions[lost].parked_since_wall is not None
    breakable.restart([3])
    _wait(feed, lambda v: _ends(v, topic_name, 3) == [1, 0, 0], 10, "the return")


def test_given_all_brokers_frozen_when_asked_then_the_view_answers_from_memory_and_heals_after_the_thaw(
    breakable: LocalKafka, follow: FollowTopic, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=[[1, 2], [2, 3], [3, 1]])
    feed = follow(breakable.bootstrap_servers, topic_name)
    _wait(feed, lambda v: _ends(v, topic_name, 3) == [0, 0, 0], 10, "every end")
    breakable.pause(breakable.broker_ids)
    _wait(feed, lambda v: all(p.parked_reason for p in v.partitions.values()), 10, "the parking of all")
    began = time.monotonic()
    for _ in range(1000):
        view = feed.view()
    assert time.monotonic() - began < 5, "asked of the brokers each would cost its whole timeout"
    assert len(view.partitions) == 3
    assert set(view.bootstrap) == set(_addresses(breakable.bootstrap_servers))
    breakable.resume(breakable.broker_ids)
    _wait(feed, lambda v: _ends(v, topic_name, 3) == [0, 0, 0], 20, "the return of all")


def test_given_a_killed_leader_when_followed_then_the_new_one_is_known_soon_after_the_cluster_chose_it(
    breakable: LocalKafka, follow: FollowTopic, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=[[1, 2], [2, 3], [3, 1]])
    feed = follow(breakable.bootstrap_servers, topic_name)
    _wait(feed, lambda v: _ends(v, topic_name, 3) == [0, 0, 0], 10, "every end")
    moved = TopicPartition(TopicName(topic_name), 0)
    breakable.kill([1])
    _wait(feed, lambda v: _end(v, topic_name, 0) is None, 3, "the parking")
    view = _wait(feed, lambda v: _end(v, topic_name, 0) == 0, SESSION_SECONDS + 6, "the new leader")
    assert view.partitions[moved].leader_id == 2


def test_given_added_partitions_and_a_recreated_topic_when_followed_then_both_are_seen(
    kafka_cluster: LocalKafka, follow: FollowTopic, topic_name: str
) -> None:
    kafka_cluster.create_topic(topic_name, 2)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(5), partition=1)
    feed = follow(kafka_cluster.bootstrap_servers, topic_name)
    _wait(feed, lambda v: _ends(v, topic_name, 2) == [0, 5], 10, "every end")
    kafka_cluster.add_partitions(topic_name, 4)
    _wait(feed, lambda v: _ends(v, topic_name, 4) == [0, 5, 0, 0], 3, "the new partitions")
    some = TopicPartition(TopicName(topic_name), 0)
    before = _wait(feed, lambda v: v.partitions[some].topic_id, 10, "the topic id").partitions[some].topic_id
    kafka_cluster.delete_topic(topic_name)
    kafka_cluster.create_topic(topic_name, 2)
    view = _wait(feed, lambda v: _ends(v, topic_name, 3) == [0, 0, None], 15, "the new topic's ends")
    # The new topic's offsets are never shown under the old one's name: a planner would take them for the old ones.
    assert view.partitions[some].topic_id not in {None, before}
    assert {tp.partition for tp in view.partitions} == {0, 1}


def test_given_wrong_credentials_when_followed_then_the_verdict_says_so_and_the_broker_is_not_hammered(
    kafka_factory: KafkaFactory, follow: FollowTopic, topic_name: str
) -> None:
    cluster = kafka_factory(brokers=1, sasl_users={"spark": "right-secret"})
    cluster.create_topic(topic_name, 1)

    def options(password: str) -> dict[str, str]:
        return {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="spark" password="{password}";',
        }

    wrong, right = map_client_options(options("wrong-secret")), map_client_options(options("right-secret"))
    counting = _CountingVetter(LibrdkafkaVetter(wrong, Policy()))
    refused = follow(cluster.bootstrap_servers, topic_name, client_options=wrong, vetter=counting)
    address = _address(cluster.address(1))
    view = _wait(refused, lambda v: v.addresses[address].verdict, 10, "a verdict")
    assert view.addresses[address].verdict is Verdict.AUTH_FAILED
    assert "wrong-secret" not in repr(view)
    # With the right password beside it, the same address is fine.
    admitted = follow(cluster.bootstrap_servers, topic_name, client_options=right)
    _wait(admitted, lambda v: _end(v, topic_name, 0) == 0, 10, "the end")
    eventually(lambda: time.monotonic() - counting.first_at > 6, 10)
    assert counting.asked == 1
    assert refused.view().addresses[address].verdict is Verdict.AUTH_FAILED


class _CountingVetter:
    """The real vetter; counts how often an address had to prove itself."""

    def __init__(self, real: LibrdkafkaVetter) -> None:
        self._real = real
        self.asked = 0
        self.first_at = float("inf")

    def vet(
        self,
        addresses: Collection[BrokerAddress],
        *,
        connect_timeout_seconds: float,
        request_timeout_seconds: float,
        full: Collection[BrokerAddress] = (),
        on_outcome: Callable[[ProbeOutcome], None],
    ) -> None:
        self.asked += len(full)
        self.first_at = min(self.first_at, time.monotonic())
        self._real.vet(
            addresses,
            connect_timeout_seconds=connect_timeout_seconds,
            request_timeout_seconds=request_timeout_seconds,
            full=full,
            on_outcome=on_outcome,
        )
