"""The endpoint over sockets of the test's own: whom it leads to, whom it turns away, what it ends."""

import asyncio
import contextlib
import errno
import gc
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from discovery.config.logs import bound
from discovery.config.settings import Settings
from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress, ClusterId, Generation, LoopState, Verdict
from discovery.endpoint.counting import LIMIT, NO_UPSTREAM
from discovery.endpoint.limits import Limits
from discovery.endpoint.make import followed
from discovery.endpoint.metrics import EndpointCollector
from discovery.endpoint.names import covers, judge
from discovery.endpoint.race import Resolved
from discovery.endpoint.selection import in_order, to_guard
from discovery.endpoint.server import Endpoint
from discovery.feed.base import AddressReport, FeedView
from tests.support.faults import black_hole
from tests.support.helpers import eventually

CLUSTER = ClusterId("right")
QUICK = Limits(
    port=0, health_check_interval_seconds=0.1, health_check_timeout_seconds=0.5, hold_seconds=1.0, drain_seconds=2.0
)
WAIT_SECONDS = 20.0


class Broker:
    """Answers ApiVersions, and sends everything else back with its name before it; can freeze, end and come back."""

    def __init__(self, name: str, *, port: int = 0) -> None:
        self.name = name.encode()
        self.cluster = "right"
        self.frozen = threading.Event()
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = BrokerAddress("127.0.0.1", self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._talk, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65_536):
                if self.frozen.is_set():
                    continue
                if data[4:6] == b"\x00\x12":
                    connection.sendall(b"\x00\x00\x00\x0a" + data[8:12] + b"\x00" * 6)
                else:
                    connection.sendall(self.name + b":" + data)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)


@dataclass(slots=True)
class Cluster:
    """Stands in for the loop and for librdkafka: says who is alive and proves whose cluster a broker is of."""

    brokers: list[Broker]
    tls: ssl.SSLContext | None = None
    living: list[BrokerAddress] = field(default_factory=list)
    proofs: list[BrokerAddress] = field(default_factory=list)
    short: bool = False
    """This process is out of descriptors when a proof is wanted."""

    def view(self) -> FeedView:
        reports = {address: AddressReport(verdict=Verdict.ALIVE, configured=True) for address in self.living}
        return FeedView(
            version=1,
            generation=Generation(1),
            state=LoopState.FRESH,
            cluster_id=CLUSTER,
            age_seconds=0.0,
            bootstrap=tuple(self.living),
            addresses=MappingProxyType(reports),
        )

    async def resolve(self, address: BrokerAddress) -> Resolved:
        return Resolved(socket.AF_INET, (address.host, address.port))

    async def prove(self, address: BrokerAddress, resolved: Resolved, cluster_id: ClusterId) -> str | None:
        del resolved
        self.proofs.append(address)
        if self.short:
            raise OSError(errno.EMFILE, "no descriptors")
        owner = next((broker for broker in reversed(self.brokers) if broker.address == address), None)
        await asyncio.sleep(0.01)
        return None if owner is not None and owner.cluster == cluster_id else "it belongs to another cluster"


@contextlib.contextmanager
def serving(
    *brokers: Broker, limits: Limits = QUICK, alive: Sequence[BrokerAddress] = ()
) -> Iterator[tuple[Endpoint, Cluster]]:
    cluster = Cluster(list(brokers), living=[*(broker.address for broker in brokers), *alive])
    endpoint = Endpoint(cluster.view, cluster, limits)
    endpoint.start()
    try:
        yield endpoint, cluster
    finally:
        endpoint.stop()
        for broker in brokers:
            with contextlib.suppress(OSError):
                broker.end()


def dial(endpoint: Endpoint) -> socket.socket:
    host, _, port = endpoint.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_SECONDS)


def ask(endpoint: Endpoint, text: bytes = b"x") -> bytes:
    """Return the answer; nothing where the endpoint closes, which is a reset when it has read nothing."""
    with dial(endpoint) as client, contextlib.suppress(ConnectionResetError):
        client.sendall(text)
        return client.recv(65_536)
    return b""


def test_given_two_living_brokers_when_clients_come_then_all_are_led_to_the_one_that_worked_last() -> None:
    with serving(Broker("a"), Broker("b")) as (endpoint, _):
        assert endpoint.wait_ready(WAIT_SECONDS)
        first = ask(endpoint)
        assert [ask(endpoint) for _ in range(5)] == [first] * 5
        assert endpoint.shown().sticky is not None


