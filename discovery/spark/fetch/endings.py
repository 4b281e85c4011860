"""Where the ranges of a task end: as planned, or where an arbiter has cut them. Exact however attempts overlap."""

from collections.abc import Mapping, Sequence

from discovery.core.errors import ArbiterError, StaleAttemptError
from discovery.core.model import TopicPartition
from discovery.spark.fetch.arbiter import Arbiter
from discovery.spark.fetch.ranges import FetchRange


class Endings:
    """The ends of one task's ranges. Without an arbiter all are settled as planned.

    Each range is settled once: by a cut that was known before the task began, or by the one request that the task
    makes, at its end or when all that is left to read stands still.
    """

    def __init__(self, ranges: Sequence[FetchRange], arbiter: Arbiter | None) -> None:
        """Ask for the cuts that are known already."""
        cuts = arbiter.known(ranges) if arbiter is not None and ranges else {}
        self.ends = {r: _checked(r, cuts.get(r, r.end_offset)) for r in ranges}
        """Where to read to, by range."""
        self.unsettled: tuple[FetchRange, ...] = tuple(r for r in ranges if arbiter is not None and r not in cuts)
        self._arbiter = arbiter

    @property
    def patience_seconds(self) -> float | None:
        """How long everything may stand still before a cut is proposed; None: nothing is left to settle."""
        return self._arbiter.cut_after_seconds if self._arbiter is not None and self.unsettled else None

    def to_read(self) -> list[FetchRange]:
        """Return the ranges that hold something to be read."""
        return [r for r, end in self.ends.items() if r.start_offset < end]

    def settle(self, standing: Mapping[FetchRange, int], handed_out: Mapping[TopicPartition, int]) -> None:
        """Settle everything that is not settled yet, in one request.

        Args:
            standing: The next offset of each range that was not read to its end.
            handed_out: The offset behind the last record that was handed out, by partition.

        Raises:
            ArbiterError: no answer, or one that makes no sense.
            StaleAttemptError: records at or beyond the settled end were handed out already.

        Runs: worker, at most once per task; blocks <= 10 s.
        """
        if self._arbiter is None or not self.unsettled:
            return
        answers = self._arbiter.decide({r: standing.get(r, r.end_offset) for r in self.unsettled})
        for r in self.unsettled:
            if r not in answers:
                raise ArbiterError(f"the driver did not say where {r.topic_partition} ends; the task is tried again")
            self.ends[r] = _checked(r, answers[r])
            if handed_out.get(r.topic_partition, self.ends[r]) > self.ends[r]:
                raise StaleAttemptError(
                    f"{r.topic_partition} was settled to end at offset {self.ends[r]}, and this attempt has read to "
                    f"{handed_out[r.topic_partition]}; the task is tried again and ends there"
                )
        self.unsettled = ()


def _checked(range_: FetchRange, end: int) -> int:
    if not range_.start_offset <= end <= range_.end_offset:
        raise ArbiterError(
            f"{range_.topic_partition} cannot end at offset {end}: "
            f"the plan reads {range_.start_offset} to {range_.end_offset}"
        )
    return end
