"""A leader that lives and answers late, beside Spark's own source."""

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.spark.conftest import ReadStream
from tests.support.helpers import numbered, produce
from tests.support.proxy import KafkaProxy
from tests.support.spark.native import BOTH

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
SLOW = 2
DELAY_SECONDS = 1.3


@pytest.mark.timeout(300)
def test_given_a_leader_that_answers_late_when_read_then_its_rows_flow_in_both_sources(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, assignment=[[1], [SLOW]])
    for partition in range(2):
        produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(5), partition=partition)
    with KafkaProxy({number: kafka_cluster.address(number) for number in kafka_cluster.broker_ids}) as proxy:
        proxy.slow[SLOW] = DELAY_SECONDS
        options = {
            "kafka.bootstrap.servers": proxy.bootstrap_servers,
            "subscribe": topic_name,
            "startingOffsets": "earliest",
        }
        readings = [read_stream(options, format=name, checkpoint=name) for name in BOTH]
        for reading in readings:
            reading.wait_rows(10, 120)
        produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(5, prefix="later-"), partition=1)
        for reading in readings:
            reading.wait_rows(15, 120)
            reading.query.stop()