def test_given_the_sticky_broker_ends_when_its_connection_breaks_then_its_clients_are_cut_and_others_get_another() -> (
    None
):
    a, b = Broker("a"), Broker("b")
    with serving(a, b) as (endpoint, _):
        eventually(lambda: len(endpoint.shown().ready) == 2, WAIT_SECONDS, "both brokers ready")
        held = dial(endpoint)
        held.sendall(b"x")
        used, other = (a, b) if held.recv(10)[:1] == b"a" else (b, a)
        address = str(used.address)
        used.end()
        assert held.recv(10) == b""
        held.close()
        assert ask(endpoint) == other.name + b":x"
        assert endpoint.counts.lost[address] == 1


def test_given_a_frozen_broker_that_still_accepts_when_it_answers_no_health_check_then_its_clients_are_cut() -> None:
    a, b = Broker("a"), Broker("b")
    with serving(a, b) as (endpoint, _):
        eventually(lambda: len(endpoint.shown().ready) == 2, WAIT_SECONDS, "both brokers ready")
        with dial(endpoint) as held:
            held.sendall(b"x")
            used, other = (a, b) if held.recv(10)[:1] == b"a" else (b, a)
            used.frozen.set()
            assert held.recv(10) == b""
        assert ask(endpoint) == other.name + b":x"


def test_given_an_address_whose_listener_changed_hands_when_it_was_not_proved_again_then_nobody_is_led_there() -> None:
    a = Broker("a")
    with serving(a) as (endpoint, cluster):
        assert endpoint.wait_ready(WAIT_SECONDS)
        port = a.address.port
        a.end()
        stranger = Broker("stranger", port=port)
        stranger.cluster = "wrong"
        cluster.brokers.append(stranger)
        try:
            # The loop has noticed nothing: it still calls the address alive.
            assert ask(endpoint) == b""
            eventually(lambda: len(cluster.proofs) > 1, WAIT_SECONDS, "a new proof asked for")
            assert ask(endpoint) == b""
            assert endpoint.counts.turned_away[NO_UPSTREAM] == 2
        finally:
            stranger.end()


def test_given_a_broker_that_comes_back_when_it_has_proved_itself_then_clients_are_led_there_again() -> None:
    a = Broker("a")
    with serving(a) as (endpoint, cluster):
        assert endpoint.wait_ready(WAIT_SECONDS)
        port = a.address.port
        a.end()
        eventually(lambda: not endpoint.shown().ready, WAIT_SECONDS, "the dead broker taken out")
        again = Broker("again", port=port)
        cluster.brokers.append(again)
        try:
            assert endpoint.wait_ready(WAIT_SECONDS)
            assert ask(endpoint) == b"again:x"
        finally:
            again.end()


def test_given_black_holes_among_the_living_when_clients_come_then_they_wait_for_none_of_them() -> None:
    with black_hole() as first, black_hole() as second:
        holes = [BrokerAddress.parse(first), BrokerAddress.parse(second)]
        with serving(Broker("a"), alive=holes) as (endpoint, _):
            assert endpoint.wait_ready(WAIT_SECONDS)
            assert ask(endpoint) == b"a:x"
            assert set(endpoint.shown().ready).isdisjoint(holes)


def test_given_a_process_out_of_files_when_a_client_comes_then_no_broker_is_blamed() -> None:
    with serving(Broker("a")) as (endpoint, _):
        assert endpoint.wait_ready(WAIT_SECONDS)
        full = OSError(errno.EMFILE, "Too many open files")
        endpoint._failed(endpoint.shown().ready[0], full)
        assert endpoint.shown().ready
        assert ask(endpoint) == b"a:x"


def test_given_a_process_out_of_files_when_a_proof_is_renewed_then_the_one_that_stands_goes_on_standing() -> None:
    limits = replace(QUICK, renew_seconds=0.05)
    with serving(Broker("b1"), limits=limits) as (endpoint, cluster):
        assert ask(endpoint) == b"b1:x"
        cluster.short = True
        tried = len(cluster.proofs)
        eventually(lambda: len(cluster.proofs) > tried + 2, WAIT_SECONDS, "renewals that could not be made")
        assert endpoint.shown().ready == (cluster.brokers[0].address,)
        assert not endpoint.counts.lost
        cluster.brokers[0].end()
        eventually(lambda: not endpoint.shown().ready, WAIT_SECONDS, "the end of the broker")


