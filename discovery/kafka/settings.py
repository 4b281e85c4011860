"""How our librdkafka clients are set up: timeouts from the policy, nothing created by asking, quiet logs."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from discovery.config.client.options import ClientOptions
from discovery.config.client.timeouts import LONGEST_MILLISECONDS
from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress

_log = logging.getLogger("discovery.kafka.client")

_MIN_SETUP_TIMEOUT_MILLISECONDS = 1_000
"""librdkafka refuses a smaller `socket.connection.setup.timeout.ms`."""
_FIRST_ANSWER_MILLISECONDS = 10_000
"""librdkafka's own `api.version.request.timeout.ms`."""

PROBE_TOPIC = "/"
"""An illegal name, so it can neither exist nor be created: asking for it is the cheapest way to hear of brokers alone.

`list_topics()` without a name would carry every topic of the cluster; `describe_cluster` goes to the controller,
in KRaft a random broker, which may be the dead one.
"""


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, at least 1."""
    return max(1, round(seconds * 1_000))


def client_properties(
    options: ClientOptions,
    bootstrap: Sequence[BrokerAddress],
    *,
    connect_timeout_seconds: float,
    request_timeout_seconds: float,
) -> dict[str, str | int | bool]:
    """Join the user's connection options with what discovery insists on; ours win.

    `socket.timeout.ms` stays at the request timeout: a hung broker is otherwise asked again and again, since
    librdkafka prefers its most recently used connection and only this timeout drops it.

    Runs: anywhere (pure).
    """
    answer = milliseconds(request_timeout_seconds)
    return {
        **options.connection,
        "bootstrap.servers": ",".join(map(str, bootstrap)),
        "allow.auto.create.topics": False,
        "enable.metrics.push": False,
        "socket.connection.setup.timeout.ms": max(
            _MIN_SETUP_TIMEOUT_MILLISECONDS, milliseconds(connect_timeout_seconds)
        ),
        "socket.timeout.ms": min(max(10, answer), LONGEST_MILLISECONDS),
        "api.version.request.timeout.ms": min(max(_FIRST_ANSWER_MILLISECONDS, answer), LONGEST_MILLISECONDS),
        "socket.max.fails": 1,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 500,
        "log.connection.close": False,
    }


class QuietLog:
    """Stands in for a `logging.Logger` inside librdkafka: a few lines a minute, the rest counted.

    One short outage of one broker writes dozens of lines; without a logger they would go to stderr.
    """

    def __init__(self, *, lines: int = 20, window_seconds: float = 60.0) -> None:
        self._lines = lines
        self._window_seconds = window_seconds
        self._lock = threading.Lock()
        self._window_start = 0.0
        self._written = 0
        self._dropped = 0

    def log(self, _level: int, message: str, *arguments: object) -> None:
        """Write one line of librdkafka at level INFO, or drop it.

        Runs: whichever thread polls the client; never blocks.
        """
        allowed, dropped = self._take(time.monotonic())
        if dropped:
            _log.info("dropped %d log lines of the Kafka client", dropped)
        if allowed:
            _log.info(message, *arguments)

    def _take(self, now: float) -> tuple[bool, int]:
        with self._lock:
            dropped = 0
            if now - self._window_start >= self._window_seconds:
                self._window_start, self._written, dropped, self._dropped = now, 0, self._dropped, 0
            self._written += 1
            allowed = self._written <= self._lines
            self._dropped += not allowed
            return allowed, dropped


def make_client(properties: Mapping[str, Any], log: QuietLog) -> AdminClient:
    """Build the client; it begins to connect in the background.

    Raises:
        ConfigError: librdkafka refuses a property; its text names it.

    Runs: anywhere; about a millisecond, a few more with TLS.
    """
    try:
        return AdminClient(dict(properties), logger=log)
    except KafkaException as exc:
        raise ConfigError(f"kafka options: {exc.args[0].str()}") from exc
