"""The demo whose jobs follow a service: as exact as the other, and they really followed it."""

from pathlib import Path

import pytest

from tests.support.demo import assert_survived, run

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1500)]


def test_given_the_fast_demo_with_a_service_when_played_then_it_is_exact_and_both_jobs_followed_it(
    tmp_path: Path,
) -> None:
    played = run("--fast", "--sidecar", "--output-dir", str(tmp_path))
    assert_survived(tmp_path, played)
    assert "Both jobs followed the service, and " in played.stdout