def test_given_no_living_broker_when_a_client_comes_then_it_is_held_until_one_appears() -> None:
    broker = Broker("late")
    patient = replace(QUICK, hold_seconds=WAIT_SECONDS)
    with serving(broker, limits=patient) as (endpoint, cluster):
        cluster.living.clear()
        eventually(lambda: not endpoint.shown().ready, WAIT_SECONDS, "nobody ready")
        with dial(endpoint) as client:
            client.sendall(b"x")
            cluster.living.append(broker.address)
            assert client.recv(100) == b"late:x"


def test_given_the_limit_of_connections_when_one_more_comes_then_it_alone_is_closed() -> None:
    with serving(Broker("a"), limits=replace(QUICK, connections_max=2)) as (endpoint, _):
        assert endpoint.wait_ready(WAIT_SECONDS)
        with dial(endpoint) as one, dial(endpoint) as two:
            for client in (one, two):
                client.sendall(b"x")
                assert client.recv(10) == b"a:x"
            assert ask(endpoint) == b""
            one.sendall(b"y")
            assert one.recv(10) == b"a:y"
        assert endpoint.counts.turned_away[LIMIT] == 1


def test_given_a_client_that_has_said_all_when_it_half_closes_then_the_answer_still_arrives() -> None:
    with serving(Broker("a")) as (endpoint, _):
        assert endpoint.wait_ready(WAIT_SECONDS)
        with dial(endpoint) as client:
            client.sendall(b"x" * 100_000)
            client.shutdown(socket.SHUT_WR)
            received = b""
            while more := client.recv(65_536):
                received += more
        assert received.replace(b"a:", b"") == b"x" * 100_000


def test_given_a_quiet_client_when_the_endpoint_stops_then_it_is_closed_and_the_port_is_free() -> None:
    broker = Broker("a")
    with serving(broker) as (endpoint, _):
        assert endpoint.wait_ready(WAIT_SECONDS)
        with dial(endpoint) as client:
            client.sendall(b"x")
            assert client.recv(10) == b"a:x"
            endpoint.stop()
            assert client.recv(10) == b""
        host, _, port = endpoint.address.rpartition(":")
        socket.create_server((host, int(port))).close()


def test_given_clients_that_come_at_the_very_end_when_stopped_then_each_is_closed() -> None:
    over = threading.Event()

    def come(endpoint: Endpoint) -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), dial(endpoint):
                pass

    for _ in range(8):
        with serving(Broker("a"), limits=replace(QUICK, drain_seconds=0.1)) as (endpoint, _):
            assert endpoint.wait_ready(WAIT_SECONDS)
            over.clear()
            clients = [threading.Thread(target=come, args=(endpoint,), daemon=True) for _ in range(4)]
            for client in clients:
                client.start()
            try:
                eventually(endpoint.counts.opened.total, WAIT_SECONDS, "a client")
                endpoint.stop()
            finally:
                over.set()
                for client in clients:
                    client.join(WAIT_SECONDS)
        gc.collect()  # a socket nobody closed is an error of this test


def test_given_traffic_when_metrics_are_read_then_they_tell_it_by_upstream_and_forget_those_that_are_gone() -> None:
    broker = Broker("a")
    with serving(broker) as (endpoint, cluster):
        assert endpoint.wait_ready(WAIT_SECONDS)
        assert ask(endpoint, b"12345") == b"a:12345"
        registry = CollectorRegistry()
        registry.register(EndpointCollector(endpoint, "main"))
        upstream = str(broker.address)

        def value(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(f"kafka_discovery_endpoint_{name}", {"kafka_cluster": "main", **labels})

        assert value("bytes_total", upstream=upstream, direction="to_broker") == 5
        assert value("bytes_total", upstream=upstream, direction="to_client") == 7
        assert value("connections_total", upstream=upstream) == 1
        assert value("ready_upstreams") == 1
        assert value("connect_seconds_count") == 1
        eventually(lambda: value("open_connections", upstream=upstream) == 0, WAIT_SECONDS, "the client's end")
        cluster.living.clear()
        eventually(lambda: value("connections_total", upstream=upstream) is None, WAIT_SECONDS, "its series gone")
        assert generate_latest(registry)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object]]:
    ours = [record for record in caplog.records if record.name == "discovery.endpoint"]
    return [(getattr(one, "event", ""), getattr(one, "facts", {}).get("cluster")) for one in ours]


