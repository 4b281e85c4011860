"""Every error this project raises on purpose, by cause; foreign errors are translated at the border."""

from enum import Enum
from typing import ClassVar

BUG_PHRASE = "BUG in kafka-discovery"
"""Begins every report of something nobody expected; each test run searches its output for it."""


class DiscoveryError(Exception):
    """Base of all errors raised on purpose; `str()` is one line fit for a user."""

    exit_code: ClassVar[int] = 1


class ConfigError(DiscoveryError):
    """A wrong option, value or combination. Names the option, the value, the limit and the remedy."""

    exit_code: ClassVar[int] = 2


class KafkaUnreachableError(DiscoveryError):
    """No living broker within the limit; the text carries one verdict per address."""

    exit_code: ClassVar[int] = 3


class DataLossError(DiscoveryError):
    """Records between two offsets can no longer be read, or a topic was recreated."""


class ArbiterError(DiscoveryError):
    """Where a range ends could not be settled with the driver; the task fails, and its retry asks again."""


class StaleAttemptError(DiscoveryError):
    """This attempt handed out records beyond an end that another attempt had settled; its retry stops there."""


class WireError(DiscoveryError):
    """What came over the network is not one of our own protocols, or does not fit what is held here."""


class StateError(DiscoveryError):
    """A state file is held by somebody else or cannot be written."""


class LedgerDamagedError(StateError):
    """A ledger of cuts holds what nobody wrote; it is never taken for an empty one."""


class LedgerFencedError(StateError):
    """Another process holds the ledger of cuts now; trying again will not help."""


class SinkRefusedError(DiscoveryError):
    """What a sink's markers say forbids this write; nothing of it was written. Names the remedy."""


class TransactionError(DiscoveryError):
    """A transaction did not end well, or nobody knows how it ended; the retry of the task finds out."""


class TransactionTimeoutError(TransactionError):
    """The brokers did not do it by the deadline; they may do it yet."""


class TransactionRefusedError(TransactionError):
    """The brokers refuse what a transaction asks for, and would again: no right, no such topic, too large a record."""


class FailureKind(Enum):
    """Why one call to Kafka failed; the loop treats each kind in its own way."""

    TRANSIENT = "transient"
    """Timeout, transport, leader not available: back off, ask another broker."""
    AUTH = "auth"
    """SASL or ACL refused us: retry slowly, never hammer."""
    TLS = "tls"
    """The TLS handshake failed."""
    TOPIC_UNKNOWN = "topic_unknown"
    """The broker does not know the topic."""
    EMPTY = "empty"
    """A successful answer without a broker in it: worth as little as no answer."""
    BUG = "bug"
    """Anything we did not expect."""


class GatewayError(DiscoveryError):
    """One call to Kafka failed. A value for the loop, never a reason to end a query."""

    exit_code: ClassVar[int] = 3

    def __init__(self, kind: FailureKind, detail: str) -> None:
        """Keep the kind beside one line of detail that names broker or topic."""
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
