"""What is known of the JVM client's versions and settings."""

import pytest

from discovery.core.errors import ConfigError
from discovery.core.prediction.clients import ClientKind, ClientVersion, configured, contradictions

OLD, MID, NEW = ClientVersion(2, 6), ClientVersion(3, 9), ClientVersion(4, 1)


def codes(version: ClientVersion, *, entries: int = 3, **properties: str) -> list[str]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return [one.code for one in contradictions(configured(version, named), entries=entries)]


def test_given_a_version_when_read_then_only_major_and_minor_count() -> None:
    assert [str(ClientVersion.parse(text)) for text in ("2.6.3", "3.9", "4.1.0-SNAPSHOT")] == [
        "kafka-clients 2.6",
        "kafka-clients 3.9",
        "kafka-clients 4.1",
    ]
    for wrong in ("", "four", "4", "1.2.x"):
        with pytest.raises(ConfigError, match="--client-version"):
            ClientVersion.parse(wrong)


def test_given_spark_packages_when_read_then_the_connector_names_the_client() -> None:
    assert ClientVersion.of_spark("a:b:1,org.apache.spark:spark-sql-kafka-0-10_2.12:3.1.2") == OLD
    assert ClientVersion.of_spark("org.apache.spark:spark-sql-kafka-0-10_2.13:9.9.0") is None
    assert ClientVersion.of_spark("") is None


def test_given_versions_when_asked_what_they_can_then_the_borders_are_right() -> None:
    assert [v.has_setup_timeout for v in (OLD, ClientVersion(2, 7), NEW)] == [False, True, True]
    assert [v.has_recovery for v in (OLD, ClientVersion(3, 8), NEW)] == [False, True, True]
    assert [v.recovers_by_default for v in (OLD, MID, NEW)] == [False, False, True]


def test_given_no_settings_when_configured_then_the_defaults_of_the_version_hold() -> None:
    assert configured(OLD, {}).limits.setup_seconds is None
    limits = configured(NEW, {}, system_seconds=63).limits
    assert (limits.api_seconds, limits.request_seconds, limits.setup_seconds) == (60, 30, 10)
    assert limits.system_seconds == 63
    assert configured(NEW, {"request.timeout.ms": "90000"}).limits.api_seconds == 90


def test_given_an_admin_client_before_2_5_when_configured_then_the_request_timeout_is_its_only_limit() -> None:
    ancient = ClientVersion(2, 4)
    found = configured(ancient, {"default.api.timeout.ms": "8000"})
    assert (found.limits.api_seconds, found.limits.request_seconds, found.api_option) == (
        120,
        120,
        "request.timeout.ms",
    )
    assert (found.patient(300).api_seconds, found.patient(300).request_seconds) == (300, 300)
    assert codes(ancient, request_timeout_ms="9000", default_api_timeout_ms="8000") == []
    reader = configured(ancient, {"default.api.timeout.ms": "8000"}, kind=ClientKind.CONSUMER)
    assert (reader.limits.api_seconds, reader.limits.request_seconds, reader.api_option) == (
        8,
        30,
        "default.api.timeout.ms",
    )
    assert (reader.patient(24).api_seconds, reader.patient(24).request_seconds) == (24, 30)


def test_given_both_kinds_when_configured_then_each_leaves_the_dead_in_its_way() -> None:
    assert [configured(v, {}).limits.silent_escape for v in (OLD, ClientVersion(3, 1), NEW)] == [0, 0.5, 0.5]
    reader = configured(NEW, {}, kind=ClientKind.CONSUMER).limits
    assert (reader.silent_escape, reader.retry_seconds, reader.retry_most_seconds) == (1, 0.1, 1)
    older = configured(OLD, {"retry.backoff.ms": "300"}, kind=ClientKind.CONSUMER).limits
    assert (older.retry_seconds, older.retry_most_seconds) == (0.3, 0.3)


def test_given_a_timeout_that_is_none_when_configured_then_it_is_named() -> None:
    for wrong in ("10s", "-5", "0", "99999999999"):
        with pytest.raises(ConfigError, match=r"default\.api\.timeout\.ms"):
            configured(NEW, {"default.api.timeout.ms": wrong})


def test_given_sound_settings_when_checked_then_nothing_is_said() -> None:
    assert codes(NEW) == codes(OLD) == codes(MID, metadata_recovery_strategy="none") == []


def test_given_contradictions_when_checked_then_each_is_said() -> None:
    assert codes(NEW, default_api_timeout_ms="5000", socket_connection_setup_timeout_ms="1000") == ["api-below-request"]
    assert codes(NEW, default_api_timeout_ms="30000", socket_connection_setup_timeout_ms="40000") == [
        "setup-eats-api",
        "request-eats-api",
    ]
    assert codes(NEW, socket_connection_setup_timeout_ms="70000") == ["setup-eats-api"]
    assert codes(OLD, socket_connection_setup_timeout_ms="1000") == ["no-setup-timeout"]
    assert codes(OLD, metadata_recovery_strategy="rebootstrap") == ["recovery-unknown"]
    assert codes(MID, metadata_recovery_strategy="rebootstrap") == ["recovery-never"]
    assert codes(MID, metadata_recovery_strategy="rebootstrap", reconnect_backoff_max_ms="40000") == []
    assert codes(NEW, metadata_recovery_strategy="rebootstrap") == []
