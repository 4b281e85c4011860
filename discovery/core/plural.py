"""Counts in sentences: "1 partition", "2 partitions"."""


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun, as people write it: `counted(1, "broker")` is "1 broker".

    Args:
        count: How many; >= 0.
        one: The noun of one thing.
        many: The noun of several, where it is not `one` and an s.

    Runs: anywhere (pure).
    """
    return f"{count} {one if count == 1 else many or one + 's'}"
