"""What each route of the API does."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from starlette.responses import PlainTextResponse, Response

from discovery.config.logs import LEVELS, current_level, set_level
from discovery.core.errors import ConfigError, DiscoveryError, KafkaUnreachableError
from discovery.core.interest import Interest
from discovery.core.model import BrokerId, Isolation, TopicName, TopicPartition
from discovery.core.prediction.removal import judge, parse_broker_ids, verify
from discovery.core.prediction.removal_report import removal_document
from discovery.feed.wire import Position, nested
from discovery.service.api.documents import (
    brokers_document,
    consumer_document,
    snapshot_document,
    status_document,
    topic_document,
)
from discovery.service.api.patterns import is_cheap
from discovery.service.api.responses import ApiError, answer, etag, freshness
from discovery.service.api.routes import Call
from discovery.service.cluster import Shown
from discovery.service.consumers import parse_report
from discovery.service.hub import Hub
from discovery.service.service import Service

_T = TypeVar("_T")
_WAIT_SECONDS = 30.0
_ASK_SECONDS = 10.0
_FIRST_SECONDS = 1.0
_EVENTS = 100
_EARLIEST, _LATEST = -2, -1
_DIGITS = 10


class Api:
    """The handlers, over one service. Event loop's thread."""

    def __init__(self, service: Service) -> None:
        """Answer for this service."""
        self._service = service

    async def clusters(self, _: Call) -> Response:
        """List the clusters."""
        return answer({"clusters": [self._status(hub) for hub in self._service.hubs.values()]})

    async def snapshot(self, call: Call) -> Response:
        """Return the agreed view, or 304 where the caller has it."""
        hub, shown = await self._fresh(call)
        return self._snapshot(call, hub, shown)

    async def watch(self, call: Call) -> Response:
        """Return the agreed view once its generation differs from the caller's; 304 after the wait."""
        hub = self._service.hub(call.cluster)
        epoch, generation = call.text("epoch"), call.number("generation", -1)
        shown = await hub.wait_generation(generation, epoch, call.duration("wait", _WAIT_SECONDS))
        if shown is None:
            raise ApiError(503, "the loop was not started yet; try again")
        tag = etag(hub.cluster.epoch, shown.view.generation)
        if shown.view.generation == generation and epoch in (None, hub.cluster.epoch):
            return Response(status_code=304, headers={"ETag": tag, **freshness(shown.view)})
        return self._snapshot_body(hub, shown, tag)

    async def follow(self, call: Call) -> Response:
        """Return what changed since the caller's version, offsets included."""
        hub = self._service.hub(call.cluster)
        held = Position(epoch=call.text("epoch") or "", version=call.number("version", 0))
        interest, key = _interest(call.text("topics"), call.text("pattern"))
        isolation = _isolation(call.text("isolation")) if call.text("isolation") else None
        if hub.cluster.followed(interest, isolation) and (shown := hub.shown()) is not None and shown.view.generation:
            # Ends were asked for seldom until now; a reader that begins at "latest" must not begin before it.
            with contextlib.suppress(ApiError):
                await self._refresh(hub, _FIRST_SECONDS)
        view = await hub.wait_version(held, call.duration("wait", _WAIT_SECONDS))
        if view is None:
            raise ApiError(503, "the loop has shown nothing yet; try again")
        shown = hub.shown()
        return answer(hub.follow_bytes(view, held, interest, key), headers=freshness(shown.view if shown else view))

    async def bootstrap(self, call: Call) -> Response:
        """Return the vetted list as text, ready for a client's option."""
        _, shown = await self._fresh(call)
        if not shown.view.bootstrap:
            raise ApiError(503, f"no broker is known to be alive: {shown.view.sentence}")
        text = ",".join(map(str, shown.view.bootstrap)) + "\n"
        return PlainTextResponse(text, headers=freshness(shown.view))

    async def brokers(self, call: Call) -> Response:
        """Return every address and what is thought of it."""
        hub, shown = await self._fresh(call)
        return answer(brokers_document(hub.cluster, shown), headers=freshness(shown.view))

    async def topic(self, call: Call) -> Response:
        """Return one topic."""
        hub, shown = await self._fresh(call)
        document = topic_document(hub.cluster, shown, TopicName(call.path("topic")))
        if document is None:
            raise ApiError(404, f"topic {call.path('topic')[:100]!r} is not known in this cluster, or not followed")
        return answer(document, headers=freshness(shown.view))

    async def status(self, call: Call) -> Response:
        """Return how the cluster is doing."""
        hub = self._service.hub(call.cluster)
        shown = hub.shown()
        if shown is None:
            raise ApiError(503, "the loop was not started yet; try again")
        return answer(self._status(hub), headers=freshness(shown.view))

    async def events(self, call: Call) -> Response:
        """Return what happened lately."""
        hub = self._service.hub(call.cluster)
        found = hub.cluster.timeline.since(call.number("since", 0), limit=call.number("limit", _EVENTS) or 1)
        return answer({"cluster": hub.cluster.name, "events": [one.document() for one in found]})

    async def refresh(self, call: Call) -> Response:
        """Ask Kafka now; all that ask at the same time share one question."""
        hub = self._service.hub(call.cluster)
        await self._refresh(hub, call.duration("timeout", _ASK_SECONDS))
        return answer(self._status(hub))

    async def resolve(self, call: Call) -> Response:
        """Turn earliest, latest or timestamps into offsets."""
        hub = self._service.hub(call.cluster)
        body = await call.body()
        wanted, by_timestamp = _wanted(body)
        isolation = _isolation(call.text("isolation"))
        timeout = call.duration("timeout", _ASK_SECONDS)
        feed = hub.cluster.feed
        if feed is None:
            raise ApiError(503, "the loop was not started yet; try again")
        reported = await self._ask(
            hub, lambda: feed.resolve(wanted, timeout_seconds=timeout, by_timestamp=by_timestamp, isolation=isolation)
        )
        return answer({"offsets": nested(reported)})

    async def group(self, call: Call) -> Response:
        """Return a consumer group's committed offsets on the followed partitions."""
        hub = self._service.hub(call.cluster)
        shown, feed = hub.shown(), hub.cluster.feed
        if feed is None or shown is None:
            raise ApiError(503, "the loop was not started yet; try again")
        interest, _ = _interest(call.text("topics"), None)
        partitions = [tp for tp in shown.view.partitions if interest is None or interest.wants(tp)]
        timeout = call.duration("timeout", _ASK_SECONDS)
        reported = await self._ask(hub, lambda: feed.committed(call.path("group"), partitions, timeout_seconds=timeout))
        return answer({"group": call.path("group"), "offsets": nested(reported)})

    async def put_group(self, call: Call) -> Response:
        """Set a consumer group's committed offsets."""
        hub = self._service.hub(call.cluster)
        feed = hub.cluster.feed
        body = await call.body()
        hint = 'write {"offsets": {"topic": {"0": 42}}}'
        if not isinstance(body, dict) or set(body) != {"offsets"}:
            raise ApiError(400, hint)
        offsets = _by_partition(body["offsets"], lambda value: 0 <= value < 2**63, hint)
        if feed is None:
            raise ApiError(503, "the loop was not started yet; try again")
        timeout = call.duration("timeout", _ASK_SECONDS)
        await self._ask(hub, lambda: feed.commit_offsets(call.path("group"), offsets, timeout_seconds=timeout))
        return answer({"group": call.path("group"), "offsets": nested(offsets)})

    async def removal(self, call: Call) -> Response:
        """Say whether brokers may be removed, or with `verify` whether they are."""
        hub = self._service.hub(call.cluster)
        leaving, temporary, verifies = _broker_ids(call.text("brokers")), call.flag("temporary"), call.flag("verify")
        timeout = call.duration("timeout", _ASK_SECONDS)
        feed = hub.cluster.feed
        if feed is None:
            raise ApiError(503, "the loop was not started yet; try again")
        now = self._service.clock.monotonic()
        lists = {f"consumer {c.id}": c.bootstrap_servers for c in self._service.registry.all(now, hub.cluster.name)}
        lists[f"this service (bootstrap_servers of {hub.cluster.name})"] = hub.cluster.settings.bootstrap_servers
        facts = await self._ask(hub, lambda: feed.survey(leaving, timeout_seconds=timeout, lists=lists))
        found = verify(facts, leaving) if verifies else judge(facts, leaving, temporary=temporary)
        return answer(removal_document(found, facts, temporary=temporary, verified=verifies))

    async def consumers(self, _: Call) -> Response:
        """List consumers with lag, acknowledged generation, and dead addresses they still list."""
        now = self._service.clock.monotonic()
        return answer(
            {
                "consumers": [
                    consumer_document(c, self._view(c.cluster), now=now) for c in self._service.registry.all(now)
                ]
            }
        )

    async def consumer(self, call: Call) -> Response:
        """Return one consumer."""
        now = self._service.clock.monotonic()
        found = self._service.registry.get(call.path("id"), now)
        if found is None:
            raise ApiError(404, f"consumer {call.path('id')[:100]!r} has not reported lately")
        return answer(consumer_document(found, self._view(found.cluster), now=now))

    async def put_consumer(self, call: Call) -> Response:
        """Take a consumer's report."""
        raw = await call.body()
        named = raw.get("cluster", "default") if isinstance(raw, dict) else "default"
        hub = self._service.hub(named if isinstance(named, str) else "")
        now = self._service.clock.monotonic()
        consumer = parse_report(call.path("id"), raw, cluster=hub.cluster.name, now=now)
        self._service.registry.put(consumer)
        shown = hub.shown()
        return answer(consumer_document(consumer, shown.view if shown else None, now=now))

    async def drop_consumer(self, call: Call) -> Response:
        """Forget a consumer that unregisters, or that an operator does not want to see any more."""
        self._service.registry.drop(call.path("id"), call.text("instance"))
        return Response(status_code=204)

    async def reload(self, _: Call) -> Response:
        """Read the configuration again."""
        try:
            await self._service.reload()
        except (DiscoveryError, OSError) as error:
            raise ApiError(409, f"kept the old configuration: {error}") from error
        return answer({"ok": True, "clusters": sorted(self._service.hubs)})

    async def loglevel(self, _: Call) -> Response:
        """Return the least level that is written, and the one of the configuration."""
        return self._loglevel()

    async def put_loglevel(self, call: Call) -> Response:
        """Write more or less, until the configuration says otherwise or the service restarts."""
        body = await call.body()
        level = body.get("level") if isinstance(body, dict) and set(body) == {"level"} else None
        if level not in LEVELS:
            raise ApiError(400, f'write {{"level": "debug"}}; there are {", ".join(LEVELS)}')
        set_level(level)
        return self._loglevel()

    def _loglevel(self) -> Response:
        return answer({"level": current_level(), "configured": self._service.settings.log.level})

    def _status(self, hub: Hub) -> dict[str, Any]:
        now = self._service.clock.monotonic()
        return status_document(hub.cluster, hub.shown(), self._service.registry.all(now, hub.cluster.name))

    def _view(self, cluster: str) -> Any:
        hub = self._service.hubs.get(cluster)
        shown = hub.shown() if hub else None
        return shown.view if shown else None

    async def _fresh(self, call: Call) -> tuple[Hub, Shown]:
        """Return what is shown, asked again where the caller wants it younger (`Cache-Control: max-age=…`)."""
        hub = self._service.hub(call.cluster)
        shown = hub.shown()
        wishes = _cache_control(call.request.headers.get("cache-control", ""))
        if "max-age" in wishes and (shown is None or shown.view.age_seconds > wishes["max-age"]):
            try:
                await self._refresh(hub, _ASK_SECONDS)
            except ApiError:
                age = shown.view.age_seconds if shown else float("inf")
                if "stale-if-error" not in wishes or age > wishes["stale-if-error"]:
                    raise
            shown = hub.shown()
        if shown is None:
            raise ApiError(503, "the loop was not started yet; try again")
        return hub, shown

    async def _refresh(self, hub: Hub, timeout_seconds: float) -> None:
        feed = hub.cluster.feed
        if feed is None:
            raise ApiError(503, "the loop was not started yet; try again")
        try:
            await asyncio.wait_for(
                self._service.refreshes.run(hub.cluster.name, lambda: feed.refresh(timeout_seconds)),
                timeout_seconds + 1,
            )
        except KafkaUnreachableError as error:
            raise ApiError(503, str(error)) from error
        except TimeoutError:
            raise ApiError(503, f"Kafka did not answer within {timeout_seconds:g} s") from None
        hub.flush()

    async def _ask(self, hub: Hub, work: Callable[[], _T]) -> _T:
        try:
            return await self._service.workers.run(hub.cluster.name, work)
        except ApiError:
            raise
        except KafkaUnreachableError as error:
            raise ApiError(503, str(error)) from error
        except DiscoveryError as error:
            raise ApiError(400, str(error)) from error

    def _snapshot(self, call: Call, hub: Hub, shown: Shown) -> Response:
        tag = etag(hub.cluster.epoch, shown.view.generation)
        if tag in [one.strip() for one in call.request.headers.get("if-none-match", "").split(",")]:
            return Response(status_code=304, headers={"ETag": tag, **freshness(shown.view)})
        return self._snapshot_body(hub, shown, tag)

    def _snapshot_body(self, hub: Hub, shown: Shown, tag: str) -> Response:
        body = hub.cached("snapshot", shown, lambda: snapshot_document(hub.cluster, shown))
        return answer(body, headers={"ETag": tag, **freshness(shown.view)})


