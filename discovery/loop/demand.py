"""Whose end offsets must be fresh. The others are asked for seldom: a loop may know far more than anybody reads."""

from collections.abc import Callable

from discovery.core.questions import Wanted

Demand = Callable[[], Wanted | None]
"""What readers want at this moment; nothing: nobody reads; None: all that the loop follows. Quick, any thread."""


def everything() -> Wanted | None:
    """Say that all offsets must be fresh: what a loop without readers of its own assumes."""
    return None


def nothing() -> Wanted:
    """Say that nobody reads: brokers alone are wanted."""
    return ()
