"""Every wrong option of the sink is one line that names option, value and remedy."""

from collections.abc import Mapping

import pytest

from discovery.core.errors import ConfigError
from discovery.spark.sink.columns import check_columns
from discovery.spark.sink.lanes import OnMismatch
from discovery.spark.sink.options import SinkOptions, parse_options

GOOD = {"kafka.bootstrap.servers": "b1:9092", "sinkId": "orders-eu", "topic": "orders"}


def parsed(*, batch: bool = False, **more: str) -> SinkOptions:
    return parse_options({**GOOD, **{name.replace("_", "."): value for name, value in more.items()}}, batch=batch)


def test_given_the_least_options_when_parsed_then_the_defaults_hold() -> None:
    options = parsed()
    assert (options.lanes, options.on_mismatch, options.topic) == (1, OnMismatch.FAIL, "orders")
    assert (options.transaction_timeout_seconds, options.marker_topic) == (120.0, "__spark_sink_ledger")
    assert (options.group, options.control_group) == ("__spark_sink.orders-eu", "__spark_sink.orders-eu.ctl")
    assert options.transactional_id(2) == "orders-eu-2"


def test_given_names_in_lower_case_when_parsed_then_they_are_known_as_spark_lowers_them() -> None:
    options = parse_options({name.lower(): value for name, value in GOOD.items()} | {"onmismatch": "REWRITE"})
    assert (options.sink_id, options.on_mismatch) == ("orders-eu", OnMismatch.REWRITE)


def test_given_what_spark_adds_when_parsed_then_it_is_passed_over() -> None:
    parsed(checkpointLocation="/c", queryName="q", path="p", asyncProgressTrackingEnabled="false")


def test_given_a_batch_write_when_parsed_then_each_write_is_a_sink_of_its_own() -> None:
    assert parsed(batch=True, writeId="2026-01-01").sink_id == "orders-eu.write.2026-01-01"
    options = {name: value for name, value in GOOD.items() if name != "sinkId"}
    assert parse_options({**options, "writeId": "w"}, batch=True).sink_id == "batch.write.w"


def test_given_producer_options_of_the_jvm_when_parsed_then_librdkafka_gets_its_own_names() -> None:
    options = parse_options({
        **GOOD, "kafka.compression.type": "lz4", "kafka.linger.ms": "20", "kafka.acks": "all",
        "kafka.buffer.memory": "33554432", "kafka.retries": "3", "kafka.max.block.ms": "60000",
        "kafka.max.request.size": "2000000", "kafka.security.protocol": "ssl",
    })  # fmt: skip
    assert options.producer == {
        "compression.type": "lz4", "linger.ms": "20", "acks": "all", "queue.buffering.max.kbytes": "32768",
        "message.max.bytes": "2000000",
    }  # fmt: skip
    assert options.client.librdkafka["security.protocol"] == "SSL"


def test_given_dead_letters_when_parsed_then_their_topic_is_kept() -> None:
    assert parsed(onBadRecord="dead-letter", deadLetterTopic="bad").dead_letter_topic == "bad"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sinkId": "a b"}, "sinkId: 'a b': use letters, digits"),
        ({"sinkId": ""}, "sinkId: empty; give it a value"),
        ({"sinkId": "orders.ctl"}, "sinkId: 'orders.ctl' names the control group of another sink"),
        ({"lanes": "0"}, "lanes: '0' is not a whole number of 1 to 128"),
        ({"lanes": "129"}, "lanes: '129' is not a whole number of 1 to 128"),
        ({"lanes": "two"}, "lanes: 'two' is not a whole number"),
        ({"stateDir": "hdfs://h/s"}, "stateDir: hdfs://h/s is no path of this machine; name a local or mounted one"),
        ({"onMismatch": "maybe"}, "onMismatch: 'maybe' is not one of fail, keep-committed, rewrite"),
        ({"onBadRecord": "drop"}, "onBadRecord: 'drop' is not one of fail, dead-letter"),
        ({"onBadRecord": "dead-letter"}, "deadLetterTopic: required with onBadRecord=dead-letter"),
        ({"deadLetterTopic": "x"}, "deadLetterTopic: it has no effect with onBadRecord=fail"),
        ({"transactionTimeout": "5s"}, "transactionTimeout: '5s' is not within 10s..15m"),
        ({"transactionTimeout": "16m"}, "transactionTimeout: '16m' is not within 10s..15m"),
        ({"transactionTimeout": "soon"}, "transactionTimeout: 'soon' is not a duration above zero"),
        ({"topic": "a/b"}, "topic: 'a/b' is not a topic name"),
        ({"writeId": "w"}, "writeId: only batch writes have one"),
        ({"asyncProgressTrackingEnabled": "true"}, "asyncProgressTrackingEnabled: 'true' replays several batches"),
        ({"sinkid2": "x"}, "sinkid2: unknown option of the sink; did you mean sinkId"),
        ({"discoveryUrl": "localhost"}, "discoveryUrl: 'localhost' is no address of a service"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id is not supported: the sink makes it"),
        (
            {"kafka.transaction.timeout.ms": "1"},
            "kafka.transaction.timeout.ms is not supported: set transactionTimeout",
        ),
        ({"kafka.acks": "1"}, "kafka.acks: '1' may lose records"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence: 'false'; transactions need it"),
        ({"kafka.buffer.memory": "1k"}, "kafka.buffer.memory: '1k' is not a number of bytes"),
        ({"kafka.linger": "1"}, "kafka.linger: unknown client option"),
        ({"kafka.bootstrap.servers": "nowhere"}, "kafka.bootstrap.servers"),
    ],
)
def test_given_a_wrong_option_when_parsed_then_one_line_names_it(more: Mapping[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({**GOOD, **more})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["sinkId", "kafka.bootstrap.servers"])
def test_given_a_missing_option_when_parsed_then_it_is_named(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing}: required"):
        parse_options({name: value for name, value in GOOD.items() if name != missing})


def test_given_a_batch_write_without_a_name_when_parsed_then_it_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="writeId: required"):
        parsed(batch=True)


def test_given_a_write_id_that_ends_as_a_control_group_when_parsed_then_it_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"writeId: 'w\.ctl' names the control group of another sink"):
        parsed(batch=True, writeId="w.ctl")


@pytest.mark.parametrize(
    ("columns", "has_topic", "lanes", "said"),
    [
        ({"key": "binary"}, True, 1, "value: the column is missing"),
        ({"value": "bigint"}, True, 1, "value: the column is bigint, it must be binary or string"),
        ({"value": "string", "partition": "string"}, True, 1, "partition: the column is string, it must be int"),
        ({"value": "string", "headers": "map<string,string>"}, True, 1, "headers: the column is map<string,string>"),
        ({"value": "string"}, False, 1, "topic: set the option, or select a column"),
        ({"value": "string"}, True, 2, "lanes: 2 lanes need with_lanes"),
    ],
)
def test_given_a_frame_that_cannot_be_written_when_checked_then_the_column_is_named(
    columns: Mapping[str, str], *, has_topic: bool, lanes: int, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_columns(columns, has_topic=has_topic, lanes=lanes)
    assert str(caught.value).startswith(said)


def test_given_every_column_when_checked_then_it_is_accepted() -> None:
    headers = "array<struct<key:string,value:binary>>"
    columns = {"key": "string", "value": "binary", "topic": "string", "partition": "int", "headers": headers}
    check_columns({**columns, "__lane": "int", "offset": "bigint"}, has_topic=False, lanes=3)
