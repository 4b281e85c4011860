"""What a system read, beside what was written: gaps, recovery, lost and repeated rows. Pure."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

FOREIGN = "f"
"""The mark of records of another cluster."""
Key = tuple[str, int, int]
_UNDER_WAY_SECONDS = 0.5
"""Acknowledgements that were under way when a fault struck are noted no later than this: they tell of no recovery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One record at one moment: acknowledged to the load, or come to a system's sink."""

    partition: int
    offset: int
    mark: str
    """First byte of the value: which topic of that name, in which cluster, it was written to."""
    at: float
    """Seconds since the epoch, of this machine's clock for all."""

    @property
    def key(self) -> Key:
        """What makes it this record."""
        return (self.mark, self.partition, self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time without a new row."""

    seconds: float
    over: bool
    """False: it had not ended when watching did, so it is at least as long."""


def parse_rows(lines: Iterable[str]) -> list[Row]:
    """Read `partition offset mark milliseconds` lines; a last line that was cut short by a kill is left out."""
    rows = []
    for line in lines:
        fields = line.split(" ")
        if len(fields) == 4 and line.endswith("\n"):  # noqa: PLR2004
            partition, offset, mark, milliseconds = fields
            rows.append(Row(partition=int(partition), offset=int(offset), mark=mark, at=int(milliseconds) / 1000))
    return rows


def first_arrivals(rows: Iterable[Row]) -> list[Row]:
    """Return each record once, at its first arrival, in the order of arrival."""
    first: dict[Key, Row] = {}
    for row in sorted(rows, key=lambda row: row.at):
        first.setdefault(row.key, row)
    return list(first.values())


def longest_gap(instants: Sequence[float], since: float, until: float) -> Gap:
    """Return the longest time between two instants in a window whose ends count as instants too."""
    edges = [since, *sorted(at for at in instants if since < at < until), until]
    seconds, ended_at = max((b - a, b) for a, b in itertools.pairwise(edges))
    return Gap(seconds=round(seconds, 2), over=ended_at < until)


def measure(
    arrived: Sequence[Row],
    written: Sequence[Row],
    *,
    since: float,
    healed_at: float,
    until: float,
    living: Iterable[int],
) -> dict[str, Any]:
    """Say how a system fared in one case.

    Args:
        arrived: What came to its sink, repeated rows too.
        written: What the brokers acknowledged.
        since: When the fault began.
        healed_at: When as much as will be was well again: recovery counts from here; often `since`.
        until: When watching ended.
        living: Partitions that could be read in that time.

    Returns:
        `written_gap_seconds` and `written_slowest_seconds`: the same two for the acknowledgements, which is what
        Kafka itself made everybody wait;
        `gap_seconds` without a row from any living partition, the same for the `slowest` of them alone,
        `recovered_seconds` until each living partition brought a record written half a second after `healed_at` or
        later (None: not all did), and counts: `lost` (skipped: later records of the partition came), `unread`,
        `repeated`, `foreign`.

    Runs: anywhere (pure).
    """
    partitions = sorted(living)
    news = [row for row in first_arrivals(arrived) if row.mark != FOREIGN]
    of_living = [row for row in news if row.partition in partitions]
    gap, slowest = _gaps(of_living, since, until, partitions)
    own_gap, own_slowest = _gaps([row for row in written if row.partition in partitions], since, until, partitions)
    return {
        "written_gap_seconds": own_gap.seconds,
        "written_slowest_seconds": own_slowest.seconds,
        "gap_seconds": gap.seconds,
        "gap_over": gap.over,
        "slowest_seconds": slowest.seconds,
        "slowest_over": slowest.over,
        "recovered_seconds": recovered(of_living, written, healed_at, until, partitions),
        "rows": len(news),
        "written": len(written),
        **_account(arrived, news, written),
    }


def _gaps(rows: Sequence[Row], since: float, until: float, partitions: Sequence[int]) -> tuple[Gap, Gap]:
    """Return the longest gap over all partitions together, and that of the partition that was worst off."""
    together = longest_gap([row.at for row in rows], since, until)
    each = [longest_gap([row.at for row in rows if row.partition == one], since, until) for one in partitions]
    return together, max(each, key=lambda one: one.seconds)


def recovered(
    news: Sequence[Row], written: Sequence[Row], healed_at: float, until: float, partitions: Iterable[int]
) -> float | None:
    """Return the seconds until each of these partitions brought a record written after it was well; None: not yet.

    Runs: anywhere (pure).
    """
    fresh = {row.key for row in written if row.at > healed_at + _UNDER_WAY_SECONDS}
    first: dict[int, float] = {}
    for row in news:
        if row.key in fresh and row.at < until:
            first.setdefault(row.partition, row.at)
    if set(first) < set(partitions):
        return None
    return round(max(0.0, max(first.values()) - healed_at), 2)


def _account(arrived: Sequence[Row], news: Sequence[Row], written: Sequence[Row]) -> dict[str, int]:
    came = {row.key for row in news}
    furthest: dict[tuple[str, int], int] = {}
    for mark, partition, offset in came:
        furthest[mark, partition] = max(offset, furthest.get((mark, partition), -1))
    missing = [row for row in written if row.key not in came]
    lost = sum(row.offset < furthest.get((row.mark, row.partition), -1) for row in missing)
    foreign = sum(row.mark == FOREIGN for row in arrived)
    return {
        "lost": lost,
        "unread": len(missing) - lost,
        "repeated": len(arrived) - foreign - len(news),
        "foreign": foreign,
    }


def timeline(arrived: Sequence[Row], *, since: float, start: float, end: float, step: float = 0.5) -> list[int]:
    """Count the new rows of each step between two moments relative to `since`, for a chart."""
    counts = [0] * round((end - start) / step)
    for row in first_arrivals(arrived):
        place = int((row.at - since - start) // step)
        if row.mark != FOREIGN and 0 <= place < len(counts):
            counts[place] += 1
    return counts
