"""Counts in sentences have the noun's right form."""

import pytest

from discovery.core.plural import counted


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 addresses"), (1, "1 address"), (2, "2 addresses"), (1_000, "1000 addresses")]
)
def test_given_a_count_when_written_then_only_one_is_singular(count: int, said: str) -> None:
    assert counted(count, "address", "addresses") == said


def test_given_a_regular_noun_when_several_are_counted_then_it_takes_an_s() -> None:
    assert [counted(count, "broker") for count in (0, 1, 2)] == ["0 brokers", "1 broker", "2 brokers"]
