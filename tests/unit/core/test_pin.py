"""Which cluster the loop follows, by the votes of the addresses asked."""

import pytest

from discovery.core.model import (
    ClusterId,
)
from discovery.core.pin import Conflict, Pin, choose_pin
from tests.support.core_values import (
    OURS,
    THEIRS,
    address,
)


@pytest.mark.parametrize(
    ("votes", "silent", "waited", "expected"),
    [
        ({}, 0, 9.0, None),
        ({1: OURS}, 1, 0.0, None),
        ({1: OURS}, 1, 0.5, Pin(OURS)),
        ({1: OURS}, 0, 0.0, Pin(OURS)),
        ({1: OURS, 2: OURS}, 5, 0.0, Pin(OURS)),
        ({1: OURS, 2: THEIRS}, 1, 0.0, None),
        ({1: OURS, 2: OURS, 3: THEIRS}, 1, 0.1, None),
        ({1: OURS, 2: OURS, 3: THEIRS}, 0, 0.1, Pin(OURS)),
    ],
)
def test_given_votes_when_choosing_a_pin_then_the_table_holds(
    votes: dict[int, ClusterId], silent: int, waited: float, expected: Pin | None
) -> None:
    named = {address(n): c for n, c in votes.items()}
    assert choose_pin(named, silent=silent, waited_seconds=waited, settle_seconds=0.5) == expected


def test_given_a_tie_when_choosing_a_pin_then_the_conflict_names_both_clusters_and_the_option() -> None:
    choice = choose_pin({address(1): OURS, address(2): THEIRS}, silent=0, waited_seconds=0, settle_seconds=0.5)
    assert isinstance(choice, Conflict)
    assert all(word in choice.sentence for word in ("ours: b1:9092", "theirs: b2:9092", "clusterId"))
