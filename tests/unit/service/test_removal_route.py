"""The removal route over a cluster in memory: reasons by name, flags, and unknown where nobody answers."""

from pathlib import Path

import pytest

from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.service import Running
from tests.unit.service.test_api import C, described, get, play

R = f"{C}/removal"


def test_given_a_broker_with_replicas_when_asked_then_it_is_not_safe_and_says_who_lists_it(tmp_path: Path) -> None:
    async def story(one: Running, cluster: FakeCluster) -> None:
        one.service.hub("main").cluster.began_at = float("-inf")
        report = {"instance": "h", "cluster": "main", "bootstrap_servers": ["cluster-a-b3:9092"]}
        described(await one.api.put("/v1/consumers/dau", json=report))
        seen = (await get(one, f"{R}?brokers=3")).json()
        assert seen["verdict"] == "not"
        codes = {finding["code"] for finding in seen["findings"]}
        assert {"replicas", "list-empty", "list-entries"} <= codes
        assert any(f["sentence"].startswith("consumer dau lists nobody else") for f in seen["findings"])
        described(await one.api.delete("/v1/consumers/dau"))
        assert (await get(one, f"{R}?brokers=3&temporary=true")).json()["verdict"] == "unknown", "nobody has reported"
        for known in ("assume_no_other_clients=true", "lists=dau%20%3D%20cluster-a-b1:9092,cluster-a-b2:9092"):
            assert (await get(one, f"{R}?brokers=3&temporary=true&{known}")).json()["verdict"] == "safe"
        listed = (await get(one, f"{R}?brokers=3&temporary=true&lists=dau%3Dcluster-a-b3:9092")).json()
        assert (listed["verdict"], listed["findings"][0]["code"]) == ("not", "list-empty")
        for short in ("/v1/removal", "/v1/clusters/default/removal"):
            assert (await one.api.get(f"{short}?brokers=3")).json()["verdict"] == "not"
        again = (await get(one, f"{R}?brokers=3&verify=true")).json()
        assert (again["verdict"], again["verified"]) == ("not", True)
        cluster.add_broker(9)
        report["bootstrap_servers"] = ["cluster-a-b1:9092", "cluster-a-b2:9092"]
        described(await one.api.put("/v1/consumers/dau", json=report))
        assert (await get(one, f"{R}?brokers=9")).json()["verdict"] == "safe", "a consumer has reported"
        assert (await get(one, f"{R}?brokers=12&verify=true")).json()["verdict"] == "safe"

    play(tmp_path, story)


def test_given_a_job_that_is_down_when_asked_after_a_restart_then_its_list_counts_still(tmp_path: Path) -> None:
    async def report(one: Running, _: FakeCluster) -> None:
        gone = {"bootstrap_servers": ["cluster-a-b3:9092"]}
        for name, own in (("down", {}), ("retired", gone), ("h", gone)):
            body = {"instance": "h", "cluster": "main", "bootstrap_servers": ["cluster-a-b9:9092"], **own}
            described(await one.api.put(f"/v1/consumers/{name}", json=body))
        described(await one.api.delete("/v1/consumers/down?instance=h"))
        described(await one.api.delete("/v1/consumers/retired"))
        described(await one.api.delete("/v1/consumers/h?instance=h"))  # without a name it cannot come back

    async def story(one: Running, cluster: FakeCluster) -> None:
        cluster.add_broker(9)
        early = (await get(one, f"{R}?brokers=9&lists=x%3Dcluster-a-b1:9092,cluster-a-b2:9092")).json()
        assert any("has just begun" in finding["sentence"] for finding in early["findings"])
        one.service.hub("main").cluster.began_at = float("-inf")
        seen = (await get(one, f"{R}?brokers=9")).json()
        assert (seen["verdict"], [f["code"] for f in seen["findings"]]) == ("not", ["list-empty", "list-entries"])
        assert seen["findings"][0]["sentence"].startswith("consumer down (silent now) lists nobody else")
        described(await one.api.delete("/v1/consumers/down"))
        assert (await get(one, f"{R}?brokers=9")).json()["verdict"] == "unknown", "nobody's list is known any more"

    async def unread(one: Running, cluster: FakeCluster) -> None:
        cluster.add_broker(9)
        one.service.hub("main").cluster.began_at = float("-inf")
        seen = (await get(one, f"{R}?brokers=9&lists=x%3Dcluster-a-b1:9092,cluster-a-b2:9092")).json()
        assert seen["verdict"] == "unknown"
        assert any("could not be read" in finding["sentence"] for finding in seen["findings"])

    play(tmp_path, report)
    play(tmp_path, story)
    (kept,) = (tmp_path / "service/lists").iterdir()
    kept.write_text("{")
    play(tmp_path, unread)


def test_given_a_service_that_has_just_begun_when_asked_then_it_is_unknown_unless_it_is_confirmed(
    tmp_path: Path,
) -> None:
    async def story(one: Running, cluster: FakeCluster) -> None:
        cluster.add_broker(9)
        body = {"instance": "h", "cluster": "main", "bootstrap_servers": ["cluster-a-b1:9092", "cluster-a-b2:9092"]}
        described(await one.api.put("/v1/consumers/dau", json=body))
        for flags, verdict in (("", "unknown"), ("&assume_no_other_clients=true", "safe")):
            assert (await get(one, f"{R}?brokers=9{flags}")).json()["verdict"] == verdict
        one.service.hub("main").cluster.began_at -= one.service.settings.silence_seconds
        assert (await get(one, f"{R}?brokers=9")).json()["verdict"] == "safe"
        body["bootstrap_servers"] = ["cluster-a-b9:9092", "removed-long-ago:9092"]
        described(await one.api.put("/v1/consumers/dau", json=body))
        assert (await get(one, f"{R}?brokers=9")).json()["verdict"] != "safe", "an entry nobody knows is not alive"

    play(tmp_path, story)


def test_given_nobody_answers_when_asked_then_the_verdict_is_unknown(tmp_path: Path) -> None:
    async def story(one: Running, cluster: FakeCluster) -> None:
        for broker in (1, 2, 3):
            cluster.silence(broker)
        seen = (await get(one, f"{R}?brokers=3&timeout=1s")).json()
        assert (seen["verdict"], seen["findings"][0]["level"]) == ("unknown", "unknown")

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "brokers: it is missing"),
        ("brokers=", "brokers: name at least one broker id"),
        ("brokers=b9", "brokers: 'b9' is no broker id"),
        ("brokers=1&temporary=yes", "temporary: 'yes' is neither true nor false"),
        ("brokers=1&brokers=2", "brokers: given 2 times"),
        ("brokers=1&lists=dau", "lists: line 1 ('dau') is not like: name = host:port"),
        ("broker=1", "broker: unknown parameter"),
    ],
)
def test_given_a_wrong_question_when_asked_then_it_is_400_and_says_what_to_write(
    tmp_path: Path, query: str, text: str
) -> None:
    async def story(one: Running, _: FakeCluster) -> None:
        wrong = described(await one.api.get(f"{R}?{query}"))
        assert wrong.status_code == 400
        assert wrong.json()["error"].startswith(text)

    play(tmp_path, story)
