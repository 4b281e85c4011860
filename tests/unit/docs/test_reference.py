from dataclasses import replace
from pathlib import Path

from discovery.spark.source.options.parse import parse_options
from docs.generate import client_options as client_reference
from docs.generate import metrics as metrics_reference
from docs.generate import sink_options as sink_reference
from docs.generate.source_options import ROWS, page
from tests.support.names import existing_tests

ROOT = Path(__file__).parents[3]


def test_given_the_options_in_the_code_when_the_page_is_made_then_the_committed_one_is_the_same() -> None:
    assert (ROOT / "docs/reference/options.md").read_text() == page()


def test_given_the_client_options_in_the_code_when_the_page_is_made_then_the_committed_one_is_the_same() -> None:
    assert (ROOT / client_reference.PAGE).read_text() == client_reference.page()


def test_given_the_metrics_in_the_code_when_the_page_is_made_then_the_committed_one_is_the_same() -> None:
    assert (ROOT / metrics_reference.PAGE).read_text() == metrics_reference.page()


def test_given_the_options_of_the_sink_when_the_page_is_made_then_the_committed_one_is_the_same() -> None:
    assert (ROOT / "docs/reference/sink-options.md").read_text() == sink_reference.page()


def test_given_each_option_of_the_sink_when_its_tests_are_looked_up_then_they_exist() -> None:
    named = [test for row in sink_reference.ROWS for test in row.tested_by]
    assert all(row.tested_by for row in sink_reference.ROWS)
    assert [test for test in named if test not in existing_tests()] == []


def test_given_each_default_in_the_page_when_written_out_then_it_means_the_same_as_leaving_it_out() -> None:
    least = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t"}
    texts = {
        "startingOffsets",
        "failOnDataLoss",
        "includeHeaders",
        "groupIdPrefix",
        "onParked",
        "startupTimeout",
        "fetchEngine",
        "fetchMaxMemory",
    }
    spelled = {row.name: row.default for row in ROWS if row.name in texts}
    assert len(spelled) == len(texts)
    written, left_out = parse_options(least | spelled), parse_options(least)
    assert written.stream_start == left_out.stream_start
    assert replace(written, starting=None) == left_out


def test_given_each_row_when_its_tests_are_looked_up_then_there_are_some_and_they_exist() -> None:
    named = [(row.name, test) for row in ROWS for test in row.tested_by]
    assert {name for name, _ in named} == {row.name for row in ROWS}
    assert [test for _, test in named if test not in existing_tests()] == []
