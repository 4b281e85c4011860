"""The feed that follows a service by HTTP, and looks for itself where that one is silent.

One thread follows; a second one reports to the service; a third one hands on what an embedded loop sees, while it runs.
The embedded loop begins when the service has been silent, or its view has been old, for longer than `Limits` allow, and
ends once the service was back for a while. What is shown never becomes empty in between: the last view stays until a
better one is there. Source: docs/decisions/0016-the-service-and-its-followers.md.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from discovery.config.clock import SystemClock
from discovery.config.logs import event_log
from discovery.core.clock import Clock
from discovery.core.errors import BUG_PHRASE, DiscoveryError, KafkaUnreachableError, StateError, WireError
from discovery.core.interest import Interest
from discovery.core.model import BrokerAddress, ClusterId, Generation, TopicPartition
from discovery.feed.base import FeedView, SourceFeed, cold_view
from discovery.feed.following import Following
from discovery.feed.leading import Limits, Mode, embedded_loop_is_due
from discovery.feed.reporter import Reporter
from discovery.feed.service_client import ServiceClient, ServiceRefusesError, ServiceSilentError
from discovery.feed.wire import Position, covers, decode_position, decode_view, flat, nested

_T = TypeVar("_T")
_WAIT_SECONDS = 1.0
"""How long one question waits for a change: a frozen service is noticed this much later."""
_NO_TOPIC = "/"
"""No name of a topic: asks the service for brokers alone, where an empty list of topics means all of them."""
_RETRY_SECONDS = 0.25
_STEP_SECONDS = 0.25
_END_SECONDS = 2.0
_SERVICE_SHARE = 0.5
"""How much of a question's time the service gets, so that the embedded loop has the rest."""
_log = event_log("discovery.feed")


