"""Every wrong option is one line that names option, value, limit and remedy."""

import json
import pickle
from pathlib import Path

import pytest

from discovery.config.client.options import map_client_options
from discovery.config.durations import duration_option
from discovery.config.service_files import SERVICE_FILES
from discovery.core.errors import ConfigError, StateError
from discovery.core.model import BrokerAddress, Isolation
from discovery.kafka.settings import client_properties
from discovery.spark.fetch.consumers import CachedConsumer
from discovery.spark.source import shared
from discovery.spark.source.feeds import embedded_feed
from discovery.spark.source.options.parse import (
    KNOWN,
    WITHOUT_EFFECT,
    SourceOptions,
    check_batch,
    check_stream,
    parse_options,
)
from discovery.spark.source.planning.bounds import ByTimestamp, NoneAfter
from discovery.spark.source.planning.offsets import EARLIEST, LATEST
from discovery.spark.source.planning.plan import OnParked
from discovery.spark.source.shared import fetch_settings, say_notes
from tests.support.fakes.feed import tp

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


_EVERY = {
    **dict.fromkeys(WITHOUT_EFFECT, "7"),
    "subscribe": "t", "startingOffsets": "earliest", "startingOffsetsByTimestampStrategy": "latest",
    "startingTimestamp": "5", "startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsetsFallback": "earliest",
    "endingOffsets": "latest", "endingTimestamp": "9", "endingOffsetsByTimestamp": '{"t":{"0":9}}',
    "commitOffsets": "true", "maxOffsetsPerTrigger": "9", "minOffsetsPerTrigger": "3", "maxTriggerDelay": "5s",
    "minPartitions": "3", "maxRecordsPerPartition": "5", "failOnDataLoss": "false", "onTopicRecreated": "restart",
    "bootstrapServersFile": "/list", "includeHeaders": "true", "onParked": "hold", "parkAfter": "2s",
    "startupTimeout": "5s",
    "stateDir": "/state", "sourceId": "dau", "clusterId": "c", "groupIdPrefix": "p", "clientRackVariable": "ZONE",
    "fetchEngine": "python", "fetchMaxMemory": "64m", "cutAfter": "1s", "cutLedger": "kafka",
    "cutLedgerTopic": "cuts", "stallTimeout": "2m", "coordinatorHost": "h", "coordinatorPort": "9",
}  # fmt: skip
"""Every option of ours beside `subscribe`, but those of a service, which a file of addresses excludes."""
_OF_A_SERVICE = {"discoveryUrl", "discoveryCluster", "discoveryMaxAge", *SERVICE_FILES}


class _Asked(Exception):  # noqa: N818 - ends the construction of a client: what it was to get is known
    """Carries the configuration a client was to be built with."""


def _caught(client_options: dict[str, str], *_: object, **__: object) -> None:
    raise _Asked(client_options)


def test_given_every_option_of_ours_when_clients_are_built_then_none_reaches_one() -> None:
    assert set(_EVERY) | _OF_A_SERVICE | {"subscribePattern", "assign"} == set(KNOWN)
    given = {**_EVERY, "kafka.group.id": "g", "kafka.fetch.min.bytes": "7", "kafka.client.id": "mine"}
    options = parse_options({**REQUIRED, **given})
    with pytest.raises(_Asked) as reading:
        CachedConsumer(fetch_settings(options), (BrokerAddress("b1", 9092),), _caught)  # type: ignore[arg-type]
    asking = client_properties(options.client, options.bootstrap, connect_timeout_seconds=1, request_timeout_seconds=1)
    built = {"reading": reading.value.args[0], "asking": asking}
    assert all(properties["client.id"] == "mine" for properties in built.values())
    assert built["reading"]["fetch.min.bytes"] == "7"
    ours = {name.lower() for name in KNOWN}
    for kind, properties in built.items():
        assert not {name for name in properties if name.lower().removeprefix("kafka.") in ours}, kind
        # What librdkafka's own table does not know came from somewhere else than a client's options.
        assert not {name for name in properties if name != name.lower()}, kind
    for name in _EVERY:
        with pytest.raises(ConfigError, match="unknown client option"):
            map_client_options({f"kafka.{name}": "1"})


