"""The health check of containers, against real sockets."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from discovery.cli.health import UnhealthyError, ask
from discovery.core.errors import ConfigError


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = 200 if self.path.startswith("/livez") else 503
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"[+] loop main: turned\nok\n" if status == 200 else b"[-] view main: cold\n")

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def test_given_a_service_that_is_well_when_asked_then_its_words_are_reported(url: str) -> None:
    assert ask(f"{url}/livez", 10) == "[+] loop main: turned; ok"


def test_given_a_service_that_is_not_when_asked_then_the_reason_is_one_line(url: str) -> None:
    with pytest.raises(UnhealthyError, match=r"says 503: \[-\] view main: cold$") as raised:
        ask(f"{url}/readyz", 10)
    assert raised.value.exit_code == 1


def test_given_nobody_when_asked_then_the_address_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        with pytest.raises(UnhealthyError, match=r"does not answer.*refused"):
            ask(f"http://127.0.0.1:{taken.getsockname()[1]}/livez", 10)


@pytest.mark.parametrize("said", [b"", b"\x15\x03\x01\x00\x02\x02\x46"], ids=["silent", "no HTTP"])
def test_given_something_that_is_no_service_when_asked_then_it_is_unhealthy(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(said)

        speaking = threading.Thread(target=speak)
        speaking.start()
        with pytest.raises(UnhealthyError, match="does not answer"):
            ask(f"http://127.0.0.1:{server.getsockname()[1]}/livez", 10)
        speaking.join()


@pytest.mark.parametrize("address", ["localhost:9464", "ftp://x", "http://[::1"])
def test_given_no_address_when_asked_then_the_option_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match="--url"):
        ask(address, 1)
