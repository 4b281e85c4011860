"""Who waits for a change of a cluster, and how they are all answered at once.

Everything here lives on the event loop's thread, except `changed`, which the discovery loop calls. Two kinds of
waiters: for a new *generation* (seldom; there may be ten thousand of them) and for a new *version* (offsets too, many
times a second; a handful of them). Answers are encoded once per change, not once per waiter.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from discovery.core.errors import DiscoveryError
from discovery.core.interest import Interest
from discovery.core.model import Generation, TopicPartition
from discovery.feed.base import FeedView
from discovery.feed.wire import Position, encode_view
from discovery.service.api.patterns import Patterns
from discovery.service.cluster import Cluster, Shown

_CALM_SECONDS = 0.05
"""Least time between two versions: leaders answer one by one, followers need not hear of each."""
_REMEMBERED = 256
"""Versions for which changes can be listed; a follower further behind gets a whole view."""

_KEPT_ANSWERS = 64
"""Different answers to followers kept per version: each may hold fifty thousand partitions."""


class TooManyWaitersError(DiscoveryError):
    """The cap of waiting requests is reached."""


@dataclass(slots=True)
class Waiters:
    """How many requests wait now, over all clusters."""

    limit: int
    now: int = 0
    stopping: bool = False

    def enter(self) -> None:
        """Count one more.

        Raises:
            TooManyWaitersError: the cap is reached.
        """
        if self.now >= self.limit:
            raise TooManyWaitersError(f"{self.limit} requests wait already (api.waiters_max); try again later")
        self.now += 1

    def leave(self) -> None:
        """Count one less."""
        self.now -= 1


@dataclass(slots=True)
class _Bell:
    """Wakes all that wait; the next ones wait for the next ring."""

    _event: asyncio.Event = field(default_factory=asyncio.Event)

    def ring(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass


class Hub:
    """The waiting room of one cluster. Event loop's thread only, except `changed`."""

    def __init__(self, cluster: Cluster, waiters: Waiters, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen to the cluster."""
        self.cluster = cluster
        self._waiters = waiters
        self._loop = loop
        self._generation_bell, self._version_bell = _Bell(), _Bell()
        self._shown: Shown | None = None
        self._version = 0
        self._floor = 1
        self._changes: deque[tuple[int, frozenset[TopicPartition]]] = deque(maxlen=_REMEMBERED)
        self._pending = False
        self._notified_at = float("-inf")
        self._cache: dict[object, tuple[Generation, bytes]] = {}
        self._follow_cache: dict[object, bytes] = {}
        self._patterns = Patterns()
        cluster.on_change = self.changed

    @property
    def position(self) -> Position:
        """Where a follower that has everything stands."""
        return Position(epoch=self.cluster.epoch, version=self._version)

    def changed(self) -> None:
        """Hear of a new picture. Runs: the discovery loop's thread; never blocks."""
        if not self._pending and not self._loop.is_closed():
            self._pending = True
            self._loop.call_soon_threadsafe(self._soon)

    def shown(self) -> Shown | None:
        """Return what the cluster shows, with the age of this moment."""
        return self.cluster.shown()

    def flush(self) -> None:
        """Show the newest picture now, without the calm between versions: somebody asked for it."""
        self._tell()

    def close(self) -> None:
        """Answer everybody who waits."""
        self._generation_bell.ring()
        self._version_bell.ring()

    async def wait_generation(self, generation: int, epoch: str | None, seconds: float) -> Shown | None:
        """Return at once where the follower is behind, ahead or of another epoch; else after a change or `seconds`.

        Raises:
            TooManyWaitersError: too many wait already.
        """
        deadline = self._loop.time() + seconds
        while ((shown := self.shown()) is None or shown.view.generation == generation) and not self._is_over(
            epoch, deadline
        ):
            await self._rest(self._generation_bell, deadline)
        return shown

    async def wait_version(self, held: Position, seconds: float) -> FeedView | None:
        """Return the view when it is newer than `held`, else the same one after `seconds`; None before there is one."""
        deadline = self._loop.time() + seconds
        while self._version <= held.version and not self._is_over(held.epoch or None, deadline):
            await self._rest(self._version_bell, deadline)
        return self._shown.view if self._shown else None

    def follow_bytes(self, view: FeedView, held: Position, interest: Interest | None, key: object) -> bytes:
        """Return the document that brings a follower from `held` to `view`; made once for all that stand there.

        Args:
            view: From `wait_version`, without having awaited anything since.
            held: Where the follower stands.
            interest: Whose partitions it wants; None: all.
            key: Equal for equal interests.
        """
        since = held.version if held.epoch == self.cluster.epoch and self._floor <= held.version <= self._version else 0
        place = (since, key)
        if place not in self._follow_cache:
            every = view.partitions if not since else self._changed_since(since, view)
            wanted = self._patterns.chosen(interest, every)
            document = encode_view(
                view, position=self.position, since=since, partitions=wanted, scope=self.cluster.scope
            )
            body = encoded(document)
            if len(self._follow_cache) >= _KEPT_ANSWERS:
                return body
            self._follow_cache[place] = body
        return self._follow_cache[place]

    def cached(self, name: object, shown: Shown, make: Callable[[], dict[str, Any]]) -> bytes:
        """Return a document of the snapshot, made once per generation."""
        generation = shown.view.generation
        known = self._cache.get(name)
        if known is None or known[0] != generation:
            known = self._cache[name] = (generation, encoded(make()))
        return known[1]

    def _is_over(self, epoch: str | None, deadline: float) -> bool:
        other = epoch is not None and epoch != self.cluster.epoch
        return other or self._waiters.stopping or self._loop.time() >= deadline

    async def _rest(self, bell: _Bell, deadline: float) -> None:
        self._waiters.enter()
        try:
            await bell.wait(deadline - self._loop.time())
        finally:
            self._waiters.leave()

    def _soon(self) -> None:
        wait = self._notified_at + _CALM_SECONDS - self._loop.time()
        if wait > 0:
            self._loop.call_later(wait, self._tell)
        else:
            self._tell()

    def _tell(self) -> None:
        self._pending = False
        self._notified_at = self._loop.time()
        shown, before = self.cluster.shown(), self._shown
        if shown is None:
            return
        self._shown = shown
        self._version += 1
        self._follow_cache.clear()
        self._note(before.view if before else None, shown.view)
        self._version_bell.ring()
        if before is None or before.view.generation != shown.view.generation:
            self._generation_bell.ring()

    def _note(self, before: FeedView | None, now: FeedView) -> None:
        """Remember which partitions this version changed; where some vanished, followers need a whole view."""
        if before is not None and before.partitions is now.partitions:
            self._remember(frozenset())
            return
        if before is None or not before.partitions.keys() <= now.partitions.keys():
            self._changes.clear()
            self._floor = self._version
            return
        old = before.partitions
        changed = frozenset(
            tp for tp, one in now.partitions.items() if (known := old.get(tp)) is not one and known != one
        )
        self._remember(changed)

    def _remember(self, changed: frozenset[TopicPartition]) -> None:
        if len(self._changes) == _REMEMBERED:
            self._floor = self._changes[0][0]
        self._changes.append((self._version, changed))

    def _changed_since(self, version: int, view: FeedView) -> list[TopicPartition]:
        found: set[TopicPartition] = set()
        for at, changed in reversed(self._changes):
            if at <= version:
                break
            found |= changed
        return sorted(tp for tp in found if tp in view.partitions)


def encoded(document: object) -> bytes:
    """Return JSON as short as it gets; infinities, which JSON lacks, must not be in it."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
