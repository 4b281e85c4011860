"""One Chromium and one service for all tests of the page."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.page.browser import MISSING, browser, found
from tests.support.service import ServiceProcess

PROGRAM = ("-m", "tests.support.fakes.service_main")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The system's Chromium; without one the tests of the page are skipped."""
    if found() is None:
        pytest.skip(MISSING)
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service over a cluster in memory: three brokers, three topics of three partitions."""
    folder = tmp_path_factory.mktemp("page")
    with ServiceProcess(str(folder / "state"), "0", "3", log=folder / "log", program=PROGRAM) as one:
        yield one
    assert "BUG in" not in (folder / "log").read_text()
