"""Pictures of the status page for the docs: `python -m tests.page.pictures [FOLDER]`.

Real brokers, a real service, a real Chromium: a healthy cluster, a scale-in, an outage, a bootstrap list that names
another cluster's broker. Each is taken light and dark, wide and narrow; the docs show some of them.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.page.browser import NARROW, WIDE, Scheme, browser, opened
from tests.support.helpers import eventually, produce
from tests.support.service import ServiceProcess, serving

DOCS = Path("docs/images")
SHOWN = {
    "healthy-wide-light": "page-healthy",
    "scale-in-wide-dark": "page-scale-in",
    "outage-wide-light": "page-outage",
    "foreign-wide-dark": "page-foreign",
    "healthy-narrow-dark": "page-narrow",
}
GONE = 4
PARTITIONS = 22
SETTLED = 40
"""So many answers of one generation, two seconds of them."""
_SHAPES: tuple[tuple[str, tuple[int, int], Scheme], ...] = (
    ("wide-light", WIDE, "light"),
    ("wide-dark", WIDE, "dark"),
    ("narrow-light", NARROW, "light"),
    ("narrow-dark", NARROW, "dark"),
)


def main(folder: Path) -> None:
    """Play the four scenes and keep the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with browser() as chromium, LocalKafka(ClusterSettings(brokers=4)) as kafka, tempfile.TemporaryDirectory() as state:
        kafka.create_topic("orders", 6, 3)
        kafka.create_topic("clicks", 12, 3)
        kafka.create_topic("audit", 4, 1)
        produce(kafka.bootstrap_servers, "orders", *[f"order {i}" for i in range(500)])

        def keep(service: ServiceProcess, scene: str) -> None:
            take(chromium, service, scene, folder)

        with serving(kafka.bootstrap_servers, Path(state)) as service:
            play(service, kafka, keep)
        with foreign(kafka, Path(state) / "other") as service:
            until(service, lambda d: d["brokers"]["rejected"] == 1 and d["brokers"]["healthy"] >= 3)
            keep(service, "foreign")


def play(service: ServiceProcess, kafka: LocalKafka, keep: Callable[[ServiceProcess, str], None]) -> None:
    """All is well; then a broker leaves; then nobody answers."""
    until(service, lambda d: d["brokers"]["healthy"] == len(kafka.broker_ids))
    until(service, lambda d: d["partitions"] == PARTITIONS and not d["parked"])
    report(service, kafka)
    keep(service, "healthy")
    kafka.terminate([GONE])
    kafka.wait_registered([GONE], registered=False)
    until(service, lambda d: d["brokers"]["quarantined"] == 1 and d["parked"])
    report(service, kafka)
    keep(service, "scale-in")
    kafka.pause(kafka.living_ids())
    until(service, lambda d: d["state"] == "failsafe")
    report(service, kafka)
    keep(service, "outage")
    kafka.resume([1, 2, 3])


@contextlib.contextmanager
def foreign(kafka: LocalKafka, folder: Path) -> Iterator[ServiceProcess]:
    """Serve a list whose last address belongs to another cluster by now."""
    folder.mkdir()
    with LocalKafka(ClusterSettings(brokers=1)) as other:
        addresses = [kafka.address(i) for i in (1, 2, 3)] + [other.address(1)]
        with serving(",".join(addresses), folder) as service:
            yield service


def report(service: ServiceProcess, kafka: LocalKafka) -> None:
    """Say what two queries would: one is well, one lags and still lists the broker that leaves."""
    generation = settled(service)
    ends = {str(p["partition"]): p["high_watermark"] for p in service.json("/v1/topics/orders")["partitions"]}
    every = kafka.bootstrap_servers.split(",")
    seen: dict[str, dict[str, Any]] = {
        "daily-active-users": {"acked_generation": generation, "positions": {"orders": ends}, "list": every[:3]},
        "visits-per-ip": {
            "acked_generation": generation - 1,
            "positions": {"orders": {p: max(0, end - 37) for p, end in ends.items()}},
            "list": every,
        },
    }
    for name, said in seen.items():
        body = {"instance": "driver-1", "kind": "spark", "bootstrap_servers": said.pop("list"), **said}
        httpx.put(f"{service.api}/v1/consumers/{name}", json=body, timeout=30, trust_env=False).raise_for_status()


def settled(service: ServiceProcess) -> int:
    """Return the view's generation once it stays: a later one would leave every query behind."""
    seen = [-1]

    def stays() -> bool:
        seen.append(service.json("/v1/status")["generation"])
        return len(seen) > SETTLED and len(set(seen[-SETTLED:])) == 1

    eventually(stays, 60, "a view that stays")
    return seen[-1]


def take(chromium: Browser, service: ServiceProcess, scene: str, folder: Path) -> None:
    """Keep one scene in every shape."""
    for shape, size, scheme in _SHAPES:
        with opened(chromium, service.api, size=size, scheme=scheme) as (page, complaints):
            page.wait_for_timeout(300)
            name = f"{scene}-{shape}"
            page.screenshot(path=folder / f"{name}.png", full_page=size == NARROW)
            if name in SHOWN:
                DOCS.mkdir(parents=True, exist_ok=True)
                page.screenshot(path=DOCS / f"{SHOWN[name]}.png")
            assert not complaints, complaints
    print(f"{scene}: {service.json('/v1/status')['sentence']}", flush=True)  # noqa: T201 - the program's output


def until(service: ServiceProcess, condition: Callable[[dict[str, Any]], object]) -> None:
    """Wait for a status."""
    eventually(lambda: condition(service.json("/v1/status")), 120, "the scene")


if __name__ == "__main__":
    os.environ.setdefault("NO_PROXY", "*")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build/pictures"))
