"""Which expressions of followers are matched by the service, and which are left to the followers."""

import pytest

from discovery.core.interest import Interest
from discovery.core.model import TopicName, TopicPartition
from discovery.service.api.patterns import Patterns, is_cheap

USUAL = ["", "orders", "^orders-.*$", ".*", "[a-z]+", "(orders|clicks)-.*", "^(.*-)?dev$", r"^a\.(eu|us)\.v\d+$"]
DEAR = ["(a+)+$", "(ab|a)*c", "a?" * 30, ".*a.*b.*", "(?:(?:(?:){9999}){9999}){9999}", r"(.)\1", "(?=a)b", "x" * 2000]


@pytest.mark.parametrize("pattern", USUAL)
def test_given_a_usual_expression_when_judged_then_it_is_matched_here(pattern: str) -> None:
    assert is_cheap(pattern)


@pytest.mark.parametrize("pattern", DEAR)
def test_given_an_expression_of_too_many_ways_when_judged_then_it_is_left_to_the_follower(pattern: str) -> None:
    assert not is_cheap(pattern)


def test_given_followers_with_expressions_when_chosen_then_each_gets_its_own_and_few_are_remembered() -> None:
    patterns = Patterns()
    every = [TopicPartition(TopicName(topic), p) for topic in ("a1", "b1") for p in (0, 1)]
    for number in range(2, 200):
        assert patterns.chosen(Interest(pattern=f"^a1({number})?$"), every) == every[:2]
    assert patterns.chosen(Interest(topics=(TopicName("b1"),)), every) == every[2:]
    assert patterns.chosen(None, every) == every
    assert len(patterns._known) <= 64
