"""What an endpoint did, counted; read at each scrape."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

CONNECT_BUCKETS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.3, 1.0, 5.0)
LIMIT, NO_UPSTREAM, ENDING = "limit", "no_upstream", "ending"
"""Why clients were turned away."""
REASONS = (LIMIT, NO_UPSTREAM, ENDING)
TO_BROKER, TO_CLIENT = "to_broker", "to_client"


@dataclass(slots=True)
class Counts:
    """Written by the endpoint's thread alone; reading torn values is harmless."""

    opened: Counter[str] = field(default_factory=Counter)
    """Connections by upstream."""
    open_now: Counter[str] = field(default_factory=Counter)
    connect_failures: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    """Times an upstream that was in use or in reserve stopped being available."""
    moved_bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(upstream, direction)."""
    turned_away: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(REASONS, 0)))
    connect_buckets: Counter[float] = field(default_factory=Counter)
    connect_seconds_sum: float = 0.0

    def connected(self, upstream: str, seconds: float) -> None:
        """Count a client that has its broker, so long after it was accepted."""
        self.opened[upstream] += 1
        self.open_now[upstream] += 1
        self.connect_seconds_sum += seconds
        bound = next((b for b in CONNECT_BUCKETS_SECONDS if seconds <= b), float("inf"))
        self.connect_buckets[bound] += 1

    def forget(self, known: Collection[str]) -> None:
        """Drop the series of upstreams that are no longer known and not in use."""
        for upstream in [name for name in {*self.opened, *self.connect_failures, *self.lost} if name not in known]:
            if self.open_now[upstream]:
                continue
            for series in (self.opened, self.open_now, self.connect_failures, self.lost):
                series.pop(upstream, None)
            for direction in (TO_BROKER, TO_CLIENT):
                self.moved_bytes.pop((upstream, direction), None)
