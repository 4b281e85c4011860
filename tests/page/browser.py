"""A real Chromium: the system's own, since Playwright's download of a browser needs an address it cannot be given."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no Chromium here: `apt-get install chromium`, then `make test-page`"
Scheme = Literal["light", "dark"]
WIDE = (1280, 900)
NARROW = (390, 844)
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def found() -> str | None:
    """Return where Chromium is, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Run Chromium without a window."""
    path = found()
    assert path is not None, MISSING
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=list(_FLAGS), timeout=120_000)
        try:
            yield started
        finally:
            started.close()


@contextlib.contextmanager
def opened(
    chromium: Browser,
    url: str,
    *,
    size: tuple[int, int] = WIDE,
    scheme: Scheme = "light",
    script: bool = True,
    zoom: float = 1,
) -> Iterator[tuple[Page, list[str]]]:
    """Open a page; yields it and the complaints of its console."""
    context = chromium.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        java_script_enabled=script,
        device_scale_factor=zoom,
    )
    try:
        page = context.new_page()
        page.set_default_timeout(60_000)
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url)
        yield page, complaints
    finally:
        context.close()
