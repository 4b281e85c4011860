"""What is concluded from one probe."""

import pytest

from discovery.core.model import (
    Verdict,
)
from discovery.core.verdict import conclude
from tests.support.core_values import (
    OURS,
    address,
    alive,
)


def test_given_a_connection_alone_when_concluded_then_it_is_refused_as_proof() -> None:
    outcome = alive(1)
    with pytest.raises(ValueError, match="no answer"):
        conclude(type(outcome)(address=address(1), tcp_only=True), pin=None, snapshot=None)


def test_given_an_answer_without_brokers_or_without_cluster_id_when_concluded_then_it_is_stale() -> None:
    empty = type(alive(1))(address=address(1), cluster_id=OURS)
    anonymous = type(alive(1))(address=address(1), brokers=alive(1).brokers)
    assert conclude(empty, pin=OURS, snapshot=None)[0] is Verdict.STALE
    assert conclude(anonymous, pin=OURS, snapshot=None)[0] is Verdict.STALE
