"""What the bootstrap endpoint costs and holds: `make bench-endpoint`; a case: `python -m benchmarks.endpoint pipe`."""

import contextlib
import json
import multiprocessing
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

from discovery.core.model import BrokerAddress, ClusterId, Generation, LoopState, Verdict
from discovery.endpoint.limits import Limits
from discovery.endpoint.race import Resolved
from discovery.endpoint.server import Endpoint
from discovery.feed.base import AddressReport, FeedView
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.endpoint import endpoint_to
from tests.support.faults import black_hole
from tests.support.results import run_cases, say, summary

ROUNDS = 300
CONNECTIONS = 1_000
PIPE_BYTES = 4 << 30
_REQUEST = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""ApiVersions v0."""
Result = dict[str, Any]


def ask(address: str) -> float:
    """Connect, ask for the API versions, return the seconds until the answer's first byte."""
    host, _, port = address.rpartition(":")
    began = time.perf_counter()
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(_REQUEST)
        if not client.recv(4):
            raise SystemExit(f"{address} closed the connection without an answer")
        return time.perf_counter() - began


def first_byte() -> Result:
    """Twelve addresses of which ten are black holes; then the same two brokers asked directly, in turn."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(LocalKafka(ClusterSettings(brokers=2)))
        holes = [stack.enter_context(black_hole()) for _ in range(10)]
        listed = ",".join([*holes[:6], cluster.address(1), *holes[6:], cluster.address(2)])
        address, direct = stack.enter_context(endpoint_process(listed)), cluster.address(1)
        ready_seconds = ask(address)  # the first client is held until a broker has proved itself
        for _ in range(30):  # JVMs that have just started are slow
            ask(address), ask(direct)
        rounds = [(ask(address), ask(direct), ask(direct)) for _ in range(ROUNDS)]
    through = summary([1_000 * one for one, _, _ in rounds])
    straight = summary([1_000 * one for _, one, _ in rounds])
    added = summary([1_000 * (one - other) for one, other, _ in rounds])
    noise = summary([1_000 * (one - other) for _, other, one in rounds])
    for each in (through, straight, added, noise):
        each.pop("values")
    say(f"first byte through the endpoint {through} ms, directly {straight} ms, added {added} ms, noise {noise} ms")
    return {
        "ready_seconds": round(ready_seconds, 3),
        "through_milliseconds": through,
        "direct_milliseconds": straight,
        "added_milliseconds": added,
        "noise_milliseconds": noise,
    }


@contextlib.contextmanager
def endpoint_process(listed: str) -> Iterator[str]:
    """Run `kafka-discovery endpoint` as a process of its own, for in ours it would wait for our interpreter."""
    with tempfile.TemporaryDirectory(prefix="endpoint-") as folder:
        command = [
            sys.executable, "-c", "from discovery.cli.app import main; main()", "endpoint",
            "--bootstrap", listed, "--port", "0", "--state-dir", folder, "--json",
        ]  # fmt: skip
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            yield str(json.loads(process.stdout.readline())["endpoint"])
        finally:
            process.terminate()
            process.wait(30)


def many() -> Result:
    """A thousand clients connected at the same time, each asking twice."""
    with LocalKafka(ClusterSettings(brokers=2)) as cluster, endpoint_to(cluster.bootstrap_servers) as running:
        host, _, port = running.endpoint.address.rpartition(":")
        ask(running.endpoint.address)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(socket.create_connection((host, int(port)), timeout=30)) for _ in range(CONNECTIONS)
            ]
            answered = sum(_answered(client) for client in clients)
            open_now = running.endpoint.shown().connections
            answered_again = sum(_answered(client) for client in clients)
            seconds = time.perf_counter() - began
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1_024
    result = {
        "clients": CONNECTIONS,
        "open_at_once": open_now,
        "answered": answered,
        "answered_again": answered_again,
        "seconds": round(seconds, 2),
        "grown_megabytes": round(grown, 1),
    }
    say(f"{result}")
    return result


def _answered(client: socket.socket) -> bool:
    client.sendall(_REQUEST)
    length = int.from_bytes(_exactly(client, 4), "big")
    return len(_exactly(client, length)) == length


def _exactly(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := client.recv(count - len(data))):
        data += more
    return data


def pipe() -> Result:
    """Bytes a second from one process to another, directly and through the endpoint in a third."""
    seen: multiprocessing.Queue[Any] = multiprocessing.Queue()
    sink = multiprocessing.Process(target=_sink, args=(seen,), daemon=True)
    sink.start()
    port = seen.get(timeout=30)
    try:
        direct = [_send(port) for _ in range(3)]
        with _endpoint_to_port(port) as endpoint:
            through = [_send(int(endpoint.address.rpartition(":")[2])) for _ in range(3)]
    finally:
        sink.kill()
        sink.join()
    result = {
        "direct_megabytes_per_second": round(max(direct)),
        "through_megabytes_per_second": round(max(through)),
        "bytes": PIPE_BYTES,
    }
    say(f"{result}")
    return result


class _Plain:
    """Proves nothing: what is measured is the pipe."""

    tls = None

    async def resolve(self, address: BrokerAddress) -> Resolved:
        return Resolved(socket.AF_INET, (address.host, address.port))

    async def prove(self, _address: BrokerAddress, _resolved: Resolved, _cluster_id: ClusterId) -> str | None:
        return None


@contextlib.contextmanager
def _endpoint_to_port(port: int) -> Iterator[Endpoint]:
    address = BrokerAddress("127.0.0.1", port)
    view = FeedView(
        version=1,
        generation=Generation(1),
        state=LoopState.FRESH,
        cluster_id=ClusterId("pipe"),
        age_seconds=0.0,
        bootstrap=(address,),
        addresses=MappingProxyType({address: AddressReport(verdict=Verdict.ALIVE)}),
    )
    endpoint = Endpoint(lambda: view, _Plain(), Limits(port=0))
    endpoint.start()
    try:
        if not endpoint.wait_ready(30):
            raise SystemExit("the sink did not answer")
        yield endpoint
    finally:
        endpoint.stop()


def _sink(seen: Any) -> None:
    """Answer health checks, swallow the rest, and say "k" at its end."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen.put(listener.getsockname()[1])

    def swallow(client: socket.socket) -> None:
        buffer = bytearray(1 << 20)
        with client, contextlib.suppress(OSError):
            count = client.recv_into(buffer)
            if buffer[4:6] == b"\x00\x12":
                client.sendall(b"\x00\x00\x00\x0a" + buffer[8:12] + b"\x00" * 6)
            while count:
                count = client.recv_into(buffer)
            client.sendall(b"k")

    while True:
        client, _ = listener.accept()
        threading.Thread(target=swallow, args=(client,), daemon=True).start()


