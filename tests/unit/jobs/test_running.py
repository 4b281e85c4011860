"""What a job does around its query, without Spark."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.errors import StreamingQueryException

from discovery.config.java import java_command
from discovery.core.errors import (
    ConfigError,
    DataLossError,
    DiscoveryError,
    TransactionRefusedError,
    TransactionTimeoutError,
)
from discovery.core.model import BrokerAddress
from discovery.spark.jobs.running import StoppedError, await_end, ended, make_session, metrics_server, until_stopped
from discovery.spark.launch.queries import TOO_SLOW
from discovery.spark.supervise.classify import Failure, classify
from tests.support.ports import bound_socket, free_port


def test_given_an_address_when_metrics_are_served_then_they_are_there_until_the_job_ends() -> None:
    address = BrokerAddress("127.0.0.1", free_port())
    with metrics_server(address) as registry:
        assert registry is not None
        assert "process_open_fds" in httpx.get(f"http://{address}/metrics", timeout=30, trust_env=False).text
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{address}/metrics", timeout=30, trust_env=False)


def test_given_a_port_that_is_taken_when_metrics_are_served_then_one_line_says_so() -> None:
    with bound_socket() as taken:
        address = BrokerAddress("127.0.0.1", taken.getsockname()[1])
        with (
            pytest.raises(ConfigError, match=r"--metrics: .* cannot be had: .*; name a free port"),
            metrics_server(address),
        ):
            pass


@pytest.fixture
def unknown_java() -> Iterator[None]:
    """No Java was looked for yet, and what is found here is forgotten."""
    java_command.cache_clear()
    yield
    java_command.cache_clear()


@pytest.mark.usefixtures("unknown_java")
@pytest.mark.parametrize(
    ("version", "said"),
    [
        (None, "dau: Java is missing: install a Java 17 runtime"),
        ("11.0.22", "is too old: Kafka and Spark need Java 17"),
    ],
)
def test_given_no_java_or_an_old_one_when_a_job_starts_then_one_line_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    version: str | None,
    said: str,
) -> None:
    if version:
        (tmp_path / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        (tmp_path / "java").chmod(0o755)
    for name in ("JAVA_HOME", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if version else str(tmp_path))
    assert ended("dau", lambda: _session(tmp_path)) == 2
    printed = capfd.readouterr().err
    assert said in printed
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (TransactionTimeoutError("could not look for topic orders in time"), Failure.TRANSACTION),
        (TransactionRefusedError("could not commit orders-0: Unknown topic"), Failure.CODE),
        (DataLossError("offsets 3..7 of events-0"), Failure.DATA_LOSS),
    ],
)
@pytest.mark.parametrize("place", ["start", "batch"])
def test_given_an_error_of_ours_when_a_job_ends_with_it_then_its_line_tells_whether_a_restart_helps(
    capfd: pytest.CaptureFixture[str], error: DiscoveryError, failure: Failure, place: str
) -> None:
    def act() -> None:
        if place == "start":
            raise error
        raise StreamingQueryException(f"Traceback\ndiscovery.core.errors.{type(error).__name__}: {error}\nat Java")

    assert ended("dau", act) == 1
    printed = capfd.readouterr().err
    assert classify(printed, exit_code=1).failure is failure
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "code"),
    [("GatewayError", 3), ("KafkaUnreachableError", 3), ("ConfigError", 2), ("FailureKind", 1), ("Unheard", 1)],
)
def test_given_an_error_of_ours_in_sparks_traceback_when_a_job_ends_then_the_exit_code_is_its_own(
    capfd: pytest.CaptureFixture[str], name: str, code: int
) -> None:
    def act() -> None:
        raise StreamingQueryException(f"Traceback\ndiscovery.core.errors.{name}: stallTimeout: no record came\nat Java")

    assert ended("dau", act) == code
    assert capfd.readouterr().err == "dau: the query failed: stallTimeout: no record came\n"


def _session(folder: Path) -> None:
    make_session("dau", master=None, settings=(), checkpoint=str(folder))


def test_given_a_start_that_waits_for_kafka_when_the_job_is_stopped_then_nobody_waits_for_it() -> None:
    stopping, never = threading.Event(), threading.Event()

    def start() -> str:
        stopping.set()
        never.wait()
        return "started"

    with pytest.raises(StoppedError):
        until_stopped(start, stopping)
    never.set()
    with pytest.raises(StoppedError):
        until_stopped(lambda: pytest.fail("it is not begun any more"), stopping)


def test_given_a_start_when_nobody_stops_the_job_then_it_is_as_if_called() -> None:
    def fails() -> str:
        raise ConfigError("lanes: none")

    assert until_stopped(lambda: "started", threading.Event()) == "started"
    with pytest.raises(ConfigError, match="lanes: none"):
        until_stopped(fails, threading.Event())


class TooSlow:
    """A query whose source's Python process did not call back."""

    isActive = False  # noqa: N815 - Spark's name

    def exception(self) -> Exception:
        return Exception(f"{TOO_SLOW}. Current State: INITIALIZING")


def test_given_a_second_start_that_waits_when_the_job_is_stopped_then_nobody_waits_for_it() -> None:
    stopping, never, starts = threading.Event(), threading.Event(), 0

    def start() -> Any:
        nonlocal starts
        starts += 1
        if starts > 1:
            stopping.set()
            never.wait()
        return TooSlow()

    ending = threading.Thread(target=await_end, args=(None, start, stopping), daemon=True)
    ending.start()
    ending.join(30)
    assert not ending.is_alive()
    never.set()
    assert starts == 2
