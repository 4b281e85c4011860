"""A short scene of `make chaos` and `make soak-joint`: all together, and that the judge finds what is broken."""

from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.chaos.joint.rounds import Stage
from tests.chaos.joint.scene import Scene
from tests.chaos.joint.soak import sample

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.timeout(900)
def test_given_dead_brokers_a_damaged_service_and_new_partitions_when_healed_then_all_holds_and_a_second_copy_is_seen(
    breakable: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    plan = (("kill brokers", 1), ("damage the service's state", 2), ("add partitions", 3))
    with Scene(tmp_path, cluster=breakable, name=topic_name[-30:], executors=0) as scene:
        stage = Stage(scene)
        assert stage.play(plan)["broken"] == ""
        measured = sample(scene)
        assert [title for title, value in measured.items() if not value] == ["executors, JVM: memory, MiB"]
        assert stage.finish() == ""
        scene.account.seen[next(iter(scene.account.due))] += 1
        assert "1 records came twice" in str(stage.play(())["broken"])
