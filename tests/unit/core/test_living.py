"""Who lives, and which broker it is, from probes."""

from typing import Any

from discovery.core.answers import ProbeOutcome
from discovery.core.model import Broker, BrokerAddress, BrokerId, ClusterId, Verdict
from discovery.core.prediction.living import living

HOME = ClusterId("home")


def at(host: str) -> BrokerAddress:
    return BrokerAddress(host, 9092)


def listing(*numbers: int) -> tuple[Broker, ...]:
    return tuple(Broker(broker_id=BrokerId(n), address=at(f"b{n}")) for n in numbers)


def probed(host: str, ip: str | None = None, **more: Any) -> ProbeOutcome:
    answer = {"cluster_id": HOME, "brokers": listing(1, 2, 4), **more}
    return ProbeOutcome(address=at(host), endpoint=(ip, 9092) if ip else None, **answer)


def accepted(host: str, ip: str | None) -> ProbeOutcome:
    return probed(host, ip, tcp_only=True, cluster_id=None, brokers=())


def test_given_brokers_and_other_names_when_probed_then_each_has_the_broker_that_answers_there() -> None:
    outcomes = [
        probed("b1", "10.0.0.1"),
        probed("b4", "10.0.0.4"),
        probed("alias", "10.0.0.4"),
        probed("balancer", "9"),
    ]
    alive, dead = living([*outcomes, accepted("other", "10.0.0.1")], HOME)
    assert alive == {at("b1"): 1, at("b4"): 4, at("alias"): 4, at("balancer"): None, at("other"): 1}
    assert not dead


def test_given_brokers_behind_one_router_when_other_names_answer_there_then_no_broker_is_known_for_them() -> None:
    router = [probed(host, "10.0.0.9") for host in ("b1", "b4", "alias")]
    alive, dead = living([*router, accepted("strange", "10.0.0.9")], HOME)
    assert alive == {at("b1"): 1, at("b4"): 4, at("alias"): None}
    assert not dead


def test_given_one_that_only_accepted_when_no_broker_is_known_there_then_it_is_in_neither() -> None:
    outcomes = [probed("b1"), accepted("strange", "10.0.0.7"), accepted("not asked", None)]
    assert living(outcomes, HOME) == ({at("b1"): 1}, frozenset())


def test_given_silence_another_cluster_or_no_brokers_when_probed_then_they_are_no_use() -> None:
    silent = probed("b2", failure=Verdict.SILENT, cluster_id=None, brokers=())
    foreign, empty = probed("b4", "10.0.0.4", cluster_id=ClusterId("other")), probed("empty", brokers=())
    alive, dead = living([probed("b1"), silent, foreign, empty], HOME)
    assert (alive, dead) == ({at("b1"): 1}, frozenset(map(at, ("b2", "b4", "empty"))))


def test_given_one_that_names_itself_when_no_peer_lists_it_then_it_was_removed() -> None:
    left = [probed("b1", brokers=listing(1, 2)), probed("b2", brokers=listing(1, 2))]
    alive, dead = living([*left, probed("b4")], HOME)
    assert (alive, dead) == ({at("b1"): 1, at("b2"): 2}, frozenset({at("b4")}))
    assert living([probed("b4")], HOME)[0] == {at("b4"): 4}, "nobody contradicts it"
