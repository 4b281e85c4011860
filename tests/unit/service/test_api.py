"""Every route of the API over a cluster in memory; each answer is held against its description."""

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from openapi_spec_validator import validate

from discovery.config.clock import SystemClock
from discovery.config.logs import set_level
from discovery.config.provenance import Effective
from discovery.core.model import TopicName, TopicPartition
from discovery.feed.embedded import EmbeddedFeed
from discovery.service import consumers
from discovery.service.app import api_app
from discovery.service.cluster import FeedMaker
from discovery.service.events import Timeline
from discovery.service.service import Service
from discovery.service.workers import SingleFlight, Workers
from docs.generate import openapi
from tests.support.fakes.cluster import FakeCluster, FakeNetwork, Health
from tests.support.fakes.service import Running, maker_over, running, settings_of

DESCRIPTION = json.loads(openapi.page())
C = "/v1/clusters/main"
TOKEN = "a-token-of-sixteen"  # noqa: S105
Play = Callable[[Running, FakeCluster], Awaitable[None]]


def play(tmp_path: Path, story: Play, *, partitions: int = 3, **settings: Any) -> None:
    """Run a story on a service that follows one cluster with topic `t` and has seen all of it."""

    async def main() -> None:
        cluster = FakeCluster(FakeNetwork())
        cluster.create_topic("t", partitions)
        made = settings_of({"main": "cluster-a-b1:9092,cluster-a-b2:9092,dead:9092"}, tmp_path, **settings)
        async with asyncio.timeout(30), running(cluster.network, made) as one:
            one.api.headers["Authorization"] = f"Bearer {TOKEN}"
            await until(one, lambda d: d["partitions"] == partitions and not d["parked"])
            await until(one, lambda d: d["brokers"]["unasked"] == 0)
            seen = (await get(one, f"{C}/snapshot")).json()
            while seen["topics"]["t"]["topic_id"] is None:  # the last thing a start learns
                seen = (await get(one, f"{C}/watch?generation={seen['generation']}&wait=5s")).json()
            await story(one, cluster)

    asyncio.run(main())


