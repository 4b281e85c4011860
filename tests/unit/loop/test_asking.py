"""One leader's answer for readers of both isolations."""

from discovery.core.interest import Interest
from discovery.core.model import BrokerId, TopicName, TopicPartition, parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.core.questions import AskOffsets
from discovery.loop.asking import ask_offsets
from tests.support.fakes.cluster import FakeCluster, FakeNetwork
from tests.support.fakes.gateway import FakeGateway


def test_given_an_open_transaction_when_both_ends_are_wanted_then_each_isolation_has_its_own() -> None:
    cluster = FakeCluster(FakeNetwork())
    cluster.create_topic("t", 2)
    tp = TopicPartition(TopicName("t"), 0)
    cluster.append("t", 0, 9)
    cluster.partition(tp).stable = 4
    gateway = FakeGateway(cluster.network, parse_bootstrap_servers("cluster-a-b1:9092"))
    for both, expected in ((True, (9, 4)), (False, (9, None))):
        isolations = Interest(topics=(TopicName("t"),), both_ends=both).isolations
        ask = AskOffsets(leader_id=BrokerId(1), partitions=(tp,), isolations=isolations, with_start=True)
        seen = ask_offsets(gateway, ask, Policy(), cluster.network.clock).offsets[tp]
        assert (seen.high_watermark, seen.last_stable_offset) == expected
        assert seen.start_offset == 0


def test_given_some_partitions_or_all_not_reported_when_asked_then_the_reason_claims_no_more_than_that_can_mean() -> (
    None
):
    cluster = FakeCluster(FakeNetwork())
    cluster.create_topic("t", 1)
    gateway = FakeGateway(cluster.network, parse_bootstrap_servers("cluster-a-b1:9092"))
    here, elsewhere = (TopicPartition(TopicName("t"), number) for number in (0, 1))
    said = {
        asked: ask_offsets(
            gateway,
            AskOffsets(leader_id=BrokerId(1), partitions=asked, isolations=Interest(topics=(here.topic,)).isolations),
            Policy(),
            cluster.network.clock,
        ).detail
        for asked in ((here,), (here, elsewhere), (elsewhere,))
    }
    at_once = "its connection ended, or it does not lead it now"
    assert list(said.values()) == ["", at_once, at_once]
