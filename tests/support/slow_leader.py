"""A leader that lives and answers late, behind a proxy that delays each of its answers."""

from discovery.core.interest import Interest
from discovery.core.model import Isolation, TopicName, TopicPartition, parse_bootstrap_servers
from discovery.feed.embedded import EmbeddedFeed
from discovery.localkafka.cluster import LocalKafka
from tests.support.helpers import eventually, numbered, produce
from tests.support.proxy import KafkaProxy

SLOW = 2


def follow_a_slow_leader(three_brokers: LocalKafka, topic_name: str, delay_seconds: float) -> None:
    """Write behind a proxy that delays each answer of one leader; fail where its ends stay unknown or it is parked."""
    three_brokers.create_topic(topic_name, assignment=[[1], [SLOW], [3]])
    slow, quick = (TopicPartition(TopicName(topic_name), partition) for partition in (1, 2))
    addresses = {number: three_brokers.address(number) for number in three_brokers.broker_ids}
    with KafkaProxy(addresses) as proxy:
        feed = EmbeddedFeed(
            bootstrap=parse_bootstrap_servers(proxy.bootstrap_servers),
            interest=Interest(topics=(TopicName(topic_name),)),
        )

        def end(tp: TopicPartition) -> int | None:
            found = feed.view().partitions.get(tp)
            return found.end_offset(Isolation.READ_UNCOMMITTED) if found and found.parked_reason is None else None

        try:
            feed.start()
            eventually(lambda: end(slow) == 0 and end(quick) == 0, 20, "every end")
            proxy.slow[SLOW] = delay_seconds
            for partition in (1, 2):
                produce(three_brokers.bootstrap_servers, topic_name, *numbered(7), partition=partition)
            eventually(lambda: end(quick) == 7, 5, "the end of a healthy leader")
            # A connection of its own: its first answer, metadata, ends and starts, one after another.
            eventually(lambda: end(slow) == 7, 10 + 6 * delay_seconds, "the end of the slow leader")
            produce(three_brokers.bootstrap_servers, topic_name, *numbered(5), partition=1)
            parked: set[str] = set()

            def grown() -> bool:
                parked.update(filter(None, [feed.view().partitions[slow].parked_reason]))
                return end(slow) == 12

            eventually(grown, 10 + 4 * delay_seconds, "the next end of the slow leader")
            assert not parked, "a leader that is known to be slow is given its time"
            proxy.slow.clear()
            produce(three_brokers.bootstrap_servers, topic_name, "a", partition=1)
            eventually(lambda: end(slow) == 13, 10 + 2 * delay_seconds, "the end, quick again")
        finally:
            feed.stop()
