"""The pure parts below the gateway and the vetter."""

import errno
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from discovery.config.client.options import map_client_options
from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import BrokerAddress, Verdict
from discovery.kafka import codes
from discovery.kafka.settings import PROBE_TOPIC, QuietLog, client_properties
from discovery.kafka.translate import failure_kind, gateway_error, is_answer, metadata_answer
from discovery.kafka.vetting.probe import _by_sight
from discovery.kafka.vetting.sniff import Sniffed, _classify
from discovery.kafka.vetting.tcp_check import _worst

TIMED_OUT = KafkaError._TIMED_OUT


def broker(broker_id: int) -> SimpleNamespace:
    return SimpleNamespace(id=broker_id, host=f"b{broker_id}", port=9092)


def partition(index: int, leader: int = 1) -> SimpleNamespace:
    return SimpleNamespace(id=index, leader=leader, replicas=[1, 2], isrs=[1], error=None)


def topic(name: str, *partitions: SimpleNamespace, error: KafkaError | None = None) -> SimpleNamespace:
    return SimpleNamespace(topic=name, error=error, partitions={p.id: p for p in partitions})


def metadata(*topics: SimpleNamespace, brokers: int = 2) -> Any:
    return SimpleNamespace(
        cluster_id="c",
        controller_id=-1,
        orig_broker_id=-1,
        brokers={n: broker(n) for n in range(brokers, 0, -1)},
        topics={t.topic: t for t in topics},
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (TIMED_OUT, FailureKind.TRANSIENT),
        (codes.TRANSPORT, FailureKind.TRANSIENT),
        (KafkaError.LEADER_NOT_AVAILABLE, FailureKind.TRANSIENT),
        (KafkaError._DESTROY_BROKER, FailureKind.TRANSIENT),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, FailureKind.TRANSIENT),
        (codes.LOGIN, FailureKind.AUTH),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, FailureKind.AUTH),
        (codes.SSL, FailureKind.TLS),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, FailureKind.TOPIC_UNKNOWN),
        (KafkaError.TOPIC_EXCEPTION, FailureKind.TOPIC_UNKNOWN),
        (KafkaError._INVALID_ARG, FailureKind.BUG),
    ],
)
def test_given_an_error_code_then_the_loop_knows_how_to_treat_it(code: int, kind: FailureKind) -> None:
    assert failure_kind(KafkaError(code)) is kind
    assert gateway_error(KafkaException(KafkaError(code)), "doing").kind is kind


def test_given_a_foreign_exception_then_it_counts_as_a_bug_and_is_named() -> None:
    assert gateway_error(ValueError("odd"), "offsets").detail == "offsets: ValueError: odd"
    assert gateway_error(TimeoutError(), "offsets").kind is FailureKind.TRANSIENT


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (codes.NO_LEADER, True),
        (KafkaError.NOT_LEADER_FOR_PARTITION, True),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (TIMED_OUT, False),
    ],
)
def test_given_a_failed_partition_then_an_answer_about_it_differs_from_silence(code: int, found: bool) -> None:  # noqa: FBT001
    assert is_answer(KafkaException(KafkaError(code))) is found
    assert not is_answer(TimeoutError())


def test_given_metadata_then_brokers_and_partitions_are_in_order_and_no_leader_is_none() -> None:
    answer = metadata_answer(metadata(topic("t", partition(1, leader=-1), partition(0))))
    assert [b.broker_id for b in answer.brokers] == [1, 2]
    assert [(p.partition, p.leader_id) for p in answer.topics[0].partitions] == [(0, 1), (1, None)]
    assert answer.controller_id is None


def test_given_metadata_without_brokers_then_it_is_a_failure() -> None:
    with pytest.raises(GatewayError) as caught:
        metadata_answer(metadata(topic("t", partition(0)), brokers=0))
    assert caught.value.kind is FailureKind.EMPTY


