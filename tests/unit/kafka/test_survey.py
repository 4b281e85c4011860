"""What the survey asks, whom, and what it doubts: on brokers in memory."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from discovery.core.answers import MetadataAnswer
from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import BrokerAddress, BrokerId, ClusterId, TopicName, Verdict
from discovery.core.prediction.removal import RemovalFacts, Safety, judge
from discovery.kafka.survey import survey
from tests.support.fakes.cluster import FakeCluster, FakeNetwork
from tests.support.fakes.gateway import FakeGateway, FakeGatewayFactory, FakeVetter


def cluster_of(brokers: int = 4, network: FakeNetwork | None = None, **more: Any) -> FakeCluster:
    """Make a cluster with one topic that broker 4 has no part in."""
    cluster = FakeCluster(network or FakeNetwork(), brokers=3, **more)
    cluster.create_topic("t", 3)
    for broker in range(4, brokers + 1):
        cluster.add_broker(broker)
    return cluster


def at(host: str) -> BrokerAddress:
    return BrokerAddress(host, 9092)


def ask(cluster: FakeCluster, *leaving: int, contacts: Sequence[BrokerAddress] = (), **more: Any) -> RemovalFacts:
    """Survey through all brokers, or some contacts; no client's list is missing."""
    tools = {"make": FakeGatewayFactory(cluster.network), "vetter": FakeVetter(cluster.network)}
    more = {**tools, "timeout_seconds": 60.0, **more}
    gone = [BrokerId(one) for one in leaving]
    facts = survey(contacts=contacts or tuple(cluster.addresses.values()), leaving=gone, **more)
    return replace(facts, clients_known=True)


def verdict(facts: RemovalFacts, *leaving: int) -> Safety:
    return judge(facts, [BrokerId(one) for one in leaving]).safety


def test_given_a_sound_cluster_when_surveyed_then_nothing_is_doubted_and_two_brokers_were_asked() -> None:
    cluster = cluster_of()
    factory = FakeGatewayFactory(cluster.network)
    facts = ask(cluster, 4, contacts=[cluster.addresses[1]], make=factory)
    assert facts.doubts == ()
    assert [len(gateway.bootstrap) for gateway in factory.made] == [1, 1]
    assert len({gateway.bootstrap for gateway in factory.made}) == 2
    assert facts.alive == {address: broker for broker, address in cluster.addresses.items()}
    assert verdict(facts, 4) is Safety.SAFE


@dataclass(frozen=True, slots=True)
class Wandering:
    """Clients that ask broker 1, whatever address they began with."""

    network: FakeNetwork
    home: BrokerAddress

    def __call__(self, bootstrap: Sequence[BrokerAddress]) -> FakeGateway:
        del bootstrap
        return FakeGateway(self.network, (self.home,))


def test_given_clients_that_all_ask_the_same_broker_when_surveyed_then_nobody_has_confirmed() -> None:
    cluster = cluster_of()
    facts = ask(cluster, 4, make=Wandering(cluster.network, cluster.addresses[1]))
    assert facts.doubts == ("a second broker was to confirm what the first one answered, and none did.",)
    assert verdict(facts, 4) is Safety.UNKNOWN


def test_given_one_broker_that_fails_when_two_others_answer_alike_then_nothing_is_doubted() -> None:
    cluster = cluster_of()
    failed: list[BrokerAddress] = []

    def make(bootstrap: Sequence[BrokerAddress]) -> FakeGateway:
        if bootstrap[0] != cluster.addresses[1]:
            return FakeGateway(cluster.network, tuple(bootstrap))
        failed.append(bootstrap[0])
        return FakeGateway(FakeNetwork(), tuple(bootstrap))

    facts = ask(cluster, 4, make=make)
    assert failed, "the first in order was asked"
    assert facts.doubts == ()
    assert verdict(facts, 4) is Safety.SAFE


def test_given_a_single_broker_when_surveyed_then_no_second_one_has_to_confirm() -> None:
    cluster = FakeCluster(FakeNetwork(), brokers=1)
    assert ask(cluster, 9).doubts == ()


