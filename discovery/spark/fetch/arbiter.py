"""Who decides where a range ends, when its leader may never come back (the other half lives beside the driver)."""

from collections.abc import Collection, Mapping
from typing import Protocol

from discovery.spark.fetch.ranges import FetchRange


class Arbiter(Protocol):
    """Settles, once for ever, where each range of a plan ends: at its `end_offset` (full) or at a cut before it.

    Without an arbiter nothing is cut: a task waits for its leader. With one, no iterator ends before every range
    of it is settled. One thread at a time.
    """

    cut_after_seconds: float
    """How long a range without a leader waits, once nothing else is left to read, before a cut is proposed."""

    def known(self, ranges: Collection[FetchRange]) -> Mapping[FetchRange, int]:
        """Return the cuts that were settled before this task began; asked once, before the first record is read.

        Runs: worker; from memory in a first attempt, else blocks <= 10 s.
        """
        ...

    def decide(self, proposed: Mapping[FetchRange, int]) -> Mapping[FetchRange, int]:
        """Propose an end for ranges: `end_offset` where all was read, else the next offset to be read.

        Returns:
            The settled end of each, which may be another one than was proposed: then the caller reads on to it, or
            fails if it has already handed out records at or beyond it.

        Raises:
            ArbiterError: nobody answered, or the plan is not the newest one; the task must fail.

        Runs: worker; blocks <= 10 s.
        """
        ...
