"""Calls that happen at once, on the caller's thread: a loop without threads."""

from collections.abc import Callable

from discovery.core.answers import StuckCall


class InlineCalls:
    """See `Calls`; what `work` lets out comes out here."""

    def start(self, key: str, work: Callable[[], object], *, limit_seconds: float) -> bool:
        """See `Calls.start`."""
        work()
        return True

    def overdue(self) -> tuple[StuckCall, ...]:
        """See `Calls.overdue`: nothing ever is."""
        return ()
