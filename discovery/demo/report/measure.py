"""The figures of the report, each computed from recorded times. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from discovery.demo.follow import Batch
from discovery.demo.load.oracle import Expected


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile: a value that was really seen.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("no values to take a percentile of")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def first_seen_wall(batches: Iterable[Batch], partition: str) -> float | None:
    """Return when the first batch with a row of this partition was finished; None: not yet."""
    return next((batch.finished_wall for batch in batches if batch.end_offsets.get(partition, 0) > 0), None)


def new_partition_seconds(
    batches: Sequence[Batch], partitions: Iterable[int], *, created_wall: float
) -> dict[int, float | None]:
    """Return per new partition how long after its creation was acknowledged a row of it was in the output."""
    seen = {partition: first_seen_wall(batches, str(partition)) for partition in partitions}
    return {partition: None if wall is None else wall - created_wall for partition, wall in seen.items()}


def longest_gap_seconds(batches: Sequence[Batch], *, begin: float, end: float) -> float:
    """Return the longest time within which no batch finished, of those that overlap `[begin, end]`.

    The gap that contains `begin` counts from the last batch before it: that is what a viewer sees.
    """
    before = max((b.finished_wall for b in batches if b.finished_wall <= begin), default=begin)
    moments = [before, *(b.finished_wall for b in batches if begin < b.finished_wall <= end), end]
    return max(later - earlier for earlier, later in pairwise(moments))


def longest_partition_gap_seconds(batches: Sequence[Batch], *, begin: float, end: float) -> float:
    """Return the same for the partition that waited longest."""
    longest = 0.0
    for partition in batches[-1].end_offsets if batches else ():
        advanced: list[Batch] = []
        last = None
        for batch in batches:
            if batch.end_offsets.get(partition) != last:
                last = batch.end_offsets.get(partition)
                advanced.append(batch)
        longest = max(longest, longest_gap_seconds(advanced, begin=begin, end=end))
    return longest


def first_batch_after(batches: Iterable[Batch], wall: float) -> Batch | None:
    """Return the first batch finished after this moment."""
    return next((batch for batch in batches if batch.finished_wall > wall), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Produced and counted, compared user by user and day by day."""

    events_produced: int
    events_counted: int
    duplicates: int
    """Events counted beyond what was acknowledged, summed over all (day, user)."""
    lost: int
    """Acknowledged events that were not counted, summed likewise."""
    checksum_mismatches: int
    """(day, user) with the right number of the wrong events."""
    dead_letters_expected: int
    dead_letters_found: int
    """Dead letters at exactly the positions of the malformed records."""
    dead_letters_unexpected: int

    @property
    def exact(self) -> bool:
        """Tell whether nothing is lost, doubled or misplaced."""
        wrong = (self.duplicates, self.lost, self.checksum_mismatches, self.dead_letters_unexpected)
        return not any(wrong) and self.dead_letters_found == self.dead_letters_expected


def audit(
    expected: Expected, users: Mapping[tuple[str, str], tuple[int, int]], dead_letters: frozenset[tuple[int, int]]
) -> Audit:
    """Compare the generator's account with the job's output."""
    keys = expected.users.keys() | users.keys()
    differences = {key: users.get(key, (0, 0))[0] - expected.users.get(key, (0, 0))[0] for key in keys}
    return Audit(
        events_produced=sum(events for events, _ in expected.users.values()),
        events_counted=sum(events for events, _ in users.values()),
        duplicates=sum(difference for difference in differences.values() if difference > 0),
        lost=-sum(difference for difference in differences.values() if difference < 0),
        checksum_mismatches=sum(
            1 for key in keys if not differences[key] and users.get(key) != expected.users.get(key)
        ),
        dead_letters_expected=len(expected.malformed),
        dead_letters_found=len(expected.malformed & dead_letters),
        dead_letters_unexpected=len(dead_letters - expected.malformed),
    )