def _cache_control(text: str) -> dict[str, float]:
    found = {}
    for part in text.lower().split(","):
        name, _, value = part.strip().partition("=")
        if name in {"max-age", "stale-if-error"}:
            found[name] = float(value) if re.fullmatch(r"\d{1,9}", value) else 0.0 if value else float("inf")
    return found


def _interest(topics: str | None, pattern: str | None) -> tuple[Interest | None, object]:
    """Return whose partitions are wanted, and a key that is equal for equal wishes."""
    try:
        if pattern is not None:
            interest = Interest(pattern=pattern)
            # What is too dear to be matched here is matched by the follower: it gets all there is.
            return (interest, (None, pattern)) if is_cheap(pattern) else (None, None)
        names = tuple(sorted({TopicName(one.strip()) for one in (topics or "").split(",") if one.strip()}))
        return (Interest(topics=names), (names, None)) if names else (None, None)
    except ConfigError as error:
        raise ApiError(400, f"pattern: {error}") from error


def _broker_ids(text: str | None) -> frozenset[BrokerId]:
    try:
        return parse_broker_ids(text or "")
    except ConfigError as error:
        raise ApiError(400, str(error)) from None


def _wanted(body: object) -> tuple[dict[TopicPartition, int], bool]:
    """Read `{"offsets": {"topic": {"0": -2}}}`, or `"timestamps"` in its place."""
    hint = 'write {"offsets": {"topic": {"0": -2}}} (-2 earliest, -1 latest) or {"timestamps": {"topic": {"0": 1700…}}}'
    if not isinstance(body, dict) or len(set(body) & {"offsets", "timestamps"}) != 1 or len(body) != 1:
        raise ApiError(400, hint)
    by_timestamp = "timestamps" in body
    if by_timestamp:
        return _by_partition(body["timestamps"], lambda value: 0 <= value < 2**53, hint), True
    return _by_partition(body["offsets"], lambda value: value in {_EARLIEST, _LATEST}, hint), False


def _by_partition(raw: object, is_sound: Callable[[int], bool], hint: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _pairs(raw, hint):
        for partition, value in _pairs(partitions, hint):
            if not (partition.isascii() and partition.isdigit() and len(partition) < _DIGITS):
                raise ApiError(400, hint)
            if type(value) is not int or not is_sound(value):
                raise ApiError(400, hint)
            found[TopicPartition(TopicName(topic), int(partition))] = value
    return found


def _pairs(raw: object, hint: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(raw, dict):
        raise ApiError(400, hint)
    return raw.items()


def _isolation(text: str | None) -> Isolation:
    try:
        return Isolation(text or "read_uncommitted")
    except ValueError:
        raise ApiError(
            400, f"isolation: {(text or '')[:50]!r} is neither read_uncommitted nor read_committed"
        ) from None