def test_given_topic_errors_then_unknown_is_said_forbidden_fails_and_others_stay_unsaid() -> None:
    gone = topic("gone", error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    young = topic("young", error=KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    answer = metadata_answer(metadata(gone, young))
    assert (answer.topics, answer.unknown_topics) == ((), ("gone",))
    forbidden = topic("secret", error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(GatewayError, match="topic secret") as caught:
        metadata_answer(metadata(forbidden))
    assert caught.value.kind is FailureKind.AUTH


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (b"\x00\x00\x00\x0a\x00\x00\x6b\x64\x00\x00", Sniffed.KAFKA),
        (b"\x00\x00\x00\x0a\x00\x00\x6b\x65\x00\x00", Sniffed.OTHER),
        (b"\x7f\xff\xff\xff\x00\x00\x6b\x64", Sniffed.OTHER),
        (b"\x15\x03\x03\x00\x02\x02\x46", Sniffed.TLS),
        (b"HTTP/1.1 400", Sniffed.OTHER),
        (b"220", Sniffed.OTHER),
    ],
)
def test_given_first_bytes_then_they_are_recognised(data: bytes, seen: Sniffed) -> None:
    assert _classify(data) is seen


@pytest.mark.parametrize(
    ("seen", "tls_error", "verdict"),
    [
        (Sniffed.OTHER, False, Verdict.NOT_KAFKA),
        (Sniffed.TLS, False, Verdict.TLS_FAILED),
        (Sniffed.KAFKA, False, Verdict.TLS_FAILED),
        (Sniffed.CLOSED, True, Verdict.TLS_FAILED),
        (Sniffed.CLOSED, False, Verdict.REFUSED),
        (Sniffed.SILENT, True, Verdict.TLS_FAILED),
        (Sniffed.SILENT, False, Verdict.SILENT),
    ],
)
def test_given_what_was_seen_then_one_verdict_follows(seen: Sniffed, tls_error: bool, verdict: Verdict) -> None:  # noqa: FBT001
    assert _by_sight(seen, "why", tls=True, tls_error=tls_error).failure is verdict


def test_given_failures_of_several_addresses_then_the_hopeful_one_is_reported() -> None:
    refused, silent = ConnectionRefusedError(), TimeoutError()
    unreachable = OSError(errno.ENETUNREACH, "Network is unreachable")
    assert _worst([refused, silent], 2).failure is Verdict.SILENT
    assert _worst([unreachable, refused], 2).failure is Verdict.REFUSED
    assert _worst([unreachable], 2).detail == "not reachable: Network is unreachable"
    assert _worst([], 2).failure is Verdict.SILENT


def test_given_user_options_then_what_discovery_insists_on_wins() -> None:
    options = map_client_options({"kafka.request.timeout.ms": "60000", "kafka.fetch.min.bytes": "5", "client.id": "me"})
    properties = client_properties(
        options,
        [BrokerAddress("::1", 1), BrokerAddress("b", 2)],
        connect_timeout_seconds=0.2,
        request_timeout_seconds=3,
    )
    assert properties["bootstrap.servers"] == "[::1]:1,b:2"
    assert properties["socket.timeout.ms"] == 3_000
    assert properties["socket.connection.setup.timeout.ms"] == 1_000, "librdkafka takes no less"
    assert properties["allow.auto.create.topics"] is False
    assert properties["client.id"] == "me"
    assert "fetch.min.bytes" not in properties


def test_given_the_probe_topic_then_kafka_can_never_create_it() -> None:
    assert PROBE_TOPIC == "/", "legal names match [a-zA-Z0-9._-]+"


def test_given_a_noisy_client_then_a_few_lines_pass_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = QuietLog(lines=2, window_seconds=60)
    with caplog.at_level(logging.INFO, logger="discovery.kafka.client"):
        for number in range(5):
            log.log(3, "line %d", number)
        log._window_start -= 61
        log.log(3, "later")
    assert [r.getMessage() for r in caplog.records] == [
        "line 0",
        "line 1",
        "dropped 3 log lines of the Kafka client",
        "later",
    ]