class SidecarFeed:
    """`SourceFeed` over a service, with an embedded loop in reserve. Thread-safe; the constructor does no I/O."""

    def __init__(
        self,
        client: ServiceClient,
        *,
        bootstrap: Sequence[BrokerAddress],
        interest: Interest,
        embedded_loop: Callable[[tuple[BrokerAddress, ...]], SourceFeed],
        consumer_id: str | None = None,
        cluster_id: ClusterId | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Remember whom to follow.

        Args:
            client: Asks the service.
            bootstrap: The reader's own list: for the embedded loop, and reported to the service.
            interest: Which partitions to follow.
            embedded_loop: Makes the reserve, from the list and what the service has taught meanwhile.
            consumer_id: Names this reader at the service; one living process may hold it. A name of its own if None.
            cluster_id: The right cluster, if the user says so.
            limits: When to leave the service, and when to return to it; the defaults of `Limits` if None.
            clock: The system's if None.
        """
        self._client = client
        self._bootstrap = tuple(bootstrap)
        self._interest = interest
        self._make_embedded_loop = embedded_loop
        self._cluster_id = cluster_id
        self._limits = limits or Limits()
        self._clock = clock or SystemClock()
        self._lock = threading.Condition()
        self._stopping = threading.Event()
        self._reporter = Reporter(
            client,
            consumer_id=consumer_id,
            isolation=interest.isolation,
            bootstrap=self._bootstrap,
            parked=self._parked,
            fallback=lambda: self.fallback,
            stopping=self._stopping,
            clock=self._clock,
        )
        self._threads: list[threading.Thread] = []
        self._began = float("inf")
        self._embedded: SourceFeed | None = None
        self._complaint = ""
        cold = cold_view(self._bootstrap, cluster_id, f"cold: {client.url} was not asked yet")
        self._known = Following(view=cold, shown_at=self._clock.monotonic())

    @property
    def mode(self) -> Mode:
        """Whose view is shown now."""
        return self._known.mode

    @property
    def fallback(self) -> str:
        """Why the embedded loop leads in the service's place; empty while it does not."""
        return self._complaint or "the service has only just come back" if self.mode is Mode.EMBEDDED_LOOP else ""

    def start(self) -> None:
        """See `PartitionFeed.start`. Waits up to 15 s for the last holder of a named source to be forgotten."""
        with self._lock:
            if self._threads:
                return
            self._began = self._clock.monotonic()
            names = {"follow": self._follow, "report": self._reporter.run, "embedded loop": self._hand_on}
            self._threads = [
                threading.Thread(target=self._guarded, args=(work,), name=f"kafka-discovery {name}", daemon=True)
                for name, work in names.items()
            ]
        self._reporter.claim()
        for thread in self._threads:
            thread.start()

    def view(self) -> FeedView:
        """See `PartitionFeed.view`."""
        with self._lock:
            shown, waited_seconds = self._known.view, self._clock.monotonic() - self._known.shown_at
            return replace(shown, age_seconds=shown.age_seconds + waited_seconds, fallback=self.fallback)

    def wait(self, version: int, timeout_seconds: float) -> FeedView:
        """See `PartitionFeed.wait`."""
        with self._lock:
            self._lock.wait_for(lambda: self._known.view.version > version, timeout_seconds)
        return self.view()

    def refresh(self, timeout_seconds: float) -> FeedView:
        """See `PartitionFeed.refresh`."""
        self._refuse_after_stop()
        began = self._clock.monotonic()
        if self.mode is not Mode.EMBEDDED_LOOP:
            try:
                self._client.refresh(timeout_seconds * _SERVICE_SHARE)
                self._take(*self._ask(Position(), wait_seconds=0.0))
                return self.view()
            except (ServiceSilentError, WireError, KafkaUnreachableError) as error:
                _log.info("service_did_not_help", error=str(error), consequence="the embedded loop is asked")
        own = self._embedded_loop()
        view = own.refresh(max(0.1, timeout_seconds - (self._clock.monotonic() - began)))
        with self._lock:
            now = self._clock.monotonic()
            self._show(self._known.of_embedded_loop(view, now=now, limits=self._limits), Mode.EMBEDDED_LOOP, now)
        return self.view()

    def ack(self, generation: Generation) -> None:
        """See `PartitionFeed.ack`; only what came from the service is acknowledged to it."""
        with self._lock:
            known = self._known.generation
            if known is not None and known[0] is Mode.SERVICE and self._known.view.generation == generation:
                self._reporter.ack(known[2])

    def note_plan(self) -> None:
        """See `PartitionFeed.note_plan`; the service has a rhythm of its own."""
        own = self._embedded
        if own is not None:
            own.note_plan()

    def report(self, positions: Mapping[TopicPartition, int]) -> None:
        """Say where the reader stands; reported to the service now and then. From memory."""
        self._reporter.positions = positions

    def resolve(
        self, wanted: Mapping[TopicPartition, int], *, timeout_seconds: float, by_timestamp: bool = False
    ) -> Mapping[TopicPartition, int]:
        """See `OffsetService.resolve`."""
        isolation = self._interest.isolation.value
        return self._either(
            lambda left: flat(
                self._client.resolve(
                    nested(wanted), by_timestamp=by_timestamp, isolation=isolation, timeout_seconds=left
                )
            ),
            lambda own, left: own.resolve(wanted, timeout_seconds=left, by_timestamp=by_timestamp),
            timeout_seconds,
        )

    def committed(
        self, group: str, partitions: Collection[TopicPartition], *, timeout_seconds: float
    ) -> Mapping[TopicPartition, int]:
        """See `OffsetService.committed`."""
        topics = ",".join(sorted({tp.topic for tp in partitions}))
        answered = self._either(
            lambda left: flat(self._client.committed(group, topics, timeout_seconds=left)),
            lambda own, left: own.committed(group, partitions, timeout_seconds=left),
            timeout_seconds,
        )
        return {tp: answered[tp] for tp in partitions if tp in answered}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_seconds: float) -> None:
        """See `OffsetService.commit_offsets`."""
        self._either(
            lambda left: self._client.commit(group, nested(offsets), timeout_seconds=left),
            lambda own, left: own.commit_offsets(group, offsets, timeout_seconds=left),
            timeout_seconds,
        )

    def stop(self) -> None:
        """See `PartitionFeed.stop`."""
        if self._stopping.is_set():
            return
        deadline = self._clock.monotonic() + _END_SECONDS
        with self._lock:  # an embedded loop is made under it, so none is made from here on
            self._stopping.set()
            own, self._embedded = self._embedded, None
        self._reporter.wake()
        ending = threading.Thread(target=own.stop, name="kafka-discovery end", daemon=True) if own else None
        if ending is not None:
            ending.start()
        for thread in self._threads:  # a report on its way would register us again after it is unregistered
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - self._clock.monotonic()))
        self._reporter.unregister()
        self._client.close()
        if ending is not None:
            ending.join(_END_SECONDS)

    # -- the service --------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self._take(*self._ask(self._known.held, wait_seconds=_WAIT_SECONDS))
            except (ServiceSilentError, WireError, KafkaUnreachableError) as error:
                self._not_heard(str(error))
                self._stopping.wait(_RETRY_SECONDS)

    def _ask(self, held: Position, *, wait_seconds: float) -> tuple[Position, dict[str, Any], float]:
        names = self._interest.asked_topics
        document, age_seconds = self._client.follow(
            held,
            topics=None if names is None else ",".join(names) or _NO_TOPIC,
            pattern=self._interest.pattern,
            isolation=self._interest.isolation.value,
            wait_seconds=wait_seconds,
            silence_seconds=max(1.0, self._limits.silence_seconds - _WAIT_SECONDS),
        )
        return held, document, age_seconds

    def _take(self, held: Position, document: dict[str, Any], age_seconds: float) -> None:
        """Take in an answer to a question from `held`; an outdated one is dropped."""
        position = decode_position(document)
        now = self._clock.monotonic()
        with self._lock:
            known = self._known
            outdated = position.epoch == known.held.epoch and position.version < known.held.version
            if outdated or (document.get("since") and held != known.held):
                return
            view = decode_view(
                document, held=known.service_view, interest=self._interest, version=0, age_seconds=age_seconds
            )
            problem = self._problem(view, document)
            known = known.of_service(
                view, position, is_usable=not problem, age_seconds=age_seconds, now=now, limits=self._limits
            )
            if problem:
                self._set(known)
            else:
                if now - known.fresh_at > self._limits.age_seconds:
                    problem = f"it has heard nothing from Kafka lately: {view.sentence}"
                self._show(known, known.choice(now, self._limits), now)
        self._complain(problem)

    def _problem(self, view: FeedView, document: Mapping[str, Any]) -> str:
        """Say why a view of the service cannot be used, or nothing."""
        if not covers(document, self._interest):
            return "it does not follow all topics wanted here; extend `topics` or `topic_pattern` of that service"
        if not view.generation:
            return f"it has no view yet: {view.sentence}"
        expected = self._cluster_id or (self._known.view.cluster_id if self.mode is not Mode.NOBODY else None)
        if expected is not None and view.cluster_id != expected:
            return f"it follows cluster {view.cluster_id}, not {expected}"
        return ""

    def _not_heard(self, why: str) -> None:
        with self._lock:
            self._set(self._known.unheard())
        self._complain(why)

    def _complain(self, why: str) -> None:
        """Log each new trouble with the service once, and its end."""
        if why != self._complaint:
            self._complaint = why
            if why:
                _log.warning("service_unusable", url=self._client.url, reason=why, consequence="looking for ourselves")
            else:
                _log.info("service_usable", url=self._client.url)

    # -- the embedded loop -------------------------------------------------------------------------------------------

    def _hand_on(self) -> None:
        """Begin the embedded loop when it is time, show what it sees, end it when the service is back."""
        version = -1
        while not self._stopping.wait(0 if self._embedded is not None else _STEP_SECONDS):
            if self._embedded is None:
                version = -1
                if not self._embedded_loop_is_due():
                    continue
            view = self._embedded_loop().wait(version, _STEP_SECONDS)
            version = view.version
            self._show_own(view)

    def _embedded_loop_is_due(self) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            return embedded_loop_is_due(
                self._known.heard(now, self._limits), running_seconds=now - self._began, limits=self._limits
            )

    def _embedded_loop(self) -> SourceFeed:
        """Return the embedded loop, begun where it was not.

        Raises:
            KafkaUnreachableError: this feed was stopped, or the loop cannot start: its state is held by another
                process, the disk is full.
        """
        with self._lock:
            self._refuse_after_stop()
            if self._embedded is None:
                learned = dict.fromkeys((*self._bootstrap, *self._known.view.bootstrap))
                self._embedded = self._make_embedded_loop(tuple(learned))
                _log.warning("embedded_loop_begins", service=self._client.url, bootstrap=[str(a) for a in learned])
            own = self._embedded
        try:
            own.start()
        except (StateError, OSError) as error:
            with self._lock:
                if self._embedded is own:
                    self._embedded = None
            raise KafkaUnreachableError(
                f"{self._client.url} does not help, and no embedded loop can start in its place: {error}"
            ) from error
        if self._stopping.is_set():  # `stop` may have come before there was anything to stop
            own.stop()
            self._refuse_after_stop()
        return own

    def _refuse_after_stop(self) -> None:
        if self._stopping.is_set():
            raise KafkaUnreachableError("this reader was stopped")

    def _show_own(self, view: FeedView) -> None:
        ended: SourceFeed | None = None
        now = self._clock.monotonic()
        with self._lock:
            known = self._known.of_embedded_loop(view, now=now, limits=self._limits)
            mode = known.choice(now, self._limits)
            if mode is Mode.SERVICE is known.mode:
                self._set(known)
            else:
                self._show(known, mode, now)
            steady_seconds = self._known.heard(now, self._limits).service_steady_seconds
            if self.mode is Mode.SERVICE and steady_seconds >= self._limits.return_seconds:
                ended, self._embedded = self._embedded, None
                self._set(self._known.without_embedded_loop())
        if ended is not None:
            _log.info("embedded_loop_ends", service=self._client.url)
            ended.stop()

    # -- what is shown ------------------------------------------------------------------------------------------

    def _show(self, known: Following, mode: Mode, now: float) -> None:
        """Take over what is known and show the view of a mode; the lock is held."""
        instead = f"embedded loop in place of {self._client.url} ({self._complaint or 'it is old'})"
        self._set(known.show(mode, now=now, wall=self._clock.wall(), instead=instead))

    def _set(self, known: Following) -> None:
        """Take over what is known; the lock is held."""
        before, self._known = self._known, known
        if known.mode is not before.mode and known.generation is not None:
            shown = known.generation[2]
            _log.info("view_shown", of=known.mode.value, service=self._client.url, generation=shown)
        if known.view is not before.view:
            self._lock.notify_all()

    # -- helpers ------------------------------------------------------------------------------------------------

    def _parked(self) -> dict[TopicPartition, str]:
        with self._lock:
            return {tp: one.parked_reason for tp, one in self._known.view.partitions.items() if one.parked_reason}

    def _either(
        self, service: Callable[[float], _T], embedded_loop: Callable[[SourceFeed, float], _T], timeout_seconds: float
    ) -> _T:
        """Ask the service, and the embedded loop where that one does not help, within one budget."""
        self._refuse_after_stop()
        began = self._clock.monotonic()
        if self.mode is not Mode.EMBEDDED_LOOP:
            try:
                return service(timeout_seconds * _SERVICE_SHARE)
            except ServiceRefusesError:
                raise  # an embedded loop for each commit would cost more than the sentence that says what to set
            except (ServiceSilentError, KafkaUnreachableError) as error:
                _log.info("service_did_not_help", error=str(error), consequence="the embedded loop is asked")
        own = self._embedded_loop()
        return embedded_loop(own, max(0.1, timeout_seconds - (self._clock.monotonic() - began)))

    def _guarded(self, work: Callable[[], None]) -> None:
        """Keep a thread at its work whatever happens: the last view must not freeze unnoticed."""
        while not self._stopping.is_set():
            try:
                work()
            except DiscoveryError as error:
                if not self._stopping.is_set():
                    _log.warning("retrying", error=str(error))
            except Exception:  # noqa: BLE001 - logged under the phrase that tests look for
                if not self._stopping.is_set():
                    _log.exception("bug", sentence=BUG_PHRASE)
            self._stopping.wait(1.0)
