"""The command lines of the jobs: one set of options, the same defaults, and one line for each mistake."""

import re
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import httpx
import pytest

from discovery.core.errors import ConfigError, KafkaUnreachableError
from discovery.spark.jobs import running
from discovery.spark.jobs.files import JOBS, job_file
from discovery.spark.jobs.folder import FolderOutput
from discovery.spark.jobs.jdbc import JdbcOutput
from discovery.spark.jobs.outputs import KafkaOutput, Output
from discovery.spark.jobs.sqlite import SqliteOutput
from discovery.spark.sink.options import parse_options
from spark_jobs import copy_topic, dau, ip_visits
from tests.support.ports import free_port

NEEDED = ["--bootstrap-servers", "b1:9092,b2:9092", "--topic", "in", "--checkpoint", "/ck"]
TO_KAFKA = [*NEEDED, "--output-topic", "out"]
Parse = Callable[[Sequence[str]], dau.DauOptions | ip_visits.VisitsOptions | copy_topic.CopyOptions]
PARSERS: dict[str, Parse] = {
    "dau": dau.parse_arguments,
    "ip_visits": ip_visits.parse_arguments,
    "copy_topic": copy_topic.parse_arguments,
}
MAINS = {"dau": dau.main, "ip_visits": ip_visits.main, "copy_topic": copy_topic.main}
every_job = pytest.mark.parametrize("name", JOBS)
OWN = {
    "dau": {"--time-zone", "--allowed-lateness", "--clock-skew"},
    "ip_visits": {"--window", "--allowed-lateness", "--clock-skew"},
    "copy_topic": {"--where", "--header", "--fail-after"},
}


@every_job
def test_given_topics_alone_when_read_then_every_job_has_the_same_defaults(name: str) -> None:
    job = PARSERS[name](TO_KAFKA).job
    sink_id = {"dau": "dau", "ip_visits": "ip-visits", "copy_topic": "copy"}[name]
    assert job.output == KafkaOutput(bootstrap_servers="b1:9092,b2:9092", topic="out", sink_id=sink_id)
    assert dict(job.source) == {
        "kafka.bootstrap.servers": "b1:9092,b2:9092",
        "subscribe": "in",
        "startingOffsets": "earliest",
        "onParked": "continue",
    }
    assert (job.trigger_interval_seconds, job.available_now, job.state_dir) == (1.0, False, None)


@every_job
def test_given_help_when_asked_for_then_every_job_has_the_same_options_and_names_the_exit_codes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(job_file(name)))["main"](["--help"])
    said = capsys.readouterr().out
    assert ended.value.code in {0, None}
    assert "0 stopped or all read, 1 the query failed, 2 wrong options, 3 Kafka unreachable" in " ".join(said.split())
    options = {line.split()[0].rstrip(",") for line in said.splitlines() if line.startswith("  --")}
    assert options - OWN[name] == SHARED
    assert OWN[name] <= options


SHARED = {
    "--bootstrap-servers", "--topic", "--checkpoint", "--output", "--output-option", "--output-topic",
    "--dead-letter-topic", "--sink-id", "--lanes", "--sink-option", "--create-topics", "--trigger-interval",
    "--available-now", "--starting-offsets", "--max-offsets-per-trigger", "--on-parked", "--source-id", "--state-dir",
    "--source-option", "--format", "--master", "--conf", "--progress-file", "--metrics",
}  # fmt: skip