def test_given_no_compiler_when_a_query_starts_then_the_plain_engine_is_chosen_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert fetch_settings(parsed()).engine == "auto"
    monkeypatch.setattr(shared, "not_installed", lambda: "numba")
    assert fetch_settings(parsed()).engine == "python"
    assert fetch_settings(parsed(fetchEngine="native")).engine == "native"
    with caplog.at_level("WARNING"):
        say_notes(parsed())
        say_notes(parsed(fetchEngine="python"))
    assert len(caplog.records) == 1
    assert "plain engine, several times slower: numba is not installed; pip install" in caplog.text


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
        ({**T, "stateDir": "s3a://b/s"}, "stateDir: s3a://b/s is no path of this machine; name a local or mounted one"),
        ({**T, "onParked": "wait"}, "onParked: 'wait' is not one of continue, hold"),
        ({**T, "startupTimeout": "10"}, "startupTimeout: '10' is not a duration above zero"),
        ({**T, "fetchEngine": "fast"}, "fetchEngine: 'fast' is not one of auto, native, python"),
        (
            {**T, "clientRackVariable": "ZONE", "kafka.client.rack": "r"},
            "clientRackVariable: kafka.client.rack says the rack of all workers; remove one of the two",
        ),
        ({**T, "fetchMaxMemory": "much"}, "fetchMaxMemory: 'much' is not a size; write a whole number with a unit"),
        ({**T, "fetchMaxMemory": "64 x"}, "fetchMaxMemory: '64 x' is not a size"),
        ({**T, "fetchMaxMemory": "1m"}, "fetchMaxMemory: '1m' is outside 8m to 4g"),
        ({**T, "fetchMaxMemory": "5g"}, "fetchMaxMemory: '5g' is outside 8m to 4g"),
        ({**T, "minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger: '0' is not a whole number of 1 or more"),
        (
            {**T, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "minOffsetsPerTrigger: 5 is more than maxOffsetsPerTrigger=4 allows; lower the one or raise the other",
        ),
        ({**T, "maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is not a duration above zero"),
        ({**T, "maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition: '-1' is not a whole number of 1 or more"),
        ({**T, "startingTimestamp": "noon"}, "startingTimestamp: 'noon' is not a time; write milliseconds since 1970"),
        ({**T, "endingTimestamp": "-1"}, "endingTimestamp: '-1' is not a time"),
        (
            {**T, "startingOffsetsByTimestamp": '{"t":{"0":-1}}'},
            "startingOffsetsByTimestamp: topic t, partition 0: -1 is not a time in milliseconds",
        ),
        (
            {**T, "startingOffsetsByTimestamp": '{"t":{"0":1}'},
            "startingOffsetsByTimestamp: not valid JSON at character 12: Expecting ',' delimiter",
        ),
        ({**T, "startingOffsetsByTimestampStrategy": "skip"}, "Strategy: 'skip' is not one of error, latest"),
        (
            {**REQUIRED, "assign": '{"t":[0]}', "startingOffsetsByTimestamp": '{"t":{"1":5}}'},
            "startingOffsetsByTimestamp: the JSON must name exactly the partitions that are read; not named: t-0",
        ),
        ({**T, "endingOffsets": "newest"}, "endingOffsets: 'newest' is neither earliest, latest nor JSON"),
        ({**T, "sourceId": " "}, "sourceId: empty"),
        ({**T, "parkAfter": "soon"}, "parkAfter: 'soon' is not a duration above zero"),
        ({**T, "parkAfter": "99ms"}, "parkAfter: '99ms' is outside 100ms to 4s; write a duration between them"),
        ({**T, "parkAfter": "5s"}, "parkAfter: '5s' is outside 100ms to 4s; write a duration between them"),
        ({**T, "cutAfter": "2s"}, "cutAfter: it has no effect without sourceId; name this source, or leave it out"),
        ({**T, "sourceId": "s", "cutAfter": "soon"}, "cutAfter: 'soon' is not a duration above zero"),
        ({**T, "sourceId": "s", "cutLedger": "disk"}, "cutLedger: 'disk' is not one of file, kafka"),
        ({**T, "sourceId": "s", "cutLedgerTopic": "x"}, "cutLedgerTopic: it has no effect with cutLedger=file"),
        ({**T, "sourceId": "s", "cutLedger": "kafka", "cutLedgerTopic": "a b"}, "cutLedgerTopic: 'a b' is not a topic"),
        ({**T, "sourceId": "s", "coordinatorHost": "a/b"}, "coordinatorHost: 'a/b' is not a host"),
        ({**T, "sourceId": "s", "coordinatorPort": "0"}, "coordinatorPort: '0' is not a port (1..65535)"),
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


def test_given_three_starts_when_parsed_then_the_strongest_wins_and_the_others_are_reported_and_not_even_read() -> None:
    options = parsed(startingTimestamp="5", startingOffsetsByTimestamp="nonsense", startingOffsets="nonsense")
    assert options.stream_start == ByTimestamp(option="startingTimestamp", milliseconds=5, none_after=NoneAfter.ERROR)
    assert options.notes == (
        "startingOffsetsByTimestamp has no effect: startingTimestamp is given too and goes first",
        "startingOffsets has no effect: startingTimestamp is given too and goes first",
    )


def test_given_options_without_effect_when_parsed_then_each_is_reported() -> None:
    options = parsed(**{
        "startingOffsetsByTimestampStrategy": "latest", "maxTriggerDelay": "500",
        "groupIdPrefix": "a", "kafka.group.id": "b",
    })  # fmt: skip
    assert options.max_trigger_delay_seconds == 0.5
    assert [note.partition(" has no effect")[0] for note in options.notes] == [
        "startingOffsetsByTimestampStrategy", "maxTriggerDelay", "groupIdPrefix",
    ]  # fmt: skip


def test_given_options_that_tune_asking_again_when_parsed_then_they_are_reported_to_have_no_effect() -> None:
    options = parsed(**dict.fromkeys(WITHOUT_EFFECT, "7"))
    assert len(options.notes) == len(WITHOUT_EFFECT) == 4
    assert all("has no effect here: " in note for note in options.notes)


@pytest.mark.parametrize("ending", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_given_an_end_when_a_stream_is_asked_for_then_it_is_refused_with_the_way_to_do_it(ending: str) -> None:
    options = parsed(**{ending: '{"t":{"0":5}}' if "By" in ending else "5" if "stamp" in ending else "latest"})
    with pytest.raises(ConfigError, match=f"{ending}: a stream has no end; remove it, and use Trigger.AvailableNow"):
        check_stream(options)


def per(*numbers: int) -> str:
    return json.dumps({"t": {str(partition): number for partition, number in enumerate(numbers)}})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets: latest is no start of a batch read"),
        ({"startingOffsets": per(3, -1)}, "nothing would be read of t-1 (-1)"),
        ({"endingOffsets": "earliest"}, "endingOffsets: earliest is no end of a batch read"),
        ({"endingOffsets": per(-2, 5)}, "nothing would be read of t-0 (-2)"),
        ({"startingOffsets": per(3, 4), "endingOffsets": per(3)}, "must name the same partitions; only one names t-1"),
        ({"startingOffsets": per(3, 4), "endingOffsets": per(-1, 3)}, "t-1 begins at 4, behind its end 3 in"),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "startingTimestamp: 9 is behind the end 8"),
        (
            {"startingOffsetsByTimestamp": per(9), "endingOffsetsByTimestamp": per(8)},
            "startingOffsetsByTimestamp: t-0 begins at 9, behind its end 8 in endingOffsetsByTimestamp",
        ),
    ],
)  # fmt: skip
def test_given_ends_that_cannot_be_when_a_batch_is_asked_for_then_one_line_names_them(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError) as error:
        check_batch(parsed(**options))
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("1.5s", 1.5),
        ("10m", 600),
        ("2 minutes", 120),
        ("500ms", 0.5),
        ("1h", 3600),
        ("1 day", 86400),
        ("3 MIN", 180),
    ],
)
def test_given_a_duration_as_spark_writes_it_when_parsed_then_it_is_seconds(text: str, seconds: float) -> None:
    assert duration_option(text, option="x") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "0s", "10 parsecs"])
