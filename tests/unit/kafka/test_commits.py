"""Commits by callback: which answer is whose, and what each outcome becomes."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from discovery.core.errors import GatewayError
from discovery.core.model import TopicName
from discovery.core.model import TopicPartition as Place
from discovery.kafka import groups
from discovery.kafka.commits import CommitAnswer
from discovery.kafka.groups import GroupWriter
from tests.support.fakes.clock import FakeClock

REFUSED, MOVING, MEMBERS = (
    KafkaError(code)
    for code in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.NOT_COORDINATOR, KafkaError.UNKNOWN_MEMBER_ID)
)


def test_given_commits_when_answered_then_a_late_answer_is_none_to_the_next() -> None:
    answer = CommitAnswer()
    first, second = ([TopicPartition("t", 0, offset), TopicPartition("t", 1, offset)] for offset in (1, 2))
    answer.expect(first)
    answer.expect(second)
    answer.hear(None, first)
    assert answer.pending
    answer.hear(REFUSED, second[::-1])
    assert not answer.pending
    assert answer.error is REFUSED
    answer.expect(first)
    answer.hear(None, None)
    assert not answer.pending
    assert answer.error is None


class Scripted:
    """A consumer whose commits have these outcomes in turn: an error, None for success, or nothing at all."""

    def __init__(self, clock: FakeClock, *outcomes: KafkaError | str | None) -> None:
        self._clock = clock
        self.outcomes = list(outcomes)
        self.sent: list[int] = []
        self._answer: Any = None
        self._asked: Sequence[TopicPartition] = ()

    def __call__(self, properties: dict[str, Any], **_: object) -> "Scripted":
        self._answer = properties["on_commit"]
        return self

    def cluster_id(self, *, timeout: float) -> str:
        assert timeout > 0
        return "elsewhere" if self._does("elsewhere") else "home"

    def _does(self, what: str) -> bool:
        return isinstance(self.outcomes[0], str) and self.outcomes[0] == what

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        if self._does("closed"):
            self.outcomes.pop(0)
            raise RuntimeError("Consumer closed")
        self._asked = offsets
        self.sent.append(offsets[0].offset)

    def poll(self, seconds: float) -> None:
        self._clock.advance(seconds)
        if self._asked and not isinstance(self.outcomes[0], str):
            outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
            asked, self._asked = self._asked, ()
            self._answer(outcome, asked)


def writer(monkeypatch: pytest.MonkeyPatch, *outcomes: KafkaError | str | None) -> tuple[GroupWriter, Scripted]:
    clock = FakeClock()
    scripted = Scripted(clock, *outcomes)
    monkeypatch.setattr(groups, "Consumer", scripted)
    for module in ("groups", "patience"):
        monkeypatch.setattr(f"discovery.kafka.{module}.time", clock)
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=clock.advance))
    return GroupWriter({}, "g"), scripted


def commit(made: GroupWriter, offset: int, *, seconds: float = 0.3) -> None:
    made.commit({Place(TopicName("t"), 0): offset}, cluster_id="home", timeout_seconds=seconds)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (REFUSED, pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED")),
        (MOVING, pytest.raises(KafkaException, match="NOT_COORDINATOR")),
        (MEMBERS, pytest.raises(GatewayError, match="group g has members of its own")),
        ("silence", pytest.raises(TimeoutError)),
        (
            "elsewhere",
            pytest.raises(GatewayError, match="group g: the client was led away from cluster home;"),
        ),
        ("closed", pytest.raises(RuntimeError, match="Consumer closed")),
    ],
)
def test_given_a_commit_that_is_not_taken_when_answered_then_the_error_is_its_own(
    monkeypatch: pytest.MonkeyPatch, outcome: KafkaError | str, expected: Any
) -> None:
    made, _ = writer(monkeypatch, outcome)
    with expected:
        commit(made, 1)


def test_given_a_coordinator_that_moves_when_committed_then_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made, scripted = writer(monkeypatch, MOVING, MOVING, None)
    commit(made, 1, seconds=30)
    assert scripted.sent == [1, 1, 1]


@pytest.mark.parametrize("failed", ["silence", "closed"])
def test_given_a_commit_without_an_answer_when_the_next_comes_then_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, failed: str
) -> None:
    made, scripted = writer(monkeypatch, failed)
    with pytest.raises((TimeoutError, RuntimeError)):
        commit(made, 1)
    scripted.outcomes = [None]
    commit(made, 2, seconds=30)
    assert scripted.sent[-1] == 2