@every_job
def test_given_a_wrong_option_when_run_then_every_job_says_so_in_one_line_and_ends_with_2(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert MAINS[name]([*NEEDED, "--output", "nowhere"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"[a-z_-]+: --output: 'nowhere' is not supported; write kafka, sqlite:///FILE, .*", line)


@every_job
def test_given_kafka_is_unreachable_when_its_session_is_made_then_every_job_ends_with_3_and_its_metrics_were_served(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{free_port()}"
    served = []

    def no_session(_: str, **__: object) -> NoReturn:
        served.append(httpx.get(f"http://{address}/metrics", timeout=30, trust_env=False).status_code)
        raise KafkaUnreachableError("no broker answered")

    monkeypatch.setattr(running, "make_session", no_session)
    arguments = ["--bootstrap-servers", "127.0.0.1:1", "--topic", "in", "--checkpoint", "/ck", "--output", "orc:/out"]
    assert MAINS[name]([*arguments, "--metrics", address]) == 3
    assert served == [200]
    assert capsys.readouterr().err.splitlines()[-1].endswith(": no broker answered")


@every_job
@pytest.mark.parametrize(
    ("more", "output"),
    [
        (["--output", "sqlite:////tmp/x.db"], SqliteOutput(path=Path("/tmp/x.db"))),  # noqa: S108 - only named
        (["--output", "parquet:/out"], FolderOutput(format="parquet", path="/out")),
        (["--output", "orc:hdfs://h/out"], FolderOutput(format="orc", path="hdfs://h/out")),
        (["--output", "jdbc:a:b", "--output-option", "user=u"], JdbcOutput(url="jdbc:a:b", options={"user": "u"})),
    ],
)
def test_given_tables_as_output_when_read_then_every_job_has_them(
    name: str, more: Sequence[str], output: Output
) -> None:
    assert PARSERS[name]([*NEEDED, *more]).job.output == output


@every_job
def test_given_a_state_folder_when_read_then_source_and_sink_keep_it_there(name: str, tmp_path: Path) -> None:
    job = PARSERS[name]([*TO_KAFKA, "--state-dir", str(tmp_path), "--sink-option", "markerTopic=m"]).job
    assert job.state_dir == tmp_path
    assert isinstance(job.output, KafkaOutput)
    assert job.output.sink_options == (("stateDir", str(tmp_path)), ("markerTopic", "m"))


@every_job
def test_given_a_topic_of_dead_letters_when_read_then_the_sink_makes_each_letter_fit(name: str) -> None:
    output = PARSERS[name]([*TO_KAFKA, "--dead-letter-topic", "dead"]).job.output
    assert isinstance(output, KafkaOutput)
    assert parse_options(output.sink).dead_letter_topic == "dead"
    without = PARSERS[name](TO_KAFKA).job.output
    assert isinstance(without, KafkaOutput)
    assert parse_options(without.sink).dead_letter_topic is None


def test_given_clocks_windows_and_zones_when_left_out_then_the_defaults_are_the_exact_ones() -> None:
    visits, users = ip_visits.parse_arguments(TO_KAFKA), dau.parse_arguments(TO_KAFKA)
    clock = visits.clock
    assert (visits.window_seconds, clock.allowed_lateness_seconds, clock.skew_seconds) == (60.0, 3_600.0, 300.0)
    assert (users.clock.allowed_lateness_seconds, users.clock.skew_seconds) == (86_400, 300)
    assert users.time_zone == "UTC"


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("10 seconds", 10), ("2 min", 120), ("1 Day", 86_400), ("0s", 0)]
)
def test_given_a_duration_when_read_then_its_unit_counts(text: str, seconds: float) -> None:
    assert dau.parse_arguments([*TO_KAFKA, "--trigger-interval", text]).job.trigger_interval_seconds == seconds


def test_given_expressions_when_read_then_they_may_hold_equals_signs() -> None:
    options = copy_topic.parse_arguments([*TO_KAFKA, "--header", "eu=text like '%a=b%'", "--where", "key = 'x'"])
    assert options.add == (("eu", "text like '%a=b%'"),)
    assert options.where == "key = 'x'"


@every_job
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--lanes", "0"], "--lanes: '0' is not a whole number above 0"),
        (["--output-topic", "in"], "--output-topic: 'in' is what is read"),
        (["--output-topic", "a b"], "--output-topic: 'a b' is not a topic name"),
        (["--topic", "a/b"], "--topic: 'a/b' is not a topic name"),
        (["--sink-option", "lanes"], "--sink-option: 'lanes' has no name or no value"),
        (["--conf", "novalue"], "--conf: 'novalue'"),
        (["--available-now", "--trigger-interval", "1s"], "--available-now ends when all is read"),
        (["--trigger-interval", "soon"], "--trigger-interval: 'soon' is not a duration"),
        (["--max-offsets-per-trigger", "0"], "--max-offsets-per-trigger: '0'"),
        (["--on-parked", "maybe"], "--on-parked"),
        (["--bootstrap-servers", "nowhere"], "--bootstrap-servers: 'nowhere'"),
        (["--output", "parquet:/out"], "--output-topic: it has no effect without --output kafka"),
        (
            ["--state-dir", "s3a://b/s"],
            "--state-dir: s3a://b/s is no path of this machine; name a local or mounted one",
        ),
        (["--progress-file", "s3a://b/p"], "--progress-file: s3a://b/p is no path of this machine"),
        (["--unknown"], "unrecognized arguments: --unknown; see --help"),
    ],
)
def test_given_a_wrong_argument_when_read_then_one_line_names_it(name: str, more: Sequence[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PARSERS[name]([*TO_KAFKA, *more])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@every_job
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "--output-topic: required with --output kafka"),
        (["--output", "postgres://x"], "--output: 'postgres://x' is not supported"),
        (["--output", "sqlite:////no/such/folder/x.db"], "--output: the folder /no/such/folder"),
        (["--output", "orc:/out", "--create-topics"], "--create-topics: it has no effect without --output kafka"),
        (["--output", "orc:/out", "--output-option", "a=b"], "--output-option: it has no effect without"),
    ],
)
def test_given_a_wrong_output_when_read_then_one_line_names_it(name: str, more: Sequence[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PARSERS[name]([*NEEDED, *more])
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("copy_topic", ["--header", "=x"], "--header: '=x' has no name or no expression"),
        ("copy_topic", ["--fail-after", "no"], "--fail-after: 'no' is not a whole number above 0"),
        ("copy_topic", ["--format", "kafka"], "--format: 'kafka' cannot begin where the target ends"),
        ("ip_visits", ["--window", "10ms"], "--window: '10ms' is shorter than a second"),
        ("ip_visits", ["--clock-skew=-1s"], "--clock-skew"),
        ("dau", ["--allowed-lateness=-1 day"], "--allowed-lateness"),
        ("dau", ["--time-zone", "Mars/Olympus"], "--time-zone: 'Mars/Olympus'"),
    ],
)
def test_given_a_wrong_argument_of_one_job_when_read_then_one_line_names_it(
    name: str, more: Sequence[str], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        PARSERS[name]([*TO_KAFKA, *more])
    assert str(caught.value).startswith(said)


@every_job
def test_given_a_checkpoint_in_hdfs_without_its_name_node_when_read_then_it_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="hdfs:///ck names no name node; write hdfs://HOST:PORT/ck, as in"):
        PARSERS[name]([*TO_KAFKA, "--checkpoint", "hdfs:///ck"])
    assert PARSERS[name]([*TO_KAFKA, "--checkpoint", "hdfs://ha/ck"]).job.checkpoint == "hdfs://ha/ck"


def test_given_a_file_as_checkpoint_when_read_then_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ck").touch()
    with pytest.raises(ConfigError, match="is a file"):
        dau.parse_arguments([*TO_KAFKA, "--checkpoint", str(tmp_path / "ck")])