def test_given_no_duration_when_parsed_then_it_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match='write a number with a unit, like "10s"'):
        duration_option(text, option="x")


@pytest.mark.parametrize("text", ["localhost:9463", "http://", "http://h:1/path", "http://user@h:1", "ftp://h", "h t"])
def test_given_a_service_address_that_is_none_when_parsed_then_the_error_shows_one(text: str) -> None:
    with pytest.raises(ConfigError, match="write http:"):
        parse_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "discoveryUrl": text})


def test_given_a_service_when_parsed_then_its_address_cluster_and_token_are_kept() -> None:
    given = {"discoveryUrl": "http://h:1/", "discoveryCluster": "main", "discoveryTokenFile": "/run/token"}
    given |= {"discoveryCaFile": "/ca", "discoveryCertificateFile": "/crt", "discoveryKeyFile": "/key"}
    given |= {"discoveryMaxAge": "1 minute"}
    options = parse_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **given})
    assert (options.discovery_url, options.discovery_cluster) == ("http://h:1", "main")
    files = options.discovery_files
    assert [str(path) for path in (files.token, files.ca, files.certificate, files.key)] == [
        "/run/token", "/ca", "/crt", "/key",
    ]  # fmt: skip
    assert options.discovery_max_age_seconds == 60


def test_given_client_timeouts_when_a_loop_is_made_then_it_waits_as_long_for_an_answer() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "kafka.request.timeout.ms": "9000"}
    feed = embedded_feed(parse_options({**given, "kafka.default.api.timeout.ms": "90000"}))
    assert feed._policy.offsets_deadline_seconds == 90.0  # type: ignore[attr-defined]
    assert feed._policy.request_timeout_seconds == 9.0  # type: ignore[attr-defined]
    assert feed._policy.connect_timeout_seconds == 2.0  # type: ignore[attr-defined]


@pytest.mark.parametrize(("given", "seconds"), [({}, 1.0), ({"parkAfter": "100ms"}, 0.1), ({"parkAfter": "4s"}, 4.0)])
def test_given_a_limit_of_silence_or_none_when_a_loop_is_made_then_it_parks_after_that(
    given: dict[str, str], seconds: float
) -> None:
    feed = embedded_feed(parse_options({**T, **given}))
    assert feed._policy.leader_silence_seconds == seconds  # type: ignore[attr-defined]


def test_given_a_state_folder_that_cannot_be_written_when_a_named_source_starts_then_one_line_says_so(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "sourceId": "dau"}
    options = parse_options({**given, "stateDir": str(tmp_path / "file/state")})
    with pytest.raises(StateError, match=r"^stateDir: the state cannot be kept: .*; name a folder you may write$"):
        shared.started_feed(embedded_feed, options)
