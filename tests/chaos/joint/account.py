"""What the target topic owes: every acknowledged record once, as a reader of committed records sees it."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tests.chaos.seeds import must

_SHOWN = 3


class Account:
    """Values seen and values owed; `take` is called on the reader's thread, the rest on one other."""

    def __init__(self) -> None:
        """Nobody owes anything yet."""
        self.seen: Counter[str] = Counter()
        self.owed: set[str] = set()
        """Acknowledged, and not seen so far."""
        self.due: set[str] = set()
        """All that must have come by now."""
        self.excused: set[str] = set()
        """May be lost: their topic was deleted before they were seen."""
        self.written: Counter[str] = Counter()
        """How often the sources hold what was seen twice."""

    def take(self, message: Any) -> None:
        """Note a record that a reader of committed records was given."""
        self.seen[message.value().decode()] += 1

    def owe(self, values: Iterable[str]) -> None:
        """Add acknowledged records."""
        added = set(values)
        self.due |= added
        self.owed |= added

    def excuse(self, values: Iterable[str]) -> None:
        """Forgive what a topic acknowledged that is gone now, as far as it was not seen."""
        lost = set(values) - self.seen.keys()
        self.excused |= lost
        self.due -= lost
        self.owed -= lost

    def settled(self) -> bool:
        """Tell whether all that was owed is there."""
        self.owed = {value for value in self.owed if value not in self.seen}
        return not self.owed

    def twice(self, seen: Counter[str]) -> list[str]:
        """Return what is there more than once, and more often than the sources were found to hold it."""
        return sorted(value for value, count in seen.items() if count > max(1, self.written[value]))

    def check_once(self, seen: Counter[str], held: Callable[[], Counter[str]] = Counter) -> None:
        """Hold a reader to one copy of each, or to as many as the sources hold.

        The load's producer is idempotent, but may write again what it had written before it had to begin a new epoch.

        Args:
            seen: How often each value came; the reader may go on meanwhile.
            held: Counts the values that the sources hold; asked only where something came twice.

        Raises:
            BrokenPromiseError: something came twice.
        """
        seen = Counter(seen)  # what comes while the sources are counted may be in them since
        if wanted := self.twice(seen):
            found = held()
            self.written |= Counter({value: found[value] for value in wanted})
        twice = self.twice(seen)
        must(not twice, f"{len(twice)} records came twice: {twice[:_SHOWN]}")

    def check_known(self, others: Iterable[str]) -> None:
        """Hold the reader to what was written: due, excused, or one of these.

        Raises:
            BrokenPromiseError: something nobody wrote.
        """
        strange = self.seen.keys() - self.due - self.excused - set(others)
        must(not strange, f"{len(strange)} records that no broker acknowledged: {sorted(strange)[:_SHOWN]}")

    def total(self) -> int:
        """Count what a reader was given."""
        return self.seen.total()

    def found(self) -> str:
        """Say what is missing."""
        return f"{len(self.owed)} acknowledged records are not visible: {sorted(self.owed)[:_SHOWN]}"
