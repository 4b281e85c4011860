from types import SimpleNamespace
from typing import Any

import pytest

from discovery.core.errors import KafkaUnreachableError
from discovery.localkafka.reassign import _are_off, _placement


def _partition(*replicas: int) -> Any:
    return SimpleNamespace(leader=replicas[0], replicas=list(replicas), isrs=list(replicas))


EMPTIED = {("t", 0): _partition(2, 3)}
HELD = {("t", 0): _partition(1, 3)}


def test_given_a_broker_that_does_not_know_the_topic_yet_when_planned_then_another_names_its_replicas() -> None:
    assert _placement([{}, None, HELD]) == {("t", 0): [1, 3]}


def test_given_no_answer_when_planned_then_it_is_an_error() -> None:
    with pytest.raises(KafkaUnreachableError):
        _placement([None])


@pytest.mark.parametrize(
    ("answers", "off"),
    [
        ([EMPTIED, EMPTIED], True),
        ([EMPTIED, HELD], False),
        ([EMPTIED, {}], False),
        ([{}, EMPTIED], False),
        ([EMPTIED, None], False),
        ([None], False),
        ([], False),
    ],
    ids=[
        "all agree",
        "one is late",
        "one does not know the topic",
        "the first does not",
        "one is silent",
        "all",
        "none",
    ],
)
def test_given_answers_of_brokers_when_asked_whether_a_broker_is_empty_then_all_must_agree(
    answers: Any, *, off: bool
) -> None:
    assert _are_off(answers, [1]) is off
