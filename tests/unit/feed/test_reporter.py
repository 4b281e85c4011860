"""Who may have an id, asked of a service that answers as a test says."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from discovery.core.errors import StateError
from discovery.core.model import Isolation
from discovery.feed.reporter import Reporter
from discovery.feed.service_client import ServiceClient
from tests.support.fakes.clock import FakeClock

BUSY, TAKEN, REFUSED = 503, 409, 403
STEP_SECONDS = 5.0


class Script(BaseHTTPRequestHandler):
    """Answers reports with one status after the other, the last one for ever; each takes five seconds."""

    statuses: Sequence[int]
    clock: FakeClock
    reports: int

    def do_PUT(self) -> None:
        """Take a report."""
        script = type(self)
        status = script.statuses[min(script.reports, len(script.statuses) - 1)]
        script.reports += 1
        script.clock.advance(STEP_SECONDS)
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def claiming(*statuses: int) -> Iterator[tuple[Reporter, type[Script]]]:
    """Yield a reporter with an id, and the service it reports to."""
    clock = FakeClock()
    script = type("Scripted", (Script,), {"statuses": statuses, "clock": clock, "reports": 0})
    with ThreadingHTTPServer(("127.0.0.1", 0), script) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = ServiceClient(f"http://127.0.0.1:{server.server_port}")
        reporter = Reporter(
            client,
            consumer_id="dau",
            isolation=Isolation.READ_UNCOMMITTED,
            bootstrap=(),
            parked=dict,
            fallback=str,
            stopping=threading.Event(),
            clock=clock,
        )
        try:
            yield reporter, script
        finally:
            client.close()
            server.shutdown()


def test_given_a_service_that_is_starting_when_an_id_is_claimed_then_it_is_asked_until_it_knows() -> None:
    with claiming(BUSY, BUSY, 200) as (reporter, service):
        reporter.claim()
    assert service.reports == 3


def test_given_an_id_in_use_at_a_service_that_is_starting_when_it_is_claimed_then_it_is_refused() -> None:
    with claiming(BUSY, TAKEN) as (reporter, _), pytest.raises(StateError, match="sourceId 'dau'"):
        reporter.claim()


@pytest.mark.parametrize(("status", "reports"), [(BUSY, 3), (REFUSED, 1), (500, 1)])
def test_given_a_service_that_does_not_say_when_an_id_is_claimed_then_the_start_goes_on(
    status: int, reports: int
) -> None:
    with claiming(status) as (reporter, service):
        reporter.claim()
    assert service.reports == reports, "once, or for fifteen seconds"
