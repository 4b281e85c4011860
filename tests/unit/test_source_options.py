"""Every wrong option is one line that names option, value, limit and remedy."""

import pickle
from pathlib import Path

import pytest

from discovery.core.errors import ConfigError
from discovery.core.model import Isolation
from spark_jobs.source.durations import parse_duration
from spark_jobs.source.offsets import EARLIEST, LATEST
from spark_jobs.source.options import SourceOptions, parse_options
from spark_jobs.source.plan import OnParked
from tests.fakes.feed import tp

REQUIRED = {"kafka.bootstrap.servers": "b1:9092,b2:9092"}


def parsed(**options: str) -> SourceOptions:
    return parse_options({**REQUIRED, "subscribe": "t", **options})


def refusal(options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as error:
        parse_options(options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_given_the_least_when_parsed_then_the_defaults_are_the_native_ones() -> None:
    options = parsed()
    assert (options.stream_start, options.batch_start, options.batch_end) == (LATEST, EARLIEST, LATEST)
    assert (options.fail_on_data_loss, options.include_headers) == (True, False)
    assert (options.max_offsets_per_trigger, options.min_partitions) == (None, None)
    assert options.on_parked is OnParked.CONTINUE
    assert options.startup_timeout_seconds == 600
    assert options.interest.isolation is Isolation.READ_UNCOMMITTED
    assert [str(address) for address in options.bootstrap] == ["b1:9092", "b2:9092"]


def test_given_sparks_lowered_names_when_parsed_then_they_mean_the_same() -> None:
    options = parsed(
        startingoffsets="earliest", maxoffsetspertrigger="9", onparked="HOLD", statedir="/x", startuptimeout="5s"
    )
    assert (options.starting, options.max_offsets_per_trigger, options.on_parked) == (EARLIEST, 9, OnParked.HOLD)
    assert (options.state_dir, options.startup_timeout_seconds) == (Path("/x"), 5.0)


def test_given_options_with_a_password_when_pickled_and_shown_then_they_travel_and_do_not_tell() -> None:
    options = parsed(**{
        "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "u", "kafka.sasl.password": "geheim",
    })  # fmt: skip
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 - Spark pickles it
    assert "geheim" not in repr(options)


def test_given_assign_and_json_offsets_when_they_agree_then_each_partition_has_its_start() -> None:
    options = parse_options({**REQUIRED, "assign": '{"t":[1,0]}', "startingOffsets": '{"t":{"0":5,"1":-2}}'})
    assert options.interest.assigned == (tp(0), tp(1))
    assert options.starting == {tp(0): 5, tp(1): EARLIEST}


T = {**REQUIRED, "subscribe": "t"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "t"}, 'kafka.bootstrap.servers: required; list the brokers as "host:port,host:port"'),
        ({"kafka.bootstrap.servers": "b1", "subscribe": "t"}, "kafka.bootstrap.servers: 'b1' is not an address"),
        (REQUIRED, "exactly one of subscribe, subscribePattern and assign is needed, found none of them"),
        ({**T, "assign": '{"t":[0]}'}, "is needed, found subscribe and assign"),
        ({**T, "startingOffset": "latest"}, "startingOffset: unknown option; did you mean startingOffsets?"),
        (
            {**T, "startingOffsets": "newest"},
            "startingOffsets: 'newest' is neither earliest, latest, committed nor JSON",
        ),
        ({**T, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: '0' is not a whole number of 1 or more"),
        ({**T, "minPartitions": "x"}, "minPartitions: 'x' is not a whole number of 1 or more"),
        ({**T, "includeHeaders": "yes"}, "includeHeaders: 'yes' is not one of true, false"),
        ({**T, "onParked": "wait"}, "onParked: 'wait' is not one of continue, hold"),
        ({**T, "startupTimeout": "10"}, "startupTimeout: '10' is not a duration above zero"),
        ({**T, "fetchEngine": "fast"}, "fetchEngine: 'fast' is not one of auto, native, python"),
        ({**T, "fetchMaxMemory": "much"}, "fetchMaxMemory: 'much' is not a size; write a whole number with a unit"),
        ({**T, "fetchMaxMemory": "64 x"}, "fetchMaxMemory: '64 x' is not a size"),
        ({**T, "fetchMaxMemory": "1m"}, "fetchMaxMemory: '1m' is outside 8m to 4g"),
        ({**T, "fetchMaxMemory": "5g"}, "fetchMaxMemory: '5g' is outside 8m to 4g"),
        ({**T, "minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger: this option of the native source is not supported"),
        ({**T, "sourceId": " "}, "sourceId: empty"),
        ({**REQUIRED, "subscribe": " , "}, "subscribe: no topic named"),
        ({**REQUIRED, "subscribePattern": "("}, "subscribePattern: '(' is not a regular expression"),
        ({**REQUIRED, "assign": "t-0"}, "assign: 't-0' does not name partitions"),
        ({**REQUIRED, "assign": '{"t":[true]}'}, "assign: '{\"t\":[true]}' does not name partitions"),
        (
            {**REQUIRED, "assign": '{"t":[0]}', "startingOffsets": '{"t":{"1":5}}'},
            "must name exactly the partitions that are read; not named: t-0; named but not there: t-1",
        ),
        ({**T, "kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit"),
        ({**T, "kafka.acks.x": "true"}, "kafka.acks.x: unknown client option; did you mean"),
    ],
)
def test_given_a_mistake_when_parsed_then_one_line_names_it(options: dict[str, str], text: str) -> None:
    assert text in refusal(options)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("10m", 600), ("2 minutes", 120), ("500ms", 0.5), ("1h", 3600), ("1 day", 86400), ("3 MIN", 180)],
)
def test_given_a_duration_as_spark_writes_it_when_parsed_then_it_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text, option="x") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "0s", "1.5s", "10 parsecs"])
def test_given_no_duration_when_parsed_then_it_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match='write a number with a unit, like "10s"'):
        parse_duration(text, option="x")


@pytest.mark.parametrize("text", ["localhost:9463", "http://", "http://h:1/path", "http://user@h:1", "ftp://h", "h t"])
def test_given_a_service_address_that_is_none_when_parsed_then_the_error_shows_one(text: str) -> None:
    with pytest.raises(ConfigError, match="write http:"):
        parse_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "discoveryUrl": text})


def test_given_a_service_when_parsed_then_its_address_cluster_and_token_are_kept() -> None:
    given = {"discoveryUrl": "http://h:1/", "discoveryCluster": "main", "discoveryTokenFile": "/run/token"}
    options = parse_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **given})
    assert (options.discovery_url, options.discovery_cluster) == ("http://h:1", "main")
    assert str(options.discovery_token_file) == "/run/token"
