"""What each route of the API does."""

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from starlette.responses import PlainTextResponse, Response

from discovery.config.logs import current_level, event_log, set_level
from discovery.core.errors import ConfigError, DiscoveryError, KafkaUnreachableError
from discovery.core.interest import Interest
from discovery.core.model import Isolation, TopicName
from discovery.core.prediction.removal import judge, parse_broker_ids, parse_lists, verify
from discovery.core.prediction.removal_report import REPORTED, removal_document
from discovery.feed.wire import Position, flat, nested
from discovery.service.api import models
from discovery.service.api.documents import (
    brokers_document,
    consumer_document,
    snapshot_document,
    status_document,
    topic_document,
)
from discovery.service.api.patterns import is_cheap
from discovery.service.api.responses import ApiError, answer, etag, freshness
from discovery.service.api.routes import Call, route
from discovery.service.cluster import Shown
from discovery.service.consumers import consumer_of
from discovery.service.hub import Hub
from discovery.service.service import Service

_T = TypeVar("_T")
_ASK_SECONDS = 10.0
_FIRST_SECONDS = 1.0
_C = "/v1/clusters/{cluster}"
_log = event_log("discovery.service")


class Api:
    """The handlers, over one service. Event loop's thread."""

    def __init__(self, service: Service) -> None:
        """Answer for this service."""
        self._service = service

    @route("GET", "/v1/clusters", models.Clusters, 503)
    async def clusters(self, _: Call) -> Response:
        """List the followed clusters and how they are doing."""
        return answer({"clusters": [self._status(hub) for hub in self._service.begun().values()]})

    @route("GET", f"{_C}/snapshot", models.Snapshot, 304, 503)
    async def snapshot(self, call: Call) -> Response:
        """Return the agreed view: brokers, topics, partitions, leaders."""
        hub, shown = await self._fresh(call)
        return self._snapshot(call, hub, shown)

    @route("GET", f"{_C}/watch", models.Snapshot, 304, 503)
    async def watch(self, call: Call, query: models.WatchQuery) -> Response:
        """Return the agreed view once its generation is another than the caller's; 304 after the wait."""
        hub = self._service.hub(call.cluster)
        generation = -1 if query.generation is None else query.generation
        shown = _started(await hub.wait_generation(generation, query.epoch, query.wait))
        tag = etag(hub.cluster.epoch, shown.view.generation)
        if shown.view.generation == generation and query.epoch in (None, hub.cluster.epoch):
            return Response(status_code=304, headers={"ETag": tag, **freshness(shown.view)})
        return self._snapshot_body(hub, shown, tag)

    @route("GET", f"{_C}/follow", models.Follow, 503)
    async def follow(self, call: Call, query: models.FollowQuery) -> Response:
        """Return what changed since the caller's version: offsets, verdicts, leaders; all where it has none."""
        hub = self._service.hub(call.cluster)
        held = Position(epoch=query.epoch or "", version=query.version)
        interest, key = _interest(query.topics, query.pattern)
        isolation = Isolation(query.isolation) if query.isolation else None
        if hub.cluster.followed(interest, isolation) and (shown := hub.shown()) is not None and shown.view.generation:
            # Ends were asked for seldom until now; a reader that begins at "latest" must not begin before it.
            with contextlib.suppress(ApiError):
                await self._refresh(hub, _FIRST_SECONDS)
        view = await hub.wait_version(held, query.wait)
        if view is None:
            raise ApiError(503, "the loop has shown nothing yet; try again")
        shown = hub.shown()
        return answer(hub.follow_bytes(view, held, interest, key), headers=freshness(shown.view if shown else view))

    @route("GET", f"{_C}/bootstrap", str, 503, media_type="text/plain")
    async def bootstrap(self, call: Call) -> Response:
        """Return the vetted brokers as a client takes them: host:port,host:port."""
        _, shown = await self._fresh(call)
        if not shown.view.bootstrap:
            raise ApiError(503, f"no broker is known to be alive: {shown.view.sentence}")
        text = ",".join(map(str, shown.view.bootstrap)) + "\n"
        return PlainTextResponse(text, headers=freshness(shown.view))

    @route("GET", f"{_C}/brokers", models.Brokers, 503)
    async def brokers(self, call: Call) -> Response:
        """Return every address: alive, quarantined or rejected, why and since when."""
        hub, shown = await self._fresh(call)
        return answer(brokers_document(hub.cluster, shown), headers=freshness(shown.view))

    @route("GET", f"{_C}/topics/{{topic}}", models.Topic, 503)
    async def topic(self, call: Call) -> Response:
        """Return one topic: partitions, leaders, offsets, which are parked and why."""
        hub, shown = await self._fresh(call)
        document = topic_document(hub.cluster, _answered(shown), TopicName(call.path("topic")))
        if document is None:
            raise _unknown(call.path("topic"))
        return answer(document, headers=freshness(shown.view))

    @route("GET", f"{_C}/status", models.Status, 503)
    async def status(self, call: Call) -> Response:
        """Return how the cluster is doing, in numbers and one sentence."""
        hub = self._service.hub(call.cluster)
        return answer(self._status(hub), headers=freshness(_started(hub.shown()).view))

    @route("GET", f"{_C}/events", models.Events, 503)
    async def events(self, call: Call, query: models.EventsQuery) -> Response:
        """Return what happened lately, oldest first."""
        hub = self._service.hub(call.cluster)
        found = hub.cluster.timeline.since(query.since, limit=query.limit or 1)
        return answer({"cluster": hub.cluster.name, "events": [one.document() for one in found]})

    @route("POST", f"{_C}/refresh", models.Status, 503)
    async def refresh(self, call: Call, query: models.AskQuery) -> Response:
        """Ask Kafka now; callers at the same time share one question."""
        hub = self._service.hub(call.cluster)
        await self._refresh(hub, query.timeout)
        return answer(self._status(hub))

    @route("POST", f"{_C}/resolve", models.Offsets, 503)
    async def resolve(self, call: Call, query: models.ResolveQuery, body: models.Wanted) -> Response:
        """Look up offsets for earliest, latest or timestamps."""
        hub = self._service.hub(call.cluster)
        feed = _started(hub.cluster.feed)
        reported = await self._ask(
            hub,
            lambda: feed.resolve(
                flat(body.timestamps or body.offsets),
                timeout_seconds=query.timeout,
                by_timestamp="timestamps" in body.model_fields_set,
                isolation=Isolation(query.isolation),
            ),
        )
        return answer({"offsets": nested(reported)})

    @route("GET", f"{_C}/groups/{{group}}", models.Offsets, 503)
    async def group(self, call: Call, query: models.GroupQuery) -> Response:
        """Return a group's committed offsets on the followed partitions."""
        hub = self._service.hub(call.cluster)
        shown, feed = _answered(_started(hub.shown())), _started(hub.cluster.feed)
        interest, _ = _interest(query.topics, None)
        known = shown.view.partitions.items()
        partitions = [tp for tp, one in known if not one.gone and (interest is None or interest.wants(tp))]
        if interest is not None and (unknown := set(interest.topics) - {tp.topic for tp in partitions}):
            raise _unknown(min(unknown))  # without an offset it would count as never committed
        group = call.path("group")
        reported = await self._ask(hub, lambda: feed.committed(group, partitions, timeout_seconds=query.timeout))
        return answer({"group": group, "offsets": nested(reported)})

    @route("PUT", f"{_C}/groups/{{group}}", models.Offsets, 503, needs_token=True)
    async def put_group(self, call: Call, query: models.AskQuery, body: models.Commit) -> Response:
        """Set a group's committed offsets; refused while the group has members."""
        hub = self._service.hub(call.cluster)
        feed, group, offsets = _started(hub.cluster.feed), call.path("group"), flat(body.offsets)
        await self._ask(hub, lambda: feed.commit_offsets(group, offsets, timeout_seconds=query.timeout))
        _log.warning(
            "group_offsets_set", cluster=hub.cluster.name, group=group, partitions=len(offsets), client=call.client
        )
        return answer({"group": group, "offsets": nested(offsets)})

    @route("GET", f"{_C}/removal", models.Removal, 503)
    async def removal(self, call: Call, query: models.RemovalQuery) -> Response:
        """Judge whether these brokers may be removed, with reasons and the commands that lead on."""
        hub = self._service.hub(call.cluster)
        leaving = parse_broker_ids(query.brokers)
        feed = _started(hub.cluster.feed)
        now = self._service.clock.monotonic()
        here = {c.id for c in self._service.registry.all(now, hub.cluster.name)}
        lists = {
            f"{REPORTED}{one}{'' if one in here else ' (silent now)'}": addresses
            for one, addresses in hub.cluster.reported.lists(self._service.clock.wall()).items()
        }
        lists |= parse_lists(query.lists) if query.lists is not None else {}
        clients_known = bool(lists) or query.assume_no_other_clients
        lists[f"this service (bootstrap_servers of {hub.cluster.name})"] = hub.cluster.settings.bootstrap_servers
        facts = await self._ask(hub, lambda: feed.survey(leaving, timeout_seconds=query.timeout, lists=lists))
        wait_seconds = self._service.settings.silence_seconds + hub.cluster.began_at - now
        doubts: list[str] = []
        if wait_seconds > 0:
            doubts += [
                f"the service has just begun, and consumers may not have reported yet: ask in {wait_seconds:.0f} s."
            ]
        if hub.cluster.reported.are_lost(self._service.clock.wall()):
            doubts.append(
                "lists reported in the last seven days could not be read: of a job that is down none may be known. "
                "Where you know of none, ask with assume_no_other_clients (--assume-no-other-clients)."
            )
        if doubts and not (query.verify or query.assume_no_other_clients):
            facts = replace(facts, doubts=(*facts.doubts, *doubts))
        facts = replace(facts, clients_known=clients_known)
        found = verify(facts, leaving) if query.verify else judge(facts, leaving, temporary=query.temporary)
        return answer(removal_document(found, facts, temporary=query.temporary, verified=query.verify))

    @route("GET", "/v1/consumers", models.Consumers)
    async def consumers(self, _: Call) -> Response:
        """List who uses this service: lag, what each applied, dead brokers each still lists."""
        now = self._service.clock.monotonic()
        return answer(
            {
                "consumers": [
                    consumer_document(c, self._view(c.cluster), now=now) for c in self._service.registry.all(now)
                ]
            }
        )

    @route("GET", "/v1/consumers/{id}", models.ConsumerState)
    async def consumer(self, call: Call) -> Response:
        """Return one consumer."""
        now = self._service.clock.monotonic()
        found = self._service.registry.get(call.path("id"), now)
        if found is None:
            raise ApiError(404, f"consumer {call.path('id')[:100]!r} has not reported lately")
        return answer(consumer_document(found, self._view(found.cluster), now=now))

    @route("PUT", "/v1/consumers/{id}", models.ConsumerState, 409, 503)
    async def put_consumer(self, call: Call, body: models.Report) -> Response:
        """Take a consumer's report, which also says it lives (kinds in use: spark, cli, unknown)."""
        if len(call.path("id")) > models.LONGEST_TEXT:
            raise ApiError(400, f"id: it has {len(call.path('id'))} characters; at most {models.LONGEST_TEXT} are kept")
        hub = self._service.named(body.cluster)
        now = self._service.clock.monotonic()
        consumer = consumer_of(call.path("id"), body, cluster=hub.cluster.name, now=now)
        cluster, wall = hub.cluster, self._service.clock.wall()
        holder = cluster.reported.holder(consumer.id)
        self._service.registry.put(consumer, before=(holder, cluster.began_at) if holder else None)
        cluster.reported.note(consumer.id, consumer.bootstrap_servers, instance=consumer.instance, wall=wall)
        shown = hub.shown()
        return answer(consumer_document(consumer, shown.view if shown else None, now=now))

    @route("DELETE", "/v1/consumers/{id}", None, 503)
    async def drop_consumer(self, call: Call, query: models.DropQuery) -> Response:
        """Forget a consumer that unregisters, and its list where it cannot come back: no instance, or no other name."""
        is_for_good = query.instance in {None, call.path("id")}
        hubs = [self._service.named(name) for name in self._service.begun()] if is_for_good else []
        self._service.registry.drop(call.path("id"), query.instance)
        # Each query unregisters at its end, by its instance; what an operator makes us forget is a change.
        log = _log.warning if query.instance is None else _log.info
        log("consumer_forgotten", consumer=call.path("id")[:100], instance=query.instance, client=call.client)
        for hub in self._service.hubs.values():
            hub.cluster.reported.end(call.path("id"), query.instance or "")
        for hub in hubs:
            hub.cluster.reported.forget(call.path("id"))
        return Response(status_code=204)

    @route("POST", "/-/reload", models.Reloaded, 409, needs_token=True)
    async def reload(self, call: Call) -> Response:
        """Read the configuration again; a wrong one changes nothing."""
        try:
            await self._service.reload(call.client)
        except (DiscoveryError, OSError) as error:
            raise ApiError(409, f"kept the old configuration: {error}") from error
        return answer({"ok": True, "clusters": sorted(self._service.hubs)})

    @route("GET", "/v1/loglevel", models.LoggedLevel)
    async def loglevel(self, _: Call) -> Response:
        """Return the least level that is logged."""
        return self._loglevel()

    @route("PUT", "/v1/loglevel", models.LoggedLevel)
    async def put_loglevel(self, call: Call, body: models.SetLogLevel) -> Response:
        """Log more or less, until the configuration changes it or the service restarts."""
        _log.warning("log_level_set", level=body.level, before=current_level(), client=call.client)
        set_level(body.level)
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
        return hub, _started(shown)

    async def _refresh(self, hub: Hub, timeout_seconds: float) -> None:
        feed = _started(hub.cluster.feed)
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


def _interest(topics: str, pattern: str | None) -> tuple[Interest | None, object]:
    """Return whose partitions are wanted, and a key that is equal for equal wishes."""
    try:
        if pattern is not None:
            interest = Interest(pattern=pattern)
            # What is too dear to be matched here is matched by the follower: it gets all there is.
            return (interest, (None, pattern)) if is_cheap(pattern) else (None, None)
        names = tuple(sorted({TopicName(one.strip()) for one in topics.split(",") if one.strip()}))
        return (Interest(topics=names), (names, None)) if names else (None, None)
    except ConfigError as error:
        raise ApiError(400, f"pattern: {error}") from error


def _started(found: _T | None) -> _T:
    """Return what a loop has made."""
    if found is None:
        raise ApiError(503, "the loop was not started yet; try again")
    return found


def _answered(shown: Shown) -> Shown:
    """Return what is shown once it is a view: before, nobody knows what there is."""
    if not shown.view.generation:
        raise ApiError(503, f"no broker has answered yet: {shown.view.sentence}")
    return shown


def _unknown(topic: str) -> ApiError:
    return ApiError(404, f"topic {topic[:100]!r} is not known in this cluster, or not followed")