def test_given_several_clusters_when_an_endpoint_logs_then_every_line_says_whose_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker("a")
    with caplog.at_level("INFO", "discovery"), bound(cluster="orders"), serving(broker) as (endpoint, cluster):
        assert endpoint.wait_ready(WAIT_SECONDS)
        assert ask(endpoint) == b"a:x"
        cluster.living.clear()
        eventually(lambda: not endpoint.shown().ready, WAIT_SECONDS, "no broker left")
    happened = ["endpoint_listening", "upstream_ready", "upstream_chosen", "upstream_lost", "endpoint_stopped"]
    assert sorted(lines(caplog)) == sorted((event, "orders") for event in happened)


def test_given_an_endpoint_with_a_loop_of_its_own_when_nobody_answers_then_its_lines_name_the_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clusters = {"orders": {"bootstrap_servers": "127.0.0.1:1"}}
    running = followed(Settings.model_validate({"clusters": clusters, "endpoint": {"port": 0}}), state_dir=None)
    with caplog.at_level("INFO", "discovery"):
        running.start()
        running.complain(1.0)
        eventually(lambda: "cycle" in caplog.text, WAIT_SECONDS, "a turn of the loop")
        running.stop()
    assert {event for event, _ in lines(caplog)} == {"endpoint_listening", "no_upstream_yet", "endpoint_stopped"}
    assert {getattr(one, "facts", {}).get("cluster") for one in caplog.records} == {"orders"}


def test_given_a_port_in_use_when_started_then_one_line_names_option_and_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = Cluster([])
        with pytest.raises(
            ConfigError,
            match=rf"endpoint\.port: 127\.0\.0\.1:{port} cannot be listened on.*choose another endpoint\.port",
        ):
            Endpoint(cluster.view, cluster, replace(QUICK, port=port)).start()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"host": "0.0.0.0"}, "not a loopback address"),  # noqa: S104 - what is refused
        ({"idle_seconds": 60.0}, "JVM clients"),
        ({"connections_max": 0}, "at least 1"),
    ],
)
def test_given_limits_out_of_range_when_made_then_the_message_names_the_option(
    wrong: dict[str, object], text: str
) -> None:
    with pytest.raises(ConfigError, match=f"endpoint.{next(iter(wrong))}.*{text}"):
        Limits(**wrong)  # type: ignore[arg-type]


def addresses(count: int) -> tuple[BrokerAddress, ...]:
    return tuple(BrokerAddress(f"b{number:02}", 9092) for number in range(count))


def test_given_twelve_living_brokers_when_four_are_chosen_then_they_are_spread_over_the_list() -> None:
    living = addresses(12)
    assert to_guard(living, (), quarantined=(), count=4) == (living[0], living[3], living[6], living[9])


def test_given_guards_that_stand_when_others_are_better_then_they_are_kept() -> None:
    living = addresses(6)
    assert to_guard(living, (living[5],), quarantined=(), count=2) == (living[5], living[0])


def test_given_a_guard_that_failed_when_others_live_then_it_comes_last() -> None:
    living = addresses(2)
    assert to_guard(living, (), quarantined=(living[0],), count=1) == (living[1],)
    assert to_guard(living, (), quarantined=living, count=1) == (living[0],)


def test_given_a_sticky_broker_that_is_gone_when_ordered_then_it_is_not_named() -> None:
    a, b, c = addresses(3)
    assert in_order((a, b), sticky=b) == (b, a)
    assert in_order((a, b), sticky=c) == (a, b)


@pytest.mark.parametrize(
    ("names", "host", "expected"),
    [
        (("127.0.0.1",), "127.0.0.1", True),
        (("localhost",), "127.0.0.1", False),
        (("*.kafka.example.com",), "b1.kafka.example.com", True),
        (("*.kafka.example.com",), "b1.eu.kafka.example.com", False),
        (("::1",), "0:0:0:0:0:0:0:1", True),
        ((), "127.0.0.1", False),
    ],
)
def test_given_a_certificates_names_when_compared_then_only_those_a_client_would_believe_match(
    names: tuple[str, ...],
    host: str,
    expected: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert covers(names, host) is expected


def test_given_a_certificate_without_the_endpoints_name_when_judged_then_the_finding_names_a_way_out() -> None:
    address = BrokerAddress("b1", 9093)
    assert judge(address, ("localhost",), host="127.0.0.1", port=19092) is None
    found = judge(address, ("b1.example.com",), host="127.0.0.1", port=19092)
    assert found is not None
    assert "made out to b1.example.com, not to 127.0.0.1" in found.text
    assert "give clients b1.example.com:19092" in found.text
    unnamed = judge(address, (), host="127.0.0.1", port=19092)
    assert unnamed is not None
    assert "renew the certificate with 127.0.0.1" in unnamed.text
