"""A short scene of `make chaos`: source, service and sink together, and that its judge finds what is broken."""

from pathlib import Path

import pytest

from benchmarks.chaos_joint import Stage
from benchmarks.joint.scene import Scene
from discovery.localkafka.cluster import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_given_brokers_a_service_and_an_executor_killed_when_healed_then_every_promise_holds_and_a_second_copy_is_seen(
    breakable: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    with Scene(tmp_path, cluster=breakable, name=topic_name[-40:]) as scene:
        stage = Stage(scene)
        told = stage.play((("kill brokers", 1), ("kill the service", 2), ("kill an executor", 3)))
        assert told["broken"] == ""
        assert stage.finish() == ""
        scene.account.seen[next(iter(scene.account.due))] += 1
        assert "1 records came twice" in str(stage.play(())["broken"])
