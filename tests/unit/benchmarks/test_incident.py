"""The story is told with published figures, and says nothing that they do not."""

import json
from pathlib import Path

from benchmarks.incident import PAGE, page, section

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks/results"


def test_given_the_published_runs_when_the_story_is_told_then_the_committed_page_is_the_same() -> None:
    result = json.loads((RESULTS / "incident.json").read_text())
    assert (ROOT / PAGE).read_text() == page(result)
    assert section(result) in (ROOT / "benchmarks/README.md").read_text()


def test_given_the_published_runs_when_the_story_is_told_then_its_sentences_hold() -> None:
    incident = json.loads((RESULTS / "rescue.json").read_text())["incident"]
    assert incident["survived_kill_and_freeze"] == {"run": True, "without": True}, "both outlived the kill"
    assert incident["back_after_seconds"]["without"] is None, "the one without never came back"
    native = json.loads((RESULTS / "stall.json").read_text())["rf1_native"]
    assert min(native["gap_seconds"]["values"]) > 10, "it had not ended when watching did"
