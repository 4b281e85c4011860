"""A short plan of `make chaos-service`, and that its judge finds what is broken."""

import shutil
from pathlib import Path

import pytest

from tests.chaos.seeds import BrokenPromiseError
from tests.chaos.service.rounds import Scene, play
from tests.chaos.service.soak import BROKERS
from tests.support.fakes.mock_cluster import MockCluster


def test_given_a_damaged_view_and_a_kill_in_silence_when_played_then_every_promise_holds() -> None:
    assert play((("damage", 5), ("orphan", 1), ("kill in silence", 3))) == ""


def test_given_a_service_that_forgot_when_it_is_killed_then_the_judge_says_so(tmp_path: Path) -> None:
    with MockCluster(BROKERS) as kafka:
        scene = Scene(kafka, tmp_path)
        try:
            scene.begin()
            shutil.rmtree(tmp_path / "state")
            with pytest.raises(BrokenPromiseError, match=r"generation 0 after|was not served after a kill"):
                scene.play("kill in silence", 1)
        finally:
            scene.service.end()
