"""The command line of the DAU job: every mistake is one line with option, value and remedy."""

from pathlib import Path

import pytest

from discovery.core.errors import ConfigError
from discovery.spark.jobs.dau_options import parse_arguments


def arguments(tmp_path: Path, *more: str) -> list[str]:
    needed = ["--bootstrap-servers", "b1:9092,b2:9092", "--topic", "events", "--checkpoint", str(tmp_path / "ck")]
    return [*needed, "--output", f"sqlite:///{tmp_path}/dau.db", *more]


def test_given_the_needed_options_when_parsed_then_the_defaults_are_the_exact_ones(tmp_path: Path) -> None:
    options = parse_arguments(arguments(tmp_path))
    assert options.output == tmp_path / "dau.db"
    assert (options.clock.allowed_lateness_seconds, options.clock.skew_seconds) == (86_400, 300)
    assert options.time_zone == "UTC"
    assert options.trigger_interval_seconds == 1
    assert options.on_parked == "continue"
    assert options.source_format == "kafka-discovery"


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("10 seconds", 10), ("2 min", 120), ("1 Day", 86_400), ("0s", 0)]
)
def test_given_a_duration_when_parsed_then_its_unit_counts(tmp_path: Path, text: str, seconds: float) -> None:
    assert parse_arguments(arguments(tmp_path, "--trigger-interval", text)).trigger_interval_seconds == seconds


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--bootstrap-servers", "nonsense"], "--bootstrap-servers: 'nonsense'"),
        (["--topic", "a topic"], "--topic: 'a topic'"),
        (["--output", "postgres://x"], "--output: 'postgres://x'"),
        (["--output", "sqlite:////no/such/folder/x.db"], "--output: the folder /no/such/folder"),
        (["--trigger-interval", "soon"], "--trigger-interval: 'soon'"),
        (["--allowed-lateness", "-1 day"], "--allowed-lateness"),
        (["--max-offsets-per-trigger", "0"], "--max-offsets-per-trigger: '0'"),
        (["--available-now", "--trigger-interval", "1s"], "--available-now"),
        (["--on-parked", "maybe"], "--on-parked"),
        (["--clock-skew", "-1s"], "--clock-skew"),
        (["--time-zone", "Mars/Olympus"], "--time-zone: 'Mars/Olympus'"),
        (["--conf", "novalue"], "--conf: 'novalue'"),
        (["--create-topics"], "--create-topics: it has no effect without --output kafka"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_given_a_mistake_when_parsed_then_one_line_names_it(tmp_path: Path, more: list[str], named: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_arguments(arguments(tmp_path, *more))
    assert named in str(raised.value)
    assert "\n" not in str(raised.value)


def test_given_a_file_as_checkpoint_when_parsed_then_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ck").touch()
    with pytest.raises(ConfigError, match="is a file"):
        parse_arguments(arguments(tmp_path))
