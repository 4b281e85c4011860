"""The command lines of the jobs that write to Kafka: defaults, and one line for each mistake."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from discovery.core.errors import ConfigError
from discovery.spark.jobs import dau_options
from discovery.spark.jobs.dau_options import KafkaOutput
from spark_jobs import copy_topic as copy
from spark_jobs import ip_visits

COMMON = ["--bootstrap-servers", "b1:9092", "--topic", "in", "--output-topic", "out", "--checkpoint", "/ck"]


def test_given_the_least_arguments_when_read_then_the_defaults_hold() -> None:
    options = ip_visits.parse_arguments(COMMON)
    clock = options.clock
    assert (options.window_seconds, clock.allowed_lateness_seconds, clock.skew_seconds) == (60.0, 3_600.0, 300.0)
    assert options.dead_letter_topic == "out"
    assert options.job.sink == {"kafka.bootstrap.servers": "b1:9092", "sinkId": "ip-visits", "lanes": "1"}
    assert options.job.source["startingOffsets"] == "earliest"
    assert copy.parse_arguments(COMMON).job.sink_id == "copy"


def test_given_expressions_when_read_then_they_may_hold_equals_signs() -> None:
    options = copy.parse_arguments([*COMMON, "--header", "eu=text like '%a=b%'", "--where", "key = 'x'"])
    assert options.add == (("eu", "text like '%a=b%'"),)
    assert options.where == "key = 'x'"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--lanes", "0"], "--lanes: '0' is not a whole number above 0"),
        (["--output-topic", "in"], "--output-topic: 'in' is what is read"),
        (["--topic", "a/b"], "--topic: 'a/b' is not a topic name"),
        (["--sink-option", "lanes"], "--sink-option: 'lanes' has no name or no value"),
        (["--available-now", "--trigger-interval", "1s"], "--available-now ends when all is read"),
        (["--trigger-interval", "soon"], "--trigger-interval: 'soon' is not a duration"),
        (["--bootstrap-servers", "nowhere"], "--bootstrap-servers"),
        (["--unknown"], "unrecognized arguments: --unknown; see --help"),
    ],
)
def test_given_a_wrong_argument_when_read_then_one_line_names_it(more: Sequence[str], said: str) -> None:
    for parse in (copy.parse_arguments, ip_visits.parse_arguments):
        with pytest.raises(ConfigError) as caught:
            parse([*COMMON, *more])
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--header", "=x"], "--header: '=x' has no name or no expression"),
        (["--fail-after", "no"], "--fail-after: 'no' is not a whole number above 0"),
    ],
)
def test_given_a_wrong_argument_of_the_copy_when_read_then_one_line_names_it(more: Sequence[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        copy.parse_arguments([*COMMON, *more])
    assert str(caught.value).startswith(said)


def test_given_a_window_below_a_second_when_read_then_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="--window: '10ms' is shorter than a second"):
        ip_visits.parse_arguments([*COMMON, "--window", "10ms"])


DAU = ["--bootstrap-servers", "b1:9092", "--topic", "in", "--checkpoint", "/ck"]


def test_given_kafka_as_output_when_read_then_topics_sink_and_lanes_are_kept() -> None:
    arguments = [*DAU, "--output", "kafka", "--output-topic", "dau", "--lanes", "2", "--sink-option", "markerTopic=m"]
    assert dau_options.parse_arguments(arguments).output == KafkaOutput(
        topic="dau", dead_letter_topic="dau", lanes=2, sink_options=(("markerTopic", "m"),)
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--output", "kafka"], "--output-topic: required with --output kafka"),
        (["--output", "kafka", "--output-topic", "a b"], "--output-topic: 'a b' is not a topic name"),
        (["--output", "sqlite:///FOLDER/dau.db", "--lanes", "2"], "--lanes: it has no effect without --output kafka"),
    ],
)
def test_given_a_wrong_output_when_read_then_one_line_names_it(tmp_path: Path, more: Sequence[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        dau_options.parse_arguments([*DAU, *(text.replace("/FOLDER", str(tmp_path)) for text in more)])
    assert str(caught.value).startswith(said)
