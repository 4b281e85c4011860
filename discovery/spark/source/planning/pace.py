"""`minOffsetsPerTrigger` and `maxTriggerDelay`: whether a batch is worth its price yet."""

from discovery.core.clock import Clock
from discovery.spark.source.options.parse import SourceOptions


class Pace:
    """Remembers when the last batch was planned. One thread."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        """Hold nothing back before the first batch, as the native source does."""
        self._least = options.min_offsets_per_trigger
        self._delay_seconds = options.max_trigger_delay_seconds
        self._clock = clock
        self._planned_at = float("-inf")

    def is_due(self) -> bool:
        """Tell whether the longest delay is over, so that any record is worth a batch."""
        return self._least is None or self._clock.monotonic() - self._planned_at >= self._delay_seconds

    def allows(self, backlog: int) -> bool:
        """Decide about a batch of so many offsets, and remember it if it may be planned."""
        if self._least is None:
            return True
        if backlog < self._least and not self.is_due():
            return False
        if backlog:
            self._planned_at = self._clock.monotonic()
        return True
