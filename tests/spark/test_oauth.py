"""A query whose logins are tokens with a short life: they are renewed, and an issuer's absence is waited out."""

import time

import pytest

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.progress.reports import read_reports
from discovery.store.locations import default_state_dir
from tests.spark.conftest import ReadStream
from tests.support.helpers import eventually, numbered, produce
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
        before, expired_at = issuer.granted, issuer.valid_until
        eventually(lambda: time.time() > expired_at and issuer.granted > before, 30, "renewed tokens")
        produce(cluster.bootstrap_servers, TOPIC, *numbered(10, prefix="renewed"))
        query.wait_rows(20)
        with silenced(issuer):
            eventually(lambda: "failsafe" in _states(), 30, "brokers that let nobody in")
            produce(cluster.bootstrap_servers, TOPIC, *numbered(10, prefix="silent"))
        query.wait_rows(30, 120)
        assert sorted(set(query.values())) == query.values()
        query.query.stop()


def _states() -> set[str]:
    return {report.state for report in read_reports(default_state_dir()) if report.source == TOPIC}
