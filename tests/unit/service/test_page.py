"""The page says what is wrong and with whom, in words, and runs nothing that others wrote."""

import asyncio
import base64
import hashlib
from html.parser import HTMLParser
from pathlib import Path

from tests.support.fakes.cluster import FakeCluster, FakeNetwork, Health
from tests.support.fakes.service import Running, running, settings_of

EVIL = "<script>alert(1)</script>\"'"


class Reader(HTMLParser):
    """Collects tags, the text of cells by row, and what was opened but never closed."""

    VOID = frozenset({"meta", "br", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.ids: list[str] = []
        self.inline: dict[str, str] = {}
        self.scopes = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.scopes += tag == "th" and given.get("scope") in {"row", "col"}
        assert not [name for name in given if name.startswith("on")], "an inline handler"
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in {"script", "style"}:
            self.inline[self.open[-1]] = data
        elif {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def test_given_trouble_when_the_page_is_read_then_each_address_topic_and_consumer_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = FakeCluster(FakeNetwork())
        cluster.create_topic("t", 3)
        settings = settings_of({"main": "cluster-a-b1:9092,dead:9092"}, tmp_path)
        async with asyncio.timeout(60), running(cluster.network, settings) as one:
            await parked(one, 0)
            cluster.silence(3, Health.FROZEN)
            await parked(one, 1)
            report = {"instance": EVIL, "kind": EVIL, "positions": {"t": {"0": 0}}, "bootstrap_servers": ["dead:9092"]}
            assert (await one.api.put("/v1/consumers/%3Cb%3E%22'", json=report)).status_code == 200
            response = await one.api.get("/")
            page = Reader()
            page.feed(response.text)
            page.close()
            rows = {row[0]: row for row in page.rows}
            assert not page.open
            assert len(set(page.ids)) == len(page.ids)
            assert "◐ quarantined" in rows["dead:9092"][2]
            assert "no such name" in rows["dead:9092"][3]
            assert "● alive" in rows["cluster-a-b1:9092"][2]
            assert rows["t"][1:3] == ["3", "1"]
            # Which of its calls runs out of time first is a race: "is silent" or "does not tell its end offset".
            assert "its leader, broker 3 at cluster-a-b3:9092, " in rows["t"][3]
            assert "dead:9092 (unresolvable" in rows["<b>\"'"][5]
            assert "<script>alert" not in response.text
            assert page.scopes > 10
            policy = response.headers["content-security-policy"]
            for kind in ("script", "style"):
                digest = base64.b64encode(hashlib.sha256(page.inline[kind].encode()).digest()).decode()
                assert f"{kind}-src 'sha256-{digest}'" in policy

    asyncio.run(main())


async def parked(one: Running, count: int) -> None:
    """Wait until so many partitions are parked in a fresh view."""
    version = 0
    while (status := (await one.api.get("/v1/status")).json())["parked"] != count or status["state"] != "fresh":
        version = (await one.api.get(f"/v1/follow?version={version}&wait=2s")).json().get("version", 0)