def test_given_a_broker_with_an_old_image_when_surveyed_then_the_two_that_differ_are_a_doubt() -> None:
    cluster = cluster_of()
    cluster.answer_stale(2)
    cluster.add_partitions("t", 4)
    assert ask(cluster, 4).doubts == (
        "two brokers answer differently: the cluster is changing, or one is cut off; ask again.",
    )


def test_given_a_listed_broker_that_is_silent_when_it_stays_then_it_is_a_doubt_and_when_it_leaves_it_is_none() -> None:
    cluster = cluster_of(5)
    cluster.silence(5)
    stays = ask(cluster, 4)
    assert stays.doubts == ("broker 5 is listed by the cluster and did not answer at its address.",)
    assert verdict(stays, 4) is Safety.UNKNOWN
    cluster = cluster_of(4)
    cluster.silence(4)
    assert ask(cluster, 4).doubts == ("broker 4 did not say whether it is also a controller.",)


def test_given_nobody_alive_or_answers_that_fail_when_surveyed_then_everything_is_in_doubt() -> None:
    cluster = cluster_of()

    class Failing(FakeGateway):
        def fetch_metadata(self, topics: Collection[TopicName] | None, *, timeout_seconds: float) -> MetadataAnswer:
            raise GatewayError(FailureKind.TRANSIENT, "nothing")

    failing = ask(cluster, 4, make=lambda bootstrap: Failing(cluster.network, bootstrap))
    assert failing.brokers == ()
    assert failing.doubts[-1] == "no broker answered for all topics."
    for broker in cluster.addresses:
        cluster.silence(broker)
    assert ask(cluster, 4).doubts == ("no broker is known to be alive.",)


def lists(*entries: BrokerAddress) -> Mapping[str, tuple[BrokerAddress, ...]]:
    return {"dau": entries}


def test_given_dead_entries_in_a_list_when_surveyed_then_they_do_not_count_as_living() -> None:
    cluster = cluster_of()
    entries = lists(at("gone1"), at("gone2"), cluster.addresses[4])
    facts = ask(cluster, 4, lists=entries)
    assert facts.dead == {at("gone1"), at("gone2")}
    assert verdict(facts, 4) is Safety.NOT


def test_given_another_name_of_the_broker_that_leaves_when_it_is_listed_alone_then_it_is_not_safe() -> None:
    cluster = cluster_of()
    cluster.network.owners[at("alias")] = (cluster, 4)
    for trusted in ((), (at("alias"),)):
        facts = ask(cluster, 4, lists=lists(at("alias")), trusted=trusted)
        assert facts.alive[at("alias")] == 4
        assert verdict(facts, 4) is Safety.NOT


def test_given_entries_of_strangers_when_surveyed_then_they_are_not_asked_with_our_login_and_stay_unknown() -> None:
    cluster = cluster_of()
    other = FakeCluster(cluster.network, brokers=1, cluster_id="other")
    strange, b4 = other.addresses[1], cluster.addresses[4]
    asked: list[BrokerAddress] = []

    class Watching(FakeVetter):
        def vet(self, addresses: Collection[BrokerAddress], **more: Any) -> None:
            asked.extend(more["full"])
            super().vet(addresses, **more)

    facts = ask(cluster, 4, vetter=Watching(cluster.network), lists=lists(strange, b4))
    assert strange not in asked
    assert strange not in {*facts.alive, *facts.dead}
    assert verdict(facts, 4) is Safety.UNKNOWN
    trusted = ask(cluster, 4, lists=lists(strange, b4), trusted=[strange])
    assert strange in trusted.dead, "it was asked, and belongs to another cluster"
    assert verdict(trusted, 4) is Safety.NOT


