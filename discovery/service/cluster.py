"""One cluster the service follows: its loop, what it shows, what it did. The hub wakes whoever waits for changes."""

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from discovery.config.settings import ClusterSettings, Settings
from discovery.core.clock import Clock
from discovery.core.decide import Decision
from discovery.core.errors import ConfigError
from discovery.core.interest import Interest
from discovery.core.model import Isolation
from discovery.core.policy import Policy
from discovery.core.questions import Wanted
from discovery.feed.base import FeedView
from discovery.feed.embedded import EmbeddedFeed, Vitals
from discovery.kafka.base import GatewayFactory, Vetter
from discovery.loop.demand import Demand, nothing
from discovery.service.counting import Counts
from discovery.service.events import Timeline
from discovery.service.reported import ReportedLists
from discovery.store.snapshots import file_name

_FIRST_TURN_SECONDS = 5.0
_FOLLOWED_SECONDS = 30.0
"""How long after the last question about offsets they are still kept fresh."""
_MOST_READERS = 64
"""Different interests that are distinguished; each topic's name is held against each of them once."""
EVERYTHING = ""
"""A pattern found in every name; internal topics are left out by the interest itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A view and the decision it was made from: one moment of one loop."""

    view: FeedView
    decision: Decision | None


def interest_of(settings: ClusterSettings) -> Interest:
    """Return which topics a cluster's settings follow."""
    if settings.topics:
        return Interest(topics=settings.topic_names, both_ends=True)
    return Interest(pattern=settings.topic_pattern or EVERYTHING, both_ends=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedMaker:
    """Builds the loop of one cluster, unstarted; does no I/O. Over librdkafka, where nothing else is given."""

    factory: GatewayFactory | None = None
    vetter: Vetter | None = None

    def __call__(
        self,
        settings: ClusterSettings,
        policy: Policy,
        *,
        state_dir: Path | None,
        name: str,
        on_decision: Callable[[Decision], None],
        demand: Demand,
    ) -> EmbeddedFeed:
        """Build it."""
        return EmbeddedFeed(
            bootstrap=settings.bootstrap_servers,
            interest=interest_of(settings),
            client_options=settings.client_options,
            policy=policy,
            state_dir=state_dir,
            source_id=name,
            cluster_id=settings.pin,
            factory=self.factory,
            vetter=self.vetter,
            on_decision=on_decision,
            demand=demand,
            log_context={"cluster": name},
        )


def check_clients(settings: Settings, names: Iterable[str], maker: FeedMaker) -> None:
    """Open these clusters' key and trust stores, and find out whether librdkafka takes their options; asks no broker.

    Raises:
        ConfigError: one cannot be opened, or an option is refused; names the cluster.

    Runs: at start, reload and `config check`; starts `keytool` for a JKS store.
    """
    for name in names:
        try:
            maker(
                settings.clusters[name],
                settings.policy(name),
                state_dir=None,
                name=name,
                on_decision=lambda _: None,
                demand=nothing,
            ).check()
        except ConfigError as error:
            raise ConfigError(f"clusters.{name}.client: {error}") from error


class Cluster:
    """A followed cluster under its name. Survives a change of its settings; thread-safe."""

    def __init__(
        self, name: str, settings: ClusterSettings, policy: Policy, *, clock: Clock, maker: FeedMaker, events_max: int
    ) -> None:
        """Follow nothing yet."""
        self.name = name
        self.settings = settings
        self.policy = policy
        self.epoch = os.urandom(8).hex()
        self.counts = Counts()
        self.timeline = Timeline(events_max)
        """What happened lately, also before the last restart once `start` has been called."""
        self.reported = ReportedLists()
        """Bootstrap lists of consumers, also before the last restart once `start` has been called."""
        self.began_at = float("inf")
        """When `start` was called; monotonic seconds."""
        self.on_change: Callable[[], None] = lambda: None
        """Called on the loop's thread after every decision; the hub sets it."""
        self._clock = clock
        self._maker = maker
        self._latest: tuple[FeedView, Decision, float] | None = None
        self._readers: dict[Interest, float] = {}
        """When each was last asked for; event loop's thread."""
        self._wanted: tuple[float, Wanted] = (float("-inf"), ())
        """Until when, and what."""
        self._changing = threading.Lock()
        self._feed: EmbeddedFeed | None = None
        self._speaker: EmbeddedFeed | None = None

    @property
    def is_read(self) -> bool:
        """What was kept before the last restart is read."""
        return self.began_at < float("inf")

    @property
    def feed(self) -> EmbeddedFeed | None:
        """The loop, once it was started."""
        return self._feed

    def demand(self) -> Wanted:
        """Say whose end offsets readers asked for lately: Kafka is asked for the others seldom. Any thread."""
        until, wanted = self._wanted
        return wanted if self._clock.monotonic() < until else ()

    def followed(self, interest: Interest | None, isolation: Isolation | None) -> bool:
        """Note what somebody reads; tell whether its offsets were not kept fresh until now.

        Args:
            interest: Topics or a pattern; None: all that is followed.
            isolation: Which ends it needs; None: both.

        Runs: the event loop's thread.
        """
        now, before = self._clock.monotonic(), self.demand()
        interest = interest or self.scope
        one = replace(interest, both_ends=isolation is None, isolation=isolation or interest.isolation)
        self._readers[one] = now
        lately = {each: at for each, at in self._readers.items() if now - at <= _FOLLOWED_SECONDS}
        if len(lately) > _MOST_READERS:  # too many to be distinguished
            lately = {self.scope: now}
        self._readers = lately
        self._wanted = (now + _FOLLOWED_SECONDS, tuple(lately))
        return one not in before and self.scope not in before

    @property
    def scope(self) -> Interest:
        """Which topics are followed at all."""
        return interest_of(self.settings)

    def start(self, state_dir: Path | None) -> None:
        """Begin to follow; blocks only for local files.

        Raises:
            ConfigError: librdkafka refuses the client options.
            StateError: another process holds the state.
            OSError: the state cannot be kept.
        """
        if state_dir is not None:
            wall = self._clock.wall()
            self.timeline.open(state_dir / "events" / file_name(self.name), wall=wall)
            self.reported.open(state_dir / "lists" / file_name(self.name), wall=wall)
        self.began_at = self._clock.monotonic()
        with self._changing:
            self._feed = self._begin(self.settings, self.policy, state_dir)

    def change(self, settings: ClusterSettings, policy: Policy, state_dir: Path | None) -> None:
        """Follow under other settings, or as before where those fail; the last view stays served meanwhile.

        Raises:
            ConfigError: librdkafka refuses the client options; the old loop runs again.
            StateError: another process holds the state; likewise.
            OSError: the state cannot be kept; likewise.

        Runs: a worker thread; blocks up to 5 s for the old loop to end.
        """
        with self._changing:
            if self._feed is not None:
                self._feed.stop()
            try:
                begun = self._begin(settings, policy, state_dir)
            except BaseException:
                self._feed = self._begin(self.settings, self.policy, state_dir)
                raise
            self.settings, self.policy, self._feed = settings, policy, begun

    def stop(self) -> None:
        """Stop following; blocks <= 5 s."""
        with self._changing:
            if self._feed is not None:
                self._feed.stop()
        self.reported.save()

    def shown(self) -> Shown | None:
        """Return what the loop shows, with the age of this moment; None before it was started."""
        latest, feed = self._latest, self._feed
        if latest is not None:
            view, decision, at = latest
            age_seconds = view.age_seconds + self._clock.monotonic() - at
            return Shown(view=replace(view, age_seconds=age_seconds), decision=decision)
        return Shown(view=feed.view(), decision=None) if feed is not None else None

    def vitals(self) -> Vitals:
        """Return how the loop is doing."""
        return self._feed.vitals() if self._feed is not None else Vitals(idle_seconds=None)

    def wall(self, monotonic: float | None) -> float | None:
        """Turn a moment of the loop into seconds since the epoch."""
        return None if monotonic is None else self._clock.wall() - self._clock.monotonic() + monotonic

    def _begin(self, settings: ClusterSettings, policy: Policy, state_dir: Path | None) -> EmbeddedFeed:
        def hear(decision: Decision) -> None:
            if self._speaker is feed:  # one that was replaced may have a last word
                self._hear(feed, decision)

        feed = self._maker(settings, policy, state_dir=state_dir, name=self.name, on_decision=hear, demand=self.demand)
        self._speaker = feed
        try:
            feed.start()
        except BaseException:
            feed.stop()
            raise
        # The first turn shows the saved view; an answer before it would tell followers that the generation went back.
        feed.wait(0, _FIRST_TURN_SECONDS)
        return feed

    def _hear(self, feed: EmbeddedFeed, decision: Decision) -> None:
        """Runs: the loop's thread."""
        wall = self._clock.wall()
        self.counts.take(decision, wall=wall, deadline_seconds=self.policy.request_timeout_seconds)
        if decision.events:
            self.timeline.add(decision.events, wall=wall)
            self._forget(decision)
        view = feed.view()
        before = self._latest
        if view.generation or before is None or not before[0].generation:  # a change of settings keeps the last view
            self._latest = (view, decision, self._clock.monotonic())
        self.on_change()

    def _forget(self, decision: Decision) -> None:
        snapshot = decision.state.snapshot
        if snapshot is not None:
            self.counts.forget(frozenset(map(str, decision.state.addresses)), frozenset(map(str, snapshot.topics)))