def _send(port: int) -> float:
    seen: multiprocessing.Queue[float] = multiprocessing.Queue()
    source = multiprocessing.Process(target=_source, args=(port, seen))
    source.start()
    rate = seen.get(timeout=300)
    source.join()
    return rate


def _source(port: int, seen: Any) -> None:
    block = bytes(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as client:
        began = time.perf_counter()
        for _ in range(PIPE_BYTES >> 20):
            client.sendall(block)
        client.shutdown(socket.SHUT_WR)
        client.recv(1)
        seen.put(PIPE_BYTES / 1e6 / (time.perf_counter() - began))


CASES: dict[str, Callable[[], Result]] = {"first_byte": first_byte, "many": many, "pipe": pipe}


def section(result: Result) -> str:
    """Tell the kept run; `benchmarks.report` puts it into the page."""
    first, crowd, flow = result["first_byte"], result["many"], result["pipe"]
    through, direct, added = (first[f"{name}_milliseconds"] for name in ("through", "direct", "added"))
    rate, straight = flow["through_megabytes_per_second"], flow["direct_megabytes_per_second"]
    answers = f"{crowd['answered']} and {crowd['answered_again']} answers, {crowd['grown_megabytes']:.0f} MB more"
    rows = [
        ("connect to first byte of an answer, through the endpoint", _times(through), "p99 < 300 ms"),
        ("the same, asking a broker directly", _times(direct), "-"),
        ("added by the endpoint, pair by pair", _times(added), "< 2 ms"),
        ("added by nothing: the broker asked directly once more", _times(first["noise_milliseconds"]), "-"),
        ("first client after the start, held until a broker has proved itself", f"{first['ready_seconds']:.2f} s", "-"),
        ("clients connected at the same time", f"{crowd['open_at_once']}; {answers}", "1 000"),
        (
            "bytes through one pipe, best of 3",
            f"{rate} MB/s, {rate / straight:.0%} of the {straight} MB/s without it",
            ">= 500 MB/s",
        ),
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"""## The bootstrap endpoint

`make bench-endpoint`. Twelve addresses, ten of them black holes, two real brokers; {through["n"]} clients one after the
other, each also asking a broker directly. The endpoint is a process of its own.

| what | measured | target |
|---|---|---|
{table}

{_quiet(result)}Sender, endpoint and receiver share two cores, and every byte is copied twice more than without the
endpoint: so its share of the direct rate is what counts. Clients move only their first requests through it, and ask the
brokers themselves for records.
"""


def _quiet(result: Result) -> str:
    """Tell what a run on a quieter machine brought, where one is kept."""
    if "first_byte_quiet" not in result:
        return ""
    quiet = result["first_byte_quiet"]
    busy_load, quiet_load = (one["load_average"][1] for one in (result["first_byte"], quiet))
    through, direct, added = (_times(quiet[f"{name}_milliseconds"]) for name in ("through", "direct", "added"))
    return (
        f"The latencies were taken at a load average of {busy_load:.0f}: what asking a broker twice differs by is the\n"
        f"machine's. At a load of {quiet_load:.0f}, through the endpoint {through}; directly\n{direct}; added pair\n"
        f"by pair {added}. With endpoint and client in one process, as it was measured before, the client's\n"
        "own interpreter held the endpoint up: p99 27 ms.\n\n"
    )


def _times(seen: dict[str, float]) -> str:
    return f"p50 {seen['p50']:.2f} ms, p99 {seen['p99']:.2f} ms"


if __name__ == "__main__":
    run_cases("endpoint", CASES, sys.argv[1:])