def test_given_more_entries_than_are_looked_at_at_once_when_time_is_up_then_the_rest_stay_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("discovery.kafka.survey._AT_ONCE", 5)
    cluster, sizes = cluster_of(), []

    class Counting(FakeVetter):
        def vet(self, addresses: Collection[BrokerAddress], **more: Any) -> None:
            sizes.append(len(addresses))
            super().vet(addresses, **more)

    many = lists(cluster.addresses[4], *(at(f"gone{number}") for number in range(12)))
    facts = ask(cluster, 4, vetter=Counting(cluster.network), lists=many)
    assert (sizes, len(facts.dead)) == ([5, 5, 5, 1], 12)
    late = ask(cluster, 4, lists=many, timeout_seconds=-1.0)
    assert len(late.dead) == 1, "the first look alone, which begins with the contacts"
    assert verdict(late, 4) is Safety.UNKNOWN


def test_given_contacts_of_two_clusters_when_surveyed_then_most_decide_and_a_tie_is_a_doubt() -> None:
    cluster = cluster_of()
    other = FakeCluster(cluster.network, brokers=2, cluster_id="other")
    ours, theirs = list(cluster.addresses.values()), list(other.addresses.values())
    assert ask(cluster, 4, contacts=[*ours, theirs[0]]).doubts == ()
    assert any("two clusters" in doubt for doubt in ask(cluster, 4, contacts=[ours[0], theirs[0]]).doubts)
    pinned = ask(cluster, 4, contacts=[ours[0], *theirs], cluster_id=ClusterId("cluster-a"))
    assert pinned.doubts == ()
    assert set(theirs) == pinned.dead


def test_given_a_removed_broker_that_still_runs_when_it_is_a_contact_then_it_counts_as_no_use() -> None:
    cluster = cluster_of()
    cluster.answer_stale(4)
    cluster.remove(4)
    facts = ask(cluster, 4)
    assert cluster.addresses[4] in facts.dead
    assert facts.doubts == ()


def test_given_a_cluster_that_answers_elsewhere_when_its_metadata_is_asked_for_then_it_is_not_taken() -> None:
    cluster = cluster_of()
    other = FakeCluster(cluster.network, brokers=1, cluster_id="other")
    facts = ask(cluster, 4, make=Wandering(cluster.network, other.addresses[1]))
    assert facts.doubts == ("no broker answered for all topics.",)
    cluster.network.failures[cluster.addresses[3]] = Verdict.AUTH_FAILED
    assert cluster.addresses[3] in ask(cluster, 4).dead


def with_voters(cluster: FakeCluster, answered: Mapping[int, Collection[int]] | GatewayError) -> Safety:
    """Judge broker 4 where brokers answer like this which voters they know."""

    class Answering(FakeGateway):
        def voters(
            self, brokers: Collection[BrokerId], *, timeout_seconds: float
        ) -> Mapping[BrokerId, frozenset[BrokerId]]:
            assert timeout_seconds > 0
            if isinstance(answered, GatewayError):
                raise answered
            return {b: frozenset(map(BrokerId, answered[b])) for b in brokers if b in answered}

    return verdict(ask(cluster, 4, make=lambda bootstrap: Answering(cluster.network, bootstrap)), 4)


@pytest.mark.parametrize(
    ("answered", "safety"),
    [
        ({1: [100], 2: [100], 3: [100], 4: [100]}, Safety.SAFE),
        ({4: []}, Safety.SAFE),
        ({1: [], 2: [], 3: [], 4: [4]}, Safety.NOT),
        ({1: [4, 100]}, Safety.NOT),
        ({1: [], 2: [], 3: []}, Safety.UNKNOWN),
        ({}, Safety.UNKNOWN),
        (GatewayError(FailureKind.AUTH, "configurations may not be described"), Safety.UNKNOWN),
        (GatewayError(FailureKind.BUG, "process.roles: invalid literal"), Safety.UNKNOWN),
    ],
)
def test_given_what_brokers_answer_about_voters_when_judged_then_only_a_known_role_is_safe(
    answered: Mapping[int, Collection[int]] | GatewayError, safety: Safety
) -> None:
    assert with_voters(cluster_of(), answered) is safety
