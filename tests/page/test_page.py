"""The status page in a real Chromium: it updates itself, reads without a script, and everybody can use it."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page.browser import NARROW, WIDE, Scheme, opened
from tests.support.helpers import eventually
from tests.support.service import ServiceProcess

AXE = Path("build/axe/node_modules/axe-core/axe.min.js")
PATIENCE = 60_000


@pytest.fixture(autouse=True)
def settled(service: ServiceProcess, chromium: Browser) -> None:
    """Begin with all brokers alive and all partitions readable."""
    service.say("revive 3")

    def well() -> bool:
        followed(service)
        seen = service.json("/v1/status")
        return bool(seen["partitions"] >= 9 and seen["parked"] == 0 and seen["brokers"]["healthy"] == 3)

    eventually(well, 60, "a healthy cluster")


def followed(service: ServiceProcess) -> None:
    """Have offsets asked for at the full rhythm: with nobody following they are asked every ten seconds only."""
    service.get("/v1/follow?wait=0s")


def parked(service: ServiceProcess) -> None:
    """Let one broker fall silent and wait until its partitions are parked."""
    service.say("silence 3")
    followed(service)
    eventually(lambda: service.json("/v1/status")["parked"] > 0, 60, "parked partitions")


def cell(page: Page, address: str) -> str:
    """Return how a broker's condition is shown."""
    return page.locator("tr", has=page.get_by_role("rowheader", name=address)).locator("td.mark").inner_text()


def test_given_an_open_page_when_a_broker_dies_then_it_is_reported_without_a_reload(
    service: ServiceProcess, chromium: Browser
) -> None:
    with opened(chromium, service.api) as (page, complaints):
        page.evaluate("window.loaded = 1")
        assert cell(page, "cluster-a-b3:9092") == "● alive"
        page.locator(".scroll").first.focus()
        focused = page.evaluate("document.activeElement.id")
        parked(service)
        expect(page.locator("td.mark.wait")).to_have_text("◐ quarantined", timeout=PATIENCE)
        expect(page.get_by_role("main").locator("summary").first).to_contain_text("broker 3", timeout=PATIENCE)
        summary = page.get_by_role("main").locator("summary").first
        summary.focus()
        page.keyboard.press("Enter")
        expect(page.locator("details[open] li").first).to_be_visible()
        page.wait_for_timeout(4_500)  # two more rounds of news
        expect(page.locator("details[open] li").first).to_be_visible()
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
        assert page.evaluate("window.loaded") == 1
        assert focused
        assert not complaints


def test_given_no_script_when_read_then_the_tables_are_there_and_the_page_renews_itself(
    service: ServiceProcess, chromium: Browser
) -> None:
    with opened(chromium, service.api, script=False) as (page, complaints):
        assert cell(page, "cluster-a-b1:9092") == "● alive"
        parked(service)
        expect(page.locator("td.mark.wait")).to_have_text("◐ quarantined", timeout=PATIENCE)
        assert not complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW, (320, 640)], ids=["wide", "narrow", "narrowest"])
def test_given_any_screen_when_shown_then_nothing_is_cut_off_and_every_word_can_be_read(
    service: ServiceProcess, chromium: Browser, size: tuple[int, int], scheme: Scheme
) -> None:
    parked(service)
    with opened(chromium, service.api, size=size, scheme=scheme) as (page, complaints):
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.evaluate(_LEAST_CONTRAST) >= 4.5
        assert not complaints


def test_given_a_keyboard_alone_when_tabbing_then_every_table_and_link_is_reached_in_order(
    service: ServiceProcess, chromium: Browser
) -> None:
    with opened(chromium, service.api) as (page, _):
        wanted = page.evaluate("document.querySelectorAll('a, summary, [tabindex=\"0\"]').length")
        reached = []
        for _ in range(wanted):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        assert len(set(reached)) == wanted


def test_given_the_page_when_axe_looks_then_it_finds_no_fault(service: ServiceProcess, chromium: Browser) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not here: `make test-page` brings it from the npm registry")
    parked(service)
    for scheme in ("light", "dark"):
        with opened(chromium, service.api, scheme=scheme) as (page, _):
            page.evaluate(AXE.read_text(encoding="utf-8"))
            faults = page.evaluate("axe.run().then(seen => seen.violations)")
            assert not [(f["id"], f["help"], [n["html"] for n in f["nodes"]]) for f in faults]


_LEAST_CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (color, under) => {
    canvas.clearRect(0, 0, 1, 1);
    if (under) { canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1); }
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((one) => {
      const share = one / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (!color.endsWith(", 0)") && color !== "transparent") return color;
    }
    return "white";
  };
  const seen = [...document.querySelectorAll("body *")]
    .filter((one) => [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
    .filter((one) => one.checkVisibility() && !["SCRIPT", "STYLE", "CAPTION"].includes(one.tagName))
    .map((one) => {
      const pair = [light(getComputedStyle(one).color), light(ground(one))].sort((a, b) => b - a);
      return (pair[0] + 0.05) / (pair[1] + 0.05);
    });
  return Math.min(...seen);
}"""
"""The least contrast of any text on its ground; 4.5 is what WCAG AA asks for."""
