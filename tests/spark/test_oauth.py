"""A query whose logins are tokens with a short life: they are renewed, and an issuer's absence is waited out."""

import time

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.spark.conftest import ReadStream
from tests.support.helpers import numbered, produce
from tests.support.oidc import TOKENS, issuing, settings_with_tokens, silenced, token_login

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
LIFE_SECONDS = 4
TOPIC = "orders"


def test_given_an_issuer_that_falls_silent_when_it_is_back_then_the_query_has_gone_on(read_stream: ReadStream) -> None:
    with issuing() as issuer, LocalKafka(settings_with_tokens(issuer)) as cluster:
        issuer.life_seconds = LIFE_SECONDS
        cluster.create_topic(TOPIC, 2)
        produce(cluster.bootstrap_servers, TOPIC, *numbered(10))
        options = {**token_login(issuer.url), "kafka.bootstrap.servers": cluster.bootstrap_servers_of(TOKENS)}
        query = read_stream({**options, "subscribe": TOPIC, "startingOffsets": "earliest"})
        query.wait_rows(10)
        before = issuer.granted
        time.sleep(2 * LIFE_SECONDS)
        produce(cluster.bootstrap_servers, TOPIC, *numbered(10, prefix="renewed"))
        query.wait_rows(20)
        assert issuer.granted > before
        with silenced(issuer):
            time.sleep(2 * LIFE_SECONDS)
            produce(cluster.bootstrap_servers, TOPIC, *numbered(10, prefix="silent"))
            time.sleep(LIFE_SECONDS)
        query.wait_rows(30, 120)
        assert sorted(set(query.values())) == query.values()
        query.query.stop()
