"""What a job says of its batches, without Spark."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from discovery.spark.jobs.progress_log import ProgressLog


def _finished(batch_id: int, *dropped: int) -> Any:
    progress = {
        "batchId": batch_id,
        "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
        "stateOperators": [{"numRowsDroppedByWatermark": one} for one in dropped],
    }
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress)))


def test_given_groups_behind_the_watermark_when_a_batch_ends_then_the_job_says_how_many_under_its_own_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "progress.jsonl"
    log = ProgressLog("ip_visits", path)
    log.onQueryProgress(_finished(3, 0))
    assert capsys.readouterr().err == ""
    log.onQueryProgress(_finished(4, 1, 0))
    log.onQueryProgress(_finished(5, 2, 3))
    first, second = capsys.readouterr().err.splitlines()
    late = "of rows later than the watermark 2026-01-01T00:00:00.000Z; raise --allowed-lateness if they matter"
    assert first == f"ip_visits: batch 4 dropped 1 group {late}"
    assert second == f"ip_visits: batch 5 dropped 5 groups {late}"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["batchId"], line["dropped_by_watermark"]) for line in lines] == [(3, 0), (4, 1), (5, 6)]
