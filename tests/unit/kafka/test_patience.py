"""Asking again: until it succeeds, cannot succeed, or the time is up."""

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from discovery.kafka.patience import OutOfTimeError, retried
from tests.support.fakes.clock import FakeClock

MOVING = KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
REFUSED = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


class Answers:
    """Fails in turn, then answers; notes how long each try might have blocked."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.limits: list[float] = []

    def __call__(self, left: float) -> str:
        self.limits.append(left)
        if self.failures:
            raise self.failures.pop(0)
        return "answered"


def test_given_what_passes_by_itself_when_asked_again_then_the_answer_is_returned() -> None:
    answers = Answers(MOVING, TimeoutError(), MOVING)
    assert retried(answers, time.monotonic() + 30, answer_seconds=3) == "answered"
    assert answers.limits == [3] * 4, "no try may take all the time"


@pytest.mark.parametrize("passes", [None, lambda _: False])
def test_given_what_cannot_succeed_when_asked_then_it_is_raised_at_once(passes: Any) -> None:
    failure, more = (REFUSED, {}) if passes is None else (MOVING, {"passes": passes})
    answers = Answers(failure, failure)
    with pytest.raises(KafkaException) as raised:
        retried(answers, time.monotonic() + 30, **more)
    assert raised.value.args == failure.args
    assert len(answers.limits) == 1


def test_given_no_success_when_the_time_is_up_then_the_last_failure_is_named() -> None:
    began = time.monotonic()
    with pytest.raises(OutOfTimeError) as raised:
        retried(Answers(*[MOVING] * 1_000), began + 0.3)
    assert raised.value.last is MOVING.args[0]
    with pytest.raises(OutOfTimeError, match="no time was left") as raised:
        retried(Answers(), began - 1)
    assert raised.value.last is None


def test_given_a_machine_that_oversleeps_when_the_time_is_up_then_the_last_failure_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    monkeypatch.setattr("discovery.kafka.patience.time", clock)
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda _: clock.advance(60)))
    with pytest.raises(OutOfTimeError) as raised:
        retried(Answers(MOVING), clock.monotonic() + 0.3)
    assert raised.value.last is MOVING.args[0]


def test_given_a_client_that_is_late_itself_when_the_time_is_up_then_it_counts_as_a_timeout() -> None:
    with pytest.raises(OutOfTimeError) as raised:
        retried(Answers(*[TimeoutError()] * 1_000), time.monotonic() + 0.2, passes=lambda _: False)
    assert raised.value.last is not None
    assert raised.value.last.code() == KafkaError._TIMED_OUT


def test_given_the_packages_below_spark_when_read_then_nothing_is_retried_by_hand() -> None:
    below = ("core", "kafka", "store", "loop", "feed", "endpoint", "service")
    modules = [path for name in below for path in Path("discovery", name).rglob("*.py")]
    assert [str(path) for path in modules if re.search(r"\btime\.sleep\(", path.read_text())] == []
