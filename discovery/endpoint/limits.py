"""What an endpoint may do, as one value."""

from dataclasses import dataclass

from discovery.config.hosts import is_loopback
from discovery.core.errors import ConfigError

MIN_IDLE_SECONDS = 541.0
"""JVM clients close idle connections after nine minutes; whoever closes first makes the other see an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Durations and caps of one endpoint.

    Raises:
        ConfigError: a value is out of range; names it and the limit.
    """

    host: str = "127.0.0.1"
    port: int = 19092
    """0 takes a free one."""
    connections_max: int = 2_000
    idle_seconds: float = 600.0
    """A connection on which nothing moves for so long is closed."""
    hold_seconds: float = 5.0
    """How long a client waits for a living broker before it is turned away."""
    drain_seconds: float = 3.0
    """How long a stop waits for exchanges that are under way."""
    attempt_every_seconds: float = 0.225
    attempt_timeout_seconds: float = 1.5
    attempts_max: int = 3
    guards: int = 4
    """Brokers that are kept verified, so that a client finds one at once."""
    health_check_interval_seconds: float = 1.0
    health_check_timeout_seconds: float = 1.0
    renew_seconds: float = 240.0
    """A guard's connection is opened again before a broker (10 min) would close it as idle."""

    def __post_init__(self) -> None:
        """Check each value."""
        if not is_loopback(self.host):
            raise ConfigError(
                f"endpoint.host: {self.host!r} is not a loopback address, and an endpoint for other hosts would let"
                " anybody reach the brokers; use 127.0.0.1 and run one endpoint per host"
            )
        if self.idle_seconds < MIN_IDLE_SECONDS:
            raise ConfigError(
                f"endpoint.idle_seconds: {self.idle_seconds:g} is less than {MIN_IDLE_SECONDS:g}; JVM clients"
                " close after 540 s themselves, and must be the first to do so"
            )
        if self.connections_max < 1:
            raise ConfigError(f"endpoint.connections_max: {self.connections_max} must be at least 1")
