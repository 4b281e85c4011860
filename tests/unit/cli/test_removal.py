"""`removal` before it asks: what does not fit into a request is refused, not sent."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from discovery.cli.app import app
from discovery.cli.removal import EXIT, MOST_LISTS_BYTES
from discovery.config.settings import ApiSettings
from discovery.core.errors import ConfigError

LINE = "dau = b1:9092,b2:9092\n"
"""In an address each space, equals sign, colon, comma and line end may take three bytes."""


class Asked(ThreadingHTTPServer):
    """Notes how large each request was, its line and headers together."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Unavailable)
        self.sizes: list[int] = []


class Unavailable(BaseHTTPRequestHandler):
    server: Asked
    raw_requestline: bytes

    def do_GET(self) -> None:
        lines = (*(f"{name}: {value}\r\n" for name, value in self.headers.items()), "\r\n")
        self.server.sizes.append(len(self.raw_requestline) + sum(map(len, lines)))
        self.send_response(503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def service() -> Iterator[Asked]:
    with Asked() as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def words(service: Asked, lists: Path, *more: str) -> list[str]:
    url = f"http://127.0.0.1:{service.server_port}"
    return ["removal", "--url", url, "--brokers", "9,10,11,12", "--lists", str(lists), *more]


@pytest.mark.parametrize("text", [LINE * 700, LINE * 4_000, "# ä\n" * 1_200 + LINE])
def test_given_lists_larger_than_a_request_when_asked_then_one_line_says_so_and_nobody_is_asked(
    tmp_path: Path, service: Asked, text: str
) -> None:
    (tmp_path / "lists").write_text(text)
    refused = CliRunner().invoke(app, words(service, tmp_path / "lists")).exception
    assert isinstance(refused, ConfigError)
    assert str(refused).startswith(f"--lists: {tmp_path / 'lists'} takes ")
    assert str(refused).endswith(f"at most {MOST_LISTS_BYTES}; use --bootstrap instead of a service: it has no limit")
    assert service.sizes == []


def test_given_the_largest_lists_when_asked_then_a_service_reads_the_request(tmp_path: Path, service: Asked) -> None:
    (tmp_path / "token").write_text("t" * 512)
    (tmp_path / "lists").write_text("#" + "x" * (MOST_LISTS_BYTES - 3 - 2 - 3 - 7) + "\nd=b:1")
    asked = CliRunner().invoke(app, words(service, tmp_path / "lists", "--token-file", str(tmp_path / "token")))
    assert asked.exit_code == EXIT["unknown"], asked.output
    assert MOST_LISTS_BYTES < service.sizes[0] <= ApiSettings().header_max_bytes


def test_given_such_lists_when_kafka_itself_is_asked_then_they_are_taken(tmp_path: Path) -> None:
    (tmp_path / "lists").write_text(LINE * 4_000)
    words = [
        "removal",
        "--bootstrap",
        "127.0.0.1:1",
        "--brokers",
        "9",
        "--lists",
        str(tmp_path / "lists"),
        "--timeout",
        "1",
    ]
    assert CliRunner().invoke(app, words).exit_code == EXIT["unknown"], "nobody answers there"


def test_given_nothing_to_move_when_a_plan_is_wanted_then_the_verdict_is_shown_and_no_file_is_written(
    tmp_path: Path, service: Asked
) -> None:
    url, plan = f"http://127.0.0.1:{service.server_port}", tmp_path / "plan.json"
    result = CliRunner().invoke(app, ["removal", "--url", url, "--brokers", "9", "--plan", str(plan)])
    assert result.exit_code == EXIT["unknown"]
    assert "unknown" in result.output
    assert f"--plan: {plan} is not written" in result.output
    assert not plan.exists()