async def until(one: Running, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Follow versions until the status meets the condition; the story's time limit ends a vain wait."""
    version = 0
    while not condition(status := (await get(one, f"{C}/status")).json()):
        followed = await get(one, f"{C}/follow?version={version}&wait=5s")
        version = followed.json()["version"] if followed.status_code == 200 else 0
    return status  # type: ignore[no-any-return]


async def get(one: Running, url: str, **headers: str) -> httpx.Response:
    return described(await one.api.get(url, headers=headers))


def described(response: httpx.Response) -> httpx.Response:
    """Check an answer against what the description says of its route and status."""
    path = response.request.url.path
    route = next(p for p in DESCRIPTION["paths"] if _fits(p, path))
    said = DESCRIPTION["paths"][route][response.request.method.lower()]["responses"]
    assert str(response.status_code) in said, f"{response.status_code} of {path} is not described: {response.text}"
    content = said[str(response.status_code)].get("content", {})
    if "application/json" in content:
        schema = {**content["application/json"]["schema"], "components": DESCRIPTION["components"]}
        jsonschema.validate(response.json(), schema)
    return response


def _fits(template: str, path: str) -> bool:
    wanted, given = template.split("/"), path.split("/")
    return len(wanted) == len(given) and all(w == g or w.startswith("{") for w, g in zip(wanted, given, strict=True))


def test_given_the_routes_when_described_then_it_is_sound_openapi_and_the_file_in_the_docs() -> None:
    validate(DESCRIPTION)
    assert openapi.PAGE.read_text(encoding="utf-8") == openapi.page(), "run python -m docs.generate.openapi"


def test_given_a_followed_cluster_when_asked_then_every_route_answers_as_described(tmp_path: Path) -> None:
    async def story(one: Running, cluster: FakeCluster) -> None:
        cluster.append("t", 1, 7)
        await until(one, lambda _: cluster.partition)
        snapshot = (await get(one, f"{C}/snapshot")).json()
        assert [b["address"] for b in snapshot["brokers"]] == [f"cluster-a-b{i}:9092" for i in (1, 2, 3)]
        assert len(snapshot["topics"]["t"]["partitions"]) == 3
        assert snapshot["cluster_id"] == "cluster-a"
        text = await get(one, f"{C}/bootstrap")
        assert set(text.text.strip().split(",")) == {f"cluster-a-b{i}:9092" for i in (1, 2, 3)}
        assert text.headers["content-type"].startswith("text/plain")
        brokers = {b["address"]: b for b in (await get(one, f"{C}/brokers")).json()["brokers"]}
        assert brokers["dead:9092"]["condition"] == "quarantined"
        assert brokers["dead:9092"]["verdict"] == "unresolvable"
        assert brokers["cluster-a-b3:9092"]["condition"] == "healthy"
        assert not brokers["cluster-a-b3:9092"]["configured"]
        assert (await get(one, "/v1/clusters")).json()["clusters"][0]["cluster"] == "main"
        events = (await get(one, f"{C}/events?limit=3")).json()["events"]
        assert len(events) == 3
        newer = (await get(one, f"{C}/events?since={events[0]['number']}")).json()["events"]
        assert newer[0]["number"] == events[0]["number"] + 1
        resolved = await one.api.post(f"{C}/resolve", json={"offsets": {"t": {"1": -1, "0": -2}}})
        assert described(resolved).json()["offsets"] == {"t": {"0": 0, "1": 7}}
        assert (await get(one, f"{C}/groups/nobody")).json()["offsets"] == {}
        described(await one.api.post(f"{C}/refresh"))
        topic = (await get(one, f"{C}/topics/t")).json()
        assert [p["high_watermark"] for p in topic["partitions"]] == [0, 7, 0]
        for short in ("snapshot", "brokers", "status", "events", "topics/t", "bootstrap"):
            assert (await one.api.get(f"/v1/{short}")).status_code == 200
            assert (await one.api.get(f"/v1/clusters/default/{short}")).status_code == 200

    play(tmp_path, story)


WRONG = [
    ("GET", "/v1/clusters/other/status", None, 404, "cluster 'other' is not followed here; there are: main"),
    ("GET", f"{C}/topics/none", None, 404, "topic 'none' is not known"),
    ("GET", f"{C}/watch?generation=x", None, 400, "generation: 'x' is not a whole number"),
    ("GET", f"{C}/watch?generation=-1", None, 400, "generation: '-1' is not a whole number"),
    ("GET", f"{C}/watch?generation=1&generation=2", None, 400, "generation: given 2 times"),
    ("GET", f"{C}/watch?generation={'9' * 5000}", None, 400, "generation: '999"),
    ("GET", f"{C}/watch?wait=soon", None, 400, "wait: 'soon': a duration is"),
    ("GET", f"{C}/watch?genration=1", None, 400, "genration: unknown parameter; known are epoch, generation, wait"),
    ("GET", f"{C}/follow?pattern=(", None, 400, "pattern: "),
    ("POST", f"{C}/resolve", "nonsense", 400, "the body is not JSON"),
    ("POST", f"{C}/resolve", "[" * 100_000, 400, "the body is not JSON"),
    ("POST", f"{C}/resolve", '{"offsets": {"t": {"0": 5}}}', 400, "offsets.t.0: 5: it must be -2 or -1"),
    ("POST", f"{C}/resolve", '{"offsets": {}, "timestamps": {}}', 400, 'write {"offsets"'),
    ("POST", f"{C}/resolve", '{"offsets": []}', 400, "offsets: []: it must be"),
    ("POST", f"{C}/resolve?isolation=dirty", '{"offsets": {"t": {"0": -1}}}', 400, "isolation: 'dirty'"),
    ("PUT", f"/v1/consumers/{'c' * 201}", "{}", 400, "id: it has 201 characters; at most 200 are kept"),
    ("PUT", "/v1/consumers/c", '{"colour": 1}', 400, "colour: unknown field; known are"),
    ("PUT", "/v1/consumers/c", "[]", 400, "the body must be a JSON object"),
    (
        "PUT",
        "/v1/consumers/c",
        '{"acked_generation": -1}',
        400,
        "acked_generation: -1: it must be greater than or equal to 0",
    ),
    (
        "PUT",
        "/v1/consumers/c",
        '{"positions": {"t": {"x": 1}}}',
        400,
        "positions.t.x: 'x': string should match pattern",
    ),
    ("PUT", "/v1/consumers/c", '{"bootstrap_servers": ["b"]}', 400, "'b' is not an address"),
    ("PUT", "/v1/consumers/c", '{"cluster": "x"}', 404, "cluster 'x' is not followed here"),
    ("PUT", "/v1/consumers/c", '{"isolation_level": "x"}', 400, "isolation_level: 'x': it must be 'read_un"),
    ("GET", "/v1/consumers/c", None, 404, "consumer 'c' has not reported lately"),
    ("PUT", "/v1/loglevel", '{"level": "loud"}', 400, "level: 'loud': it must be 'debug', 'info'"),
    ("PUT", "/v1/loglevel", '["debug"]', 400, "the body must be a JSON object"),
    ("GET", f"{C}/follow?pattern=a{{99999999999}}", None, 400, "pattern: "),
    ("POST", "/-/reload", None, 403, "only callers with a token may do this, also on loopback; set api.token_file"),
    ("PUT", f"{C}/groups/g", '{"offsets": {"t": {"0": 1}}}', 403, "only callers with a token may do this"),
]


def test_given_a_wrong_request_when_sent_then_one_line_says_what_is_wrong(tmp_path: Path) -> None:
    async def story(one: Running, _: FakeCluster) -> None:
        for method, url, body, status, said in WRONG:
            response = described(await one.api.request(method, url, content=body))
            assert response.status_code == status, url
            assert said in response.json()["error"]

    play(tmp_path, story)


def test_given_a_token_when_something_is_changed_with_it_then_it_is_done_and_a_heartbeat_alone_needs_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def without(one: Running, _: FakeCluster) -> None:
        assert described(await one.api.put("/v1/consumers/c", json={"instance": "i"})).status_code == 200
        refused = await one.api.put("/v1/groups/g", json={"offsets": {"t": {"0": 1}}})
        assert (refused.status_code, "api.token_file" in refused.json()["error"]) == (403, True)
        refusals = 'kafka_discovery_api_requests_total{code="403",route="refused"} 1.0'
        assert refusals in (await one.probes.get("/metrics")).text

    async def having(one: Running, _: FakeCluster) -> None:
        moved = described(await one.api.put(f"{C}/groups/g", json={"offsets": {"t": {"0": 1}}}))
        assert (moved.status_code, moved.json()["offsets"]) == (200, {"t": {"0": 1}})
        assert "was not started from a configuration" in (await one.api.post("/-/reload")).json()["error"]

    play(tmp_path / "without", without)
    (tmp_path / "token").write_text(TOKEN)
    with caplog.at_level("WARNING", "discovery"):
        play(tmp_path / "having", having, api={"token_file": tmp_path / "token"})
    written = {"cluster": "main", "group": "g", "partitions": 1, "client": "127.0.0.1"}
    assert facts_of(caplog, "group_offsets_set") == [written]


def facts_of(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [getattr(record, "facts", {}) for record in caplog.records if getattr(record, "event", "") == event]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"}, 200),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_given_a_page_of_another_origin_when_it_wants_a_change_then_it_is_refused_and_may_still_read(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async def story(one: Running, _: FakeCluster) -> None:
        for method, url, body in (
            ("POST", f"{C}/refresh", None),
            ("PUT", "/v1/consumers/c", "{}"),
            ("PUT", "/v1/loglevel", '{"level": "info"}'),
        ):
            response = described(await one.api.request(method, url, content=body, headers=headers))
            assert response.status_code == status, (url, response.text)
        assert (await get(one, f"{C}/status", **headers)).status_code == 200

    play(tmp_path, story)


def test_given_the_log_level_when_changed_then_it_holds_at_once_and_the_configured_one_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(one: Running, _: FakeCluster) -> None:
        before = (await get(one, "/v1/loglevel")).json()["level"]
        try:
            changed = described(await one.api.put("/v1/loglevel", json={"level": "error"}))
            assert changed.json() == {"level": "error", "configured": "info"}
            assert not logging.getLogger("discovery.service").isEnabledFor(logging.WARNING)
            assert (await get(one, "/v1/loglevel")).json()["level"] == "error"
        finally:
            set_level(before)
        assert facts_of(caplog, "log_level_set") == [{"level": "error", "before": before, "client": "127.0.0.1"}]

    with caplog.at_level("WARNING", "discovery"):
        play(tmp_path, story)


def test_given_an_expression_that_would_run_for_ever_when_followed_then_all_topics_are_sent_at_once(
    tmp_path: Path,
) -> None:
    async def story(one: Running, cluster: FakeCluster) -> None:
        cluster.create_topic("a" * 60, 1)
        url, version, topics = f"{C}/follow?pattern=(a%2B)%2B%24x", 0, set[str]()
        while topics != {"t", "a" * 60}:  # the story's time limit ends a vain wait
            followed = (await get(one, f"{url}&version={version}&wait=1s")).json()
            version, topics = followed["version"], topics | set(followed["topics"])
        cheap = await get(one, f"{C}/follow?pattern=%5Ea.*a%24&wait=0s")
        assert set(cheap.json()["topics"]) == {"a" * 60}

    play(tmp_path, story)


def test_given_no_route_when_asked_then_json_says_so(tmp_path: Path) -> None:
    async def story(one: Running, _: FakeCluster) -> None:
        nowhere = await one.api.get("/v1/nowhere")
        assert (nowhere.status_code, "no route" in nowhere.json()["error"]) == (404, True)
        wrong = await one.api.post(f"{C}/status")
        assert (wrong.status_code, ", ".join(sorted(wrong.headers["allow"].split(", "), reverse=True))) == (
            405,
            "HEAD, GET",
        )
        big = await one.api.post(f"{C}/resolve", content=b" " * 2000)
        assert big.status_code == 413

    play(tmp_path, story, api={"body_max_bytes": 1024})


def test_given_a_watcher_when_the_generation_changes_then_it_hears_at_once_and_without_a_change_gets_304(
    tmp_path: Path,
) -> None:
    async def story(one: Running, cluster: FakeCluster) -> None:
        first = await get(one, f"{C}/watch?wait=5s")
        known = first.json()
        url = f"{C}/watch?generation={known['generation']}&epoch={known['epoch']}"
        assert (await get(one, f"{url}&wait=0s")).status_code == 304
        assert (await get(one, f"{C}/snapshot", **{"If-None-Match": first.headers["etag"]})).status_code == 304
        waiting = [asyncio.ensure_future(get(one, f"{url}&wait=20s")) for _ in range(50)]
        while one.service.waiters.now < 50:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        cluster.add_partitions("t", 5)
        answers = [(await one_of).json() for one_of in waiting]
        assert {len(a["topics"]["t"]["partitions"]) for a in answers} == {5}
        assert {a["generation"] for a in answers} == {known["generation"] + 1}
        assert one.service.waiters.now == 0

    play(tmp_path, story)


@pytest.mark.parametrize("stand", ["generation=0", "generation=999", "generation={generation}&epoch=other"])
def test_given_a_watcher_that_is_behind_ahead_or_of_another_epoch_when_it_asks_then_it_is_answered_at_once(
    tmp_path: Path, stand: str
) -> None:
    async def story(one: Running, _: FakeCluster) -> None:
        known = (await get(one, f"{C}/snapshot")).json()
        async with asyncio.timeout(5):
            answer = await get(one, f"{C}/watch?wait=60s&{stand.format(generation=known['generation'])}")
        assert answer.json() == known

    play(tmp_path, story)


def test_given_too_many_waiters_when_one_more_asks_then_it_is_asked_to_come_back_and_at_the_end_all_are_answered(
    tmp_path: Path,
) -> None:
    async def story(one: Running, _: FakeCluster) -> None:
        generation = (await get(one, f"{C}/snapshot")).json()["generation"]
        url = f"{C}/watch?generation={generation}&wait=60s"
        waiting = [asyncio.ensure_future(get(one, url)) for _ in range(2)]
        while one.service.waiters.now < 2:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        refused = await get(one, url)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "api.waiters_max" in refused.json()["error"]
        one.service.release_waiters()
        assert [(await one_of).status_code for one_of in waiting] == [304, 304]

    play(tmp_path, story, api={"waiters_max": 2})


def test_given_events_still_being_read_when_asked_then_the_caller_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, read = threading.Event(), Timeline.open

    def slowly(timeline: Timeline, path: Path, *, wall: float) -> None:
        assert asked.wait(20)
        read(timeline, path, wall=wall)

    async def main() -> None:
        service = Service(
            Effective(settings=settings_of({"main": "b1:9092"}, tmp_path), origins={}),
            clock=SystemClock(),
            maker=maker_over(FakeNetwork()),
        )
        await service.open()
        web = httpx.ASGITransport(api_app(service))
        starting = None
        try:
            async with httpx.AsyncClient(transport=web, base_url="http://localhost") as api:
                assert described(await api.get("/v1/clusters")).status_code == 503, "not: none is followed"
                starting = asyncio.ensure_future(service.start())
                while "main" not in service.hubs:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0)
                report = {"bootstrap_servers": ["b1:9092"]}
                early = [await api.get(f"{C}/events"), await api.put("/v1/consumers/q", json=report)]
                early += [await api.delete("/v1/consumers/q")]  # its list would be read afterwards
                assert [described(one).status_code for one in early] == [503, 503, 503]
                asked.set()
                await starting
                assert described(await api.get(f"{C}/events")).status_code == 200
        finally:
            asked.set()
            if starting is not None:
                await starting
            await service.stop(5)

    monkeypatch.setattr(Timeline, "open", slowly)
    asyncio.run(main())


class Hanging(FeedMaker):
    """Makes loops; the one of a list with `hangs` in it waits for a store, say, that does not answer."""

    __slots__ = ()
    begun, may_go_on = threading.Event(), threading.Event()

    def __call__(self, settings: Any, policy: Any, **more: Any) -> EmbeddedFeed:
        if more["state_dir"] is not None and "hangs" in str(settings.bootstrap_servers):
            self.begun.set()
            assert self.may_go_on.wait(20)
        return super().__call__(settings, policy, **more)


def test_given_a_cluster_that_hangs_at_its_start_when_consumers_come_and_go_then_they_do_not_wait_for_it(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        network = FakeNetwork()
        FakeCluster(network)
        service = Service(
            Effective(settings=settings_of({"main": "cluster-a-b1:9092", "other": "hangs:1"}, tmp_path), origins={}),
            clock=SystemClock(),
            maker=maker_over(network, Hanging),
        )
        await service.open()
        starting = asyncio.ensure_future(service.start())
        web = httpx.ASGITransport(api_app(service))
        try:
            async with httpx.AsyncClient(transport=web, base_url="http://localhost") as api:
                await asyncio.to_thread(Hanging.begun.wait, 20)
                while (await api.get(f"{C}/status")).status_code != 200:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0)
                assert described(await api.get("/v1/clusters/other/status")).status_code == 503
                assert described(await api.get("/v1/clusters/none/status")).status_code == 404
                for cluster in ("main", "other"):
                    report = {"instance": "h", "cluster": cluster, "bootstrap_servers": ["b1:9092"]}
                    assert described(await api.put("/v1/consumers/q", json=report)).status_code == 200
                    assert described(await api.delete("/v1/consumers/q?instance=h")).status_code == 204
                assert described(await api.delete("/v1/consumers/q")).status_code == 204
                assert [hub.cluster.reported.lists(0) for hub in service.hubs.values()] == [{}, {}]
        finally:
            Hanging.may_go_on.set()
            await starting
            await service.stop(5)

    asyncio.run(main())


def test_given_no_view_yet_when_asked_for_a_topic_or_a_groups_offsets_then_the_caller_comes_back(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        cluster = FakeCluster(FakeNetwork())
        cluster.create_topic("t", 1)
        cluster.committed["g", TopicPartition(TopicName("t"), 0)] = 7
        for broker in (1, 2, 3):
            cluster.silence(broker)
        made = settings_of({"main": "cluster-a-b1:9092"}, tmp_path)
        async with asyncio.timeout(30), running(cluster.network, made) as one:
            early = asyncio.ensure_future(get(one, f"{C}/groups/g?topics=t"))
            assert (await get(one, f"{C}/topics/t")).status_code == 503, "not: it does not exist"
            cluster.revive(1)
            await until(one, lambda d: d["partitions"])
            assert (await early).status_code == 503, "not: nothing is committed"
            assert (await get(one, f"{C}/groups/g?topics=t")).json()["offsets"] == {"t": {"0": 7}}
            assert (await get(one, f"{C}/groups/g?topics=t,new")).status_code == 404
            cluster.delete_topic("t")
            await until(one, lambda d: "in 0 topics" in d["sentence"])
            assert (await get(one, f"{C}/groups/g")).json()["offsets"] == {}, "brokers may refuse to tell"

    asyncio.run(main())


def test_given_dead_brokers_when_asked_for_fresh_then_stale_only_where_allowed(tmp_path: Path) -> None:
    async def story(one: Running, cluster: FakeCluster) -> None:
        for broker in (1, 2, 3):
            cluster.silence(broker, Health.DEAD)
        await until(one, lambda d: d["state"] == "failsafe")
        old = await get(one, f"{C}/snapshot")
        assert old.status_code == 200
        assert old.headers["kafka-discovery-state"] == "failsafe"
        assert float(old.headers["kafka-discovery-age-seconds"]) >= 0
        failed = await get(one, f"{C}/snapshot", **{"Cache-Control": "max-age=0"})
        assert failed.status_code == 503
        assert "cluster-a-b1:9092: refused" in failed.json()["error"]
        taken = await get(one, f"{C}/snapshot", **{"Cache-Control": "max-age=0, stale-if-error=600"})
        assert taken.json() == old.json()

    play(tmp_path, story)


def test_given_many_refreshes_at_once_when_asked_then_kafka_is_asked_once(tmp_path: Path) -> None:
    async def story(one: Running, _: FakeCluster) -> None:
        answers = await asyncio.gather(*(one.api.post(f"{C}/refresh") for _ in range(20)))
        assert {a.status_code for a in answers} == {200}
        assert one.service.refreshes.started < len(answers), "on a slow machine the last ones may come after the first"

    play(tmp_path, story)


def test_given_a_call_on_its_way_when_others_want_the_same_then_they_join_it_and_the_next_one_is_a_new_one() -> None:
    async def story() -> None:
        flight, go = SingleFlight(Workers()), threading.Event()
        joined = [asyncio.ensure_future(flight.run("one", lambda: go.wait(30))) for _ in range(20)]
        other = asyncio.ensure_future(flight.run("two", lambda: go.wait(30)))
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(*joined, other) == [True] * 21
        assert flight.started == 2
        await flight.run("one", lambda: None)
        assert flight.started == 3

    asyncio.run(story())


def test_given_a_consumer_that_reports_when_listed_then_lag_ack_and_dead_addresses_are_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(one: Running, cluster: FakeCluster) -> None:
        cluster.append("t", 0, 10)
        described(await one.api.post(f"{C}/refresh"))
        generation = (await get(one, f"{C}/snapshot")).json()["generation"]
        report = {
            "instance": "host-1",
            "kind": "spark",
            "acked_generation": generation - 1,
            "positions": {"t": {"0": 4, "1": 0}},
            "parked": {"t": {"2": "it has no leader"}},
            "bootstrap_servers": ["cluster-a-b1:9092", "dead:9092", "removed:9092"],
        }
        described(await one.api.put("/v1/consumers/q1", json=report))
        listed = (await get(one, "/v1/consumers")).json()["consumers"]
        assert [(c["id"], c["lag"], c["behind"]) for c in listed] == [("q1", 6, True)]
        assert list(listed[0]["bad_bootstrap_servers"]) == ["dead:9092", "removed:9092"]
        other = await one.api.put("/v1/consumers/q1", json={**report, "instance": "host-2"})
        assert described(other).status_code == 409
        assert "consumer 'q1' is in use by 'host-1'" in other.json()["error"]
        assert (await get(one, f"{C}/status")).json()["consumers"] == 1
        assert (await one.api.delete("/v1/consumers/q2?instance=host-3")).status_code == 204
        assert (await one.api.delete("/v1/consumers/q1")).status_code == 204
        assert (await get(one, "/v1/consumers")).json()["consumers"] == []

    with caplog.at_level("INFO", "discovery"):
        play(tmp_path, story)
    left, forgotten = (record for record in caplog.records if getattr(record, "event", "") == "consumer_forgotten")
    assert (left.levelname, forgotten.levelname) == ("INFO", "WARNING")
    assert facts_of(caplog, "consumer_forgotten") == [
        {"consumer": "q2", "instance": "host-3", "client": "127.0.0.1"},
        {"consumer": "q1", "instance": None, "client": "127.0.0.1"},
    ]


def test_given_reports_that_name_too_much_when_put_then_memory_stays_bounded_and_room_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "_MOST_ENTRIES", 10)

    async def story(one: Running, _: FakeCluster) -> None:
        def report(count: int) -> dict[str, Any]:
            return {"instance": "i", "positions": {"t": {str(index): 0 for index in range(count)}}}

        assert (await one.api.put("/v1/consumers/a", json=report(8))).status_code == 200
        refused = described(await one.api.put("/v1/consumers/b", json=report(3)))
        assert (refused.status_code, "may name 10 partitions" in refused.json()["error"]) == (409, True)
        assert (await one.api.put("/v1/consumers/a", json=report(7))).status_code == 200
        assert (await one.api.put("/v1/consumers/b", json=report(3))).status_code == 200
        assert (await one.api.delete("/v1/consumers/a")).status_code == 204
        assert (await one.api.put("/v1/consumers/b", json=report(10))).status_code == 200

    play(tmp_path, story)


def test_given_followers_with_a_hundred_wishes_when_answered_then_few_answers_are_kept(tmp_path: Path) -> None:
    async def story(one: Running, _: FakeCluster) -> None:
        # Followers hear of a change a moment later than those who ask for the status.
        found = await get(one, f"{C}/follow?wait=0s")
        while "t" not in found.json()["topics"]:
            found = await get(one, f"{C}/follow?version={found.json()['version']}&wait=5s")
        for index in range(100):
            found = await get(one, f"{C}/follow?pattern=t%7C{index}&wait=0s")
            assert len(found.json()["topics"]["t"]["partitions"]) == 3
        assert len(one.service.hub("main")._follow_cache) <= 64

    play(tmp_path, story)


def test_given_a_service_that_restarts_when_another_claims_an_id_then_its_holder_has_time_to_report(
    tmp_path: Path,
) -> None:
    async def put(one: Running, name: str, instance: str, **more: str) -> httpx.Response:
        report = {"instance": instance, "bootstrap_servers": ["cluster-a-b1:9092"], **more}
        return described(await one.api.put(f"/v1/consumers/{name}", json=report))

    async def before(one: Running, _: FakeCluster) -> None:
        for name in ("dau", "visits", "ended"):
            assert (await put(one, name, "first")).status_code == 200
        described(await one.api.delete("/v1/consumers/ended?instance=first"))

    async def after(one: Running, _: FakeCluster) -> None:
        assert (await put(one, "ended", "second")).status_code == 200
        assert (await put(one, "visits", "second", replaces="first")).status_code == 200
        one.service.hub("main").cluster.began_at = one.service.clock.monotonic()
        refused = await put(one, "dau", "second")
        assert (refused.status_code, "'first'" in refused.json()["error"]) == (409, True)
        assert (await put(one, "dau", "first")).status_code == 200

    async def later(one: Running, _: FakeCluster) -> None:
        one.service.hub("main").cluster.began_at -= 10.1
        assert (await put(one, "dau", "second")).status_code == 200

    for story in (before, after, later):
        play(tmp_path, story)
