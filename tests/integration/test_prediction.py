"""A few of the situations of `make chaos-predict`: what the doctor predicts is what real clients do."""

import pytest

from discovery.core.prediction.clients import ClientKind
from discovery.core.prediction.forecast import FailureMode
from discovery.localkafka.cluster import LocalKafka
from tests.chaos.prediction.play import TOPIC, can_compile, play
from tests.chaos.prediction.scenarios import Scenario

pytestmark = pytest.mark.kafka
TIMES = {
    "default.api.timeout.ms": "6000",
    "request.timeout.ms": "3000",
    "socket.connection.setup.timeout.ms": "2000",
}
SCENARIOS = tuple(
    Scenario(name=f"s{number}", version="3.9", kind=kind, living=living, dead=dead, properties=TIMES)
    for number, (kind, living, dead) in enumerate(
        (
            (ClientKind.ADMIN, 3, {FailureMode.REFUSED: 6, FailureMode.BLACK_HOLE: 1}),
            (ClientKind.CONSUMER, 1, {FailureMode.SILENT: 1, FailureMode.UNRESOLVABLE: 2}),
            (ClientKind.ADMIN, 0, {FailureMode.BLACK_HOLE: 2, FailureMode.REFUSED: 1}),
            (ClientKind.ADMIN, 2, {FailureMode.BLACK_HOLE: 8}),
        )
    )
)


def test_given_drawn_situations_when_predicted_and_played_then_every_outcome_is_as_predicted(
    kafka_cluster: LocalKafka,
) -> None:
    if not can_compile():
        pytest.skip("the Java here has no compiler; with a JDK real clients are started")
    kafka_cluster.create_topic(TOPIC, 1, replication_factor=3)
    judged = play(SCENARIOS, kafka_cluster, sure=3, unsure=24)
    assert [one for one in judged if not one.outcome_right] == []
    assert {one.predicted_failure for one in judged} >= {0.0, 1.0}
    assert any(0 < one.predicted_failure < 1 for one in judged)
