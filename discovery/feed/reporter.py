"""Tells the service who reads, from where and how far, and holds the reader's id there.

An id has one living holder. Source: docs/decisions/0016-the-service-and-its-followers.md.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from discovery.config.logs import event_log
from discovery.core.clock import Clock
from discovery.core.errors import DiscoveryError, StateError
from discovery.core.model import BrokerAddress, Generation, Isolation, TopicPartition
from discovery.feed.identity import instance_name, is_surely_dead
from discovery.feed.service_client import ConsumerIdTakenError, ServiceClient, ServiceUnavailableError
from discovery.feed.wire import nested

_REPORT_SECONDS = 2.0
_RETRY_SECONDS = 0.25
_LONGEST = 200
_OWNER_SECONDS = 15.0
"""How long a start waits for the last holder of its id to be forgotten."""
_log = event_log("discovery.feed")


class Reporter:
    """The reports of one reader. Thread-safe; the constructor does no I/O."""

    def __init__(
        self,
        client: ServiceClient,
        *,
        consumer_id: str | None,
        isolation: Isolation,
        bootstrap: Sequence[BrokerAddress],
        parked: Callable[[], Mapping[TopicPartition, str]],
        fallback: Callable[[], str],
        stopping: threading.Event,
        clock: Clock,
    ) -> None:
        """Remember who reports.

        Args:
            client: Carries the reports.
            consumer_id: Names the reader; one living process may hold it. A name of its own if None.
            isolation: What the reader sees of open transactions.
            bootstrap: The reader's own list.
            parked: Tells the reader's parked partitions, each with its reason.
            fallback: Returns why the reader does not follow the service now; empty while it does.
            stopping: Ends `run` and all waiting.
            clock: For the deadline of a claim.
        """
        self.positions: Mapping[TopicPartition, int] = {}
        """Where the reader stands; goes with the next report."""
        self.instance = instance_name()
        """This process's own name."""
        self._client = client
        self._named = consumer_id is not None
        self._consumer_id = consumer_id or self.instance
        self._isolation = isolation
        self._bootstrap = tuple(bootstrap)
        self._parked = parked
        self._fallback = fallback
        self._stopping = stopping
        self._clock = clock
        self._due = threading.Event()
        self._replaces = ""
        self._acked: dict[str, Any] = {}
        self._lost_id = False

    def claim(self) -> None:
        """Claim a given id before anything else: two queries under one id would write over each other's state.

        Raises:
            StateError: another living process holds it.

        Runs: the thread that starts the reader; blocks up to 15 s until a last holder is forgotten, and as long while
        the service is starting or has no room: one that answers neither way in that time is passed over.
        """
        if not self._named:
            return
        deadline = self._clock.monotonic() + _OWNER_SECONDS
        while not self._is_claimed(deadline) and not self._stopping.wait(_RETRY_SECONDS):
            pass

    def _is_claimed(self, deadline: float) -> bool:
        """Claim once; True also where there is no service: then the state folder's lock decides."""
        try:
            self._client.report(self._consumer_id, self._document())
        except ConsumerIdTakenError as error:
            if self._inherits(error.holder):
                return self._is_claimed(deadline)
            if self._clock.monotonic() >= deadline:
                text = f"sourceId {self._consumer_id!r}: {error}"
                raise StateError(text) from error
            return False
        except ServiceUnavailableError:
            return self._clock.monotonic() >= deadline
        except DiscoveryError:
            return True
        return True

    def run(self) -> None:
        """Report every two seconds, sooner when woken, until `stopping` is set. Runs: a thread of its own."""
        while not self._stopping.is_set():
            _quietly(self._report)
            self._due.wait(_REPORT_SECONDS)
            self._due.clear()
            self._stopping.wait(_RETRY_SECONDS)

    def ack(self, generation: Generation) -> None:
        """Report now that the reader has taken up this generation of the service's view. Returns at once."""
        self._acked = {"acked_generation": generation}
        self._due.set()

    def wake(self) -> None:
        """Let the next report be made now. Returns at once."""
        self._due.set()

    def unregister(self) -> None:
        """Give the id back. Blocks for one request; a service that is not there is passed over."""
        _quietly(lambda: self._client.unregister(self._consumer_id, self.instance))

    def _inherits(self, holder: str) -> bool:
        """Tell whether the holder of our id was a process of this host that has ended: then its id is ours."""
        if holder == self._replaces or not is_surely_dead(holder):
            return False
        _log.info("consumer_id_inherited", consumer=self._consumer_id, ended=holder)
        self._replaces = holder
        return True

    def _report(self) -> None:
        try:
            self._client.report(self._consumer_id, self._document())
        except ConsumerIdTakenError as error:
            if not self._lost_id:
                remedy = "this reader was silent too long: stop one of the two"
                _log.warning("consumer_id_lost", consumer=self._consumer_id, error=str(error), remedy=remedy)
            self._lost_id = True
        else:
            self._lost_id = False

    def _document(self) -> dict[str, Any]:
        return {
            "instance": self.instance,
            "replaces": self._replaces,
            "kind": "spark",
            "isolation_level": self._isolation.value,
            "positions": nested(self.positions),
            "parked": nested(self._parked()),
            "fallback": self._fallback()[:_LONGEST],
            "bootstrap_servers": [str(address) for address in self._bootstrap],
            **self._acked,
        }


def _quietly(work: Callable[[], None]) -> None:
    try:
        work()
    except (DiscoveryError, RuntimeError) as error:  # httpx raises RuntimeError once it is closed
        _log.debug("not_reported", error=str(error))
