"""Whatever lives, is guarded and quarantined: as many brokers are chosen as can be, and nobody twice."""

from hypothesis import given
from hypothesis import strategies as st

from discovery.core.model import BrokerAddress
from discovery.endpoint.selection import in_order, to_guard

ADDRESSES = st.integers(0, 15).map(lambda number: BrokerAddress(f"b{number}", 9092))
LISTS = st.lists(ADDRESSES, unique=True)


@given(living=LISTS, guarded=st.sets(ADDRESSES), quarantined=st.sets(ADDRESSES), count=st.integers(0, 6))
def test_given_any_brokers_when_chosen_then_they_live_and_are_as_many_as_can_be(
    living: list[BrokerAddress], guarded: set[BrokerAddress], quarantined: set[BrokerAddress], count: int
) -> None:
    chosen = to_guard(living, guarded, quarantined=quarantined, count=count)
    assert len(chosen) == len(set(chosen)) == min(count, len(living))
    assert set(chosen) <= set(living)
    kept = [address for address in living if address in guarded and address not in quarantined]
    assert list(chosen[: len(kept)]) == kept[:count], "a guard that stands is never given up for another"
    if len([address for address in living if address not in quarantined]) >= count:
        assert not set(chosen) & quarantined


@given(standing=LISTS, sticky=st.none() | ADDRESSES)
def test_given_any_standing_brokers_when_ordered_then_all_are_there_and_the_sticky_one_is_first(
    standing: list[BrokerAddress], sticky: BrokerAddress | None
) -> None:
    ordered = in_order(standing, sticky=sticky)
    assert sorted(map(str, ordered)) == sorted(map(str, standing))
    assert sticky not in standing or ordered[0] == sticky
