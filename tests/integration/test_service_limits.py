"""Clients that mean harm: many at once, byte by byte, without end. Others go on being served."""

import contextlib
import json
import resource
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from discovery.localkafka.keeper.processes import resident_bytes
from tests.support.helpers import eventually
from tests.support.service import ServiceProcess, serve_arguments, serving

DEAD = "127.0.0.1:1"
MOST = 60


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service with small limits."""
    folder = tmp_path_factory.mktemp("limits")
    config = folder / "config.toml"
    config.write_text(
        '[api]\nrequest_timeout_seconds = "2s"\nwaiters_max = 20\nbody_max_bytes = 2048\n'
        f"connections_max = {MOST}\nheader_max_bytes = 4096\n"
    )
    with serving(DEAD, folder, "--config", str(config)) as one:
        yield one
        resident = resident_bytes(one.pid)
        assert resident is not None
        assert resident < 150_000_000


def connect(service: ServiceProcess) -> socket.socket:
    host, _, port = service.api.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


ASK = b"GET /v1/clusters HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
FLOOD = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400


def connections(service: ServiceProcess) -> int:
    """Return how many connections of the API are open."""
    return metric(service, 'kafka_discovery_connections{listener="api"}')


def closed(service: ServiceProcess, reason: str) -> int:
    """Return how many the API has closed for this reason."""
    return metric(service, f'kafka_discovery_connections_closed_total{{listener="api",reason="{reason}"}}')


def has_waiters(service: ServiceProcess, count: int) -> bool:
    return metric(service, "kafka_discovery_api_waiters") == count


def metric(service: ServiceProcess, series: str) -> int:
    found = next(line for line in service.probe("/metrics").text.splitlines() if line.startswith(series))
    return int(float(found.rpartition(" ")[2]))


def seen(connection: socket.socket) -> bytes:
    """Return all that comes until the other side hangs up."""
    heard = b""
    with contextlib.suppress(OSError):
        while chunk := connection.recv(65_536):
            heard += chunk
    return heard


def test_given_clients_that_trickle_when_others_ask_then_those_are_served_and_the_slow_are_cut_off(
    service: ServiceProcess,
) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(service)) for _ in range(MOST - 10)]
        for connection in slow:
            connection.sendall(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        began = time.monotonic()
        while time.monotonic() - began < 1:
            for connection in slow:
                with contextlib.suppress(OSError):
                    connection.sendall(b"a")
            assert service.get("/v1/status").status_code in {200, 503}
            assert service.probe("/livez").status_code == 200
        for connection in slow:
            connection.settimeout(30)
            assert b" 200 " not in seen(connection)
    eventually(lambda: service.get("/v1/clusters").status_code == 200, 30, "room for others")


def test_given_silent_connections_when_others_ask_then_the_longest_idle_makes_room(service: ServiceProcess) -> None:
    before = closed(service, "evicted")
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(service)) for _ in range(2 * MOST)]
        assert service.get("/v1/clusters").status_code == 200
        silent[-1].sendall(ASK)
        assert silent[-1].recv(65_536).startswith(b"HTTP/1.1 200"), "the youngest was kept"
        assert not seen(silent[0])
        assert closed(service, "evicted") - before >= MOST
        assert connections(service) <= MOST


def test_given_readers_that_never_read_when_their_time_is_up_then_they_are_cut_off(service: ServiceProcess) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(connect(service)).sendall(FLOOD)
        eventually(lambda: connections(service) >= 5, 10, "five readers")
        eventually(lambda: connections(service) == 0, 30, "their end")
    assert service.get("/v1/clusters").status_code == 200


def test_given_places_that_are_all_being_served_when_one_more_asks_then_it_gets_503(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[api]\nwaiters_max = 2\nconnections_max = 3\n")
    watch = b"GET /v1/watch?generation=0&wait=60s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(DEAD, tmp_path, "--config", str(config)) as service, contextlib.ExitStack() as stack:
        service.get("/v1/watch?generation=0&wait=0s")
        for waiters in (1, 2):
            stack.enter_context(connect(service)).sendall(watch)
            eventually(partial(has_waiters, service, waiters), 10, "a waiter")
        stack.enter_context(connect(service)).sendall(FLOOD)
        eventually(lambda: connections(service) == 3, 10, "three that are served")
        with connect(service) as one:
            one.sendall(ASK)
            assert seen(one).startswith(b"HTTP/1.1 503")
        assert service.probe("/livez").status_code == 200
        assert closed(service, "evicted") == 0


def test_given_idle_connections_to_the_probes_when_kubelet_asks_then_it_is_answered(service: ServiceProcess) -> None:
    host, _, port = service.probes.removeprefix("http://").partition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
        for _ in range(3):
            assert service.probe("/livez").status_code == 200
            assert service.probe("/metrics").status_code == 200


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_given_a_body_over_the_limit_when_sent_then_it_is_refused_and_not_kept(
    service: ServiceProcess, *, chunked: bool
) -> None:
    framing = "Transfer-Encoding: chunked" if chunked else "Content-Length: 10000000"
    head = f"PUT /v1/consumers/c HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{framing}\r\n\r\n".encode()
    with connect(service) as connection:
        connection.sendall(head)
        with contextlib.suppress(OSError):
            for _ in range(100):
                connection.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n" if chunked else b" " * 4096)
        heard = seen(connection)
    assert not heard or heard.startswith(b"HTTP/1.1 413"), heard[:100]
    assert service.get("/v1/clusters").status_code == 200


def test_given_a_request_in_the_shape_of_two_when_sent_then_it_is_refused(service: ServiceProcess) -> None:
    smuggled = (
        b"POST /v1/resolve HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /v1/consumers HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    with connect(service) as connection:
        connection.sendall(smuggled)
        assert b" 200 " not in seen(connection)


@pytest.mark.parametrize(
    ("hard", "allowed", "consequences"),
    [(1_200, 1_068, []), (900, 900, ["the API takes 132 connections at the same time"])],
    ids=["enough", "too few"],
)
def test_given_few_open_files_when_serve_starts_then_it_raises_its_limit_and_says_what_is_missing(
    tmp_path: Path, hard: int, allowed: int, consequences: list[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[api]\nwaiters_max = 20\nconnections_max = 300\n")
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard}))"
    program = ("-c", f"{limited}; from discovery.cli.app import main; main()", "serve")
    arguments = serve_arguments(DEAD, tmp_path / "state", "--config", str(config))
    with ServiceProcess(*arguments, log=tmp_path / "log", program=program) as service:
        assert resource.prlimit(service.pid, resource.RLIMIT_NOFILE) == (allowed, hard)
        lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    few = [line for line in lines if line["event"] == "few_files"]
    assert [line["consequence"] for line in few] == consequences
    assert all((line["limit"], line["wanted"], "ulimit -n" in line["remedy"]) == (900, 1_068, True) for line in few)
