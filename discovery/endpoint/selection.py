"""Which living brokers deserve a guard. Pure."""

from collections.abc import Collection, Sequence

from discovery.core.model import BrokerAddress


def to_guard(
    living: Sequence[BrokerAddress],
    guarded: Collection[BrokerAddress],
    *,
    quarantined: Collection[BrokerAddress],
    count: int,
) -> tuple[BrokerAddress, ...]:
    """Choose at most `count` living addresses: those guarded already, then others, spread over the whole list.

    Neighbours in a list often share a rack, and racks die as a whole: hence every k-th.

    Args:
        living: Best first, 0..n.
        guarded: Have a guard now.
        quarantined: Their guard failed lately; they come last, when there is nobody else.
        count: How many are wanted.

    Returns:
        0..count addresses, all from `living`.

    Runs: anywhere (pure).
    """
    kept = [address for address in living if address in guarded and address not in quarantined][:count]
    others = [address for address in living if address not in guarded and address not in quarantined]
    last = [address for address in living if address in quarantined]
    wanted = count - len(kept)
    chosen = [*kept, *_spread(others, wanted)]
    return tuple([*chosen, *last][:count]) if len(chosen) < count else tuple(chosen)


def in_order(standing: Collection[BrokerAddress], *, sticky: BrokerAddress | None) -> tuple[BrokerAddress, ...]:
    """Return the brokers a client may be led to: the one that worked last, then the others as given.

    Runs: anywhere (pure).
    """
    first = (sticky,) if sticky in standing and sticky is not None else ()
    return (*first, *(address for address in standing if address != sticky))


def _spread(others: Sequence[BrokerAddress], count: int) -> list[BrokerAddress]:
    if count <= 0:
        return []
    if len(others) <= count:
        return list(others)
    return [others[position * len(others) // count] for position in range(count)]
