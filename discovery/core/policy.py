"""The loop's limits as one value, checked against each other when it is made."""

from dataclasses import dataclass

from discovery.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Durations and caps of one discovery loop.

    Raises:
        ConfigError: a duration is not positive, or the order
            connect <= request < api < staleness is broken, or a leader may be silent for longer than a request
            to it lasts; the message names both fields.
    """

    connect_timeout_seconds: float = 2.0
    """TCP, TLS and SASL of one address."""
    request_timeout_seconds: float = 5.0
    """One request to one broker."""
    api_timeout_seconds: float = 10.0
    """The budget of one whole cycle."""
    staleness_seconds: float = 60.0
    """A view that nothing confirmed for so long is called stale."""
    interval_seconds: float = 1.0
    """All brokers and vetting."""
    idle_interval_seconds: float = 1.0
    """The same of checks whether a living address accepts connections, while nobody reads what it leads."""
    topics_interval_seconds: float = 0.3
    """Metadata of followed topics."""
    offsets_interval_seconds: float = 0.2
    """End offsets of followed partitions."""
    topic_ids_interval_seconds: float = 5.0
    """Topic ids, which plain metadata does not carry."""
    vet_interval_seconds: float = 15.0
    """How often a living address proves again that it is Kafka and of this cluster."""
    leader_silence_seconds: float = 1.0
    """A leader that owes an answer on offsets for longer is parked; one that answered slowly before is given more.

    `parkAfter` of a source."""
    offsets_timeout_seconds: float = 4.0
    """One offsets request to one leader; one that is slower is asked through a client of its own."""
    offsets_deadline_seconds: float = 60.0
    """One such request to a slow leader; `kafka.default.api.timeout.ms` of a source."""
    settle_seconds: float = 0.5
    """How long the first cluster id waits for a contradicting answer when only one address gave it."""
    quarantine_base_seconds: float = 1.0
    quarantine_cap_seconds: float = 60.0
    shrink_fraction: float = 0.2
    """One cycle drops at most max(1, this share) of the learned brokers without corroboration."""
    shrink_confirmations: int = 3
    max_stuck_calls: int = 8

    def __post_init__(self) -> None:
        """Check every duration and the order of the timeouts."""
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"{name} must be positive and finite, not {value!r}")
        ordered = (
            ("connect_timeout_seconds", "<=", "request_timeout_seconds"),
            ("request_timeout_seconds", "<", "api_timeout_seconds"),
            ("api_timeout_seconds", "<", "staleness_seconds"),
            ("leader_silence_seconds", "<=", "offsets_timeout_seconds"),
        )
        for low, relation, high in ordered:
            a, b = getattr(self, low), getattr(self, high)
            if a > b or (relation == "<" and a == b):
                raise ConfigError(f"need {low} {relation} {high}, but {low}={a:g} and {high}={b:g}; change one of them")
