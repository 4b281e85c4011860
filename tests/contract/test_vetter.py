"""What every vetter promises, and each verdict on a real socket."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from discovery.config.client.options import ClientOptions, map_client_options
from discovery.core.answers import ProbeOutcome
from discovery.core.model import BrokerAddress, Verdict
from discovery.core.policy import Policy
from discovery.kafka.base import Vetter
from discovery.kafka.vetting import tcp_check as reach
from discovery.kafka.vetting.vet import LibrdkafkaVetter
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.contract.subjects import Subject
from tests.support.fakes.mock_cluster import MockCluster
from tests.support.faults import UNRESOLVABLE, Garbage, accept_and_hang, black_hole, garbage_speaker, refused_port
from tests.support.helpers import eventually

CONNECT = 2.0
REQUEST = 5.0
PLAIN = map_client_options({})
TLS = map_client_options({"kafka.security.protocol": "SSL"})


def sasl(password: str) -> ClientOptions:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return map_client_options(
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{module} required username="alice" password="{password}";',
        }
    )


def vet(
    vetter: Vetter,
    addresses: Collection[BrokerAddress],
    *,
    full: bool = True,
    connect: float = CONNECT,
    request: float = REQUEST,
) -> dict[BrokerAddress, ProbeOutcome]:
    """Vet and check that each address got exactly one outcome."""
    outcomes: list[ProbeOutcome] = []
    vetter.vet(
        addresses,
        full=addresses if full else (),
        connect_timeout_seconds=connect,
        request_timeout_seconds=request,
        on_outcome=outcomes.append,
    )
    assert sorted(o.address for o in outcomes) == sorted(set(addresses))
    return {o.address: o for o in outcomes}


def verdict(options: ClientOptions, address: str | BrokerAddress, *, request: float = REQUEST) -> ProbeOutcome:
    parsed = address if isinstance(address, BrokerAddress) else BrokerAddress.parse(address)
    return vet(LibrdkafkaVetter(options, Policy()), [parsed], request=request)[parsed]


@pytest.fixture(scope="module")
def plain_broker() -> Iterator[str]:
    with MockCluster(1) as mock:
        yield mock.bootstrap_servers


@pytest.fixture(scope="module")
def sasl_broker() -> Iterator[str]:
    with LocalKafka(ClusterSettings(brokers=1, sasl_users={"alice": "right"})) as cluster:
        yield cluster.bootstrap_servers


def test_given_living_brokers_when_vetted_fully_then_each_tells_cluster_and_brokers(subject: Subject) -> None:
    outcomes = vet(subject.vetter, subject.addresses)
    assert [o.failure for o in outcomes.values()] == [None] * 3
    assert len({o.cluster_id for o in outcomes.values()}) == 1
    assert all({b.address for b in o.brokers} == set(subject.addresses) for o in outcomes.values())
    assert not any(o.tcp_only for o in outcomes.values())


def test_given_living_brokers_when_only_checked_by_tcp_then_nothing_is_proven(subject: Subject) -> None:
    outcomes = vet(subject.vetter, subject.addresses, full=False)
    assert all(o.tcp_only and o.failure is None and o.cluster_id is None for o in outcomes.values())


def test_given_a_broker_that_does_not_answer_when_vetted_then_the_others_are_not_held_up(subject: Subject) -> None:
    with subject.silent(2):
        outcomes = vet(subject.vetter, subject.addresses)
    failures = [outcomes[address].failure for address in subject.addresses]
    assert failures[0] is failures[2] is None
    assert failures[1] in (Verdict.SILENT, Verdict.REFUSED)


@pytest.mark.parametrize(
    ("kind", "greets", "expected"),
    [
        (Garbage.HTTP, False, Verdict.NOT_KAFKA),
        (Garbage.SSH, True, Verdict.NOT_KAFKA),
        (Garbage.RANDOM, False, Verdict.NOT_KAFKA),
        (Garbage.HUGE_LENGTH, False, Verdict.NOT_KAFKA),
        (Garbage.NEGATIVE_LENGTH, False, Verdict.NOT_KAFKA),
        (Garbage.ZEROES, False, Verdict.NOT_KAFKA),
        (Garbage.TLS_ALERT, False, Verdict.TLS_FAILED),
        (Garbage.CLOSE, False, Verdict.REFUSED),
        (Garbage.CLOSE, True, Verdict.REFUSED),
    ],
)
@pytest.mark.parametrize("options", [PLAIN, TLS, sasl("any")], ids=["plain", "tls", "sasl"])
def test_given_a_port_that_talks_something_else_then_it_is_distinguished_from_kafka(
    kind: Garbage,
    greets: bool,  # noqa: FBT001 - pytest passes it by name
    expected: Verdict,
    options: ClientOptions,
) -> None:
    with garbage_speaker(kind, greets=greets) as address:
        outcome = verdict(options, address)
    assert outcome.failure is expected, outcome.detail


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(refused_port, Verdict.REFUSED), (black_hole, Verdict.SILENT), (accept_and_hang, Verdict.SILENT)],
)
def test_given_a_dead_address_then_its_way_of_being_dead_is_reported(
    fault: Callable[[], AbstractContextManager[str]], expected: Verdict
) -> None:
    with fault() as address:
        outcome = verdict(PLAIN, address)
    assert outcome.failure is expected, outcome.detail


def test_given_a_name_without_address_then_it_is_unresolvable() -> None:
    assert verdict(PLAIN, UNRESOLVABLE).failure is Verdict.UNRESOLVABLE


def test_given_a_name_with_two_addresses_of_which_one_refuses_then_the_other_counts(plain_broker: str) -> None:
    port = plain_broker.rpartition(":")[2]
    assert verdict(PLAIN, f"localhost:{port}").failure is None


def test_given_a_resolver_that_hangs_then_vetting_does_not_wait_for_it(
    plain_broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def slow(host: str, port: int, *, flags: int) -> list[reach.Sockaddr]:
        released.wait(30)
        return []

    before = threading.active_count()
    living = BrokerAddress.parse(plain_broker)
    names = [BrokerAddress(f"slow-{n}.example", 9092) for n in range(3)]
    vetter = LibrdkafkaVetter(PLAIN, Policy())
    real = reach._sockaddrs
    monkeypatch.setattr(reach, "_sockaddrs", lambda h, p, flags: (real if h[0] == "1" else slow)(h, p, flags=flags))
    started = time.monotonic()
    for _ in range(3):  # asked again and again, a name still keeps one thread only
        outcomes = vet(vetter, [living, *names], connect=0.3)
    took = time.monotonic() - started
    held = threading.active_count() - before
    released.set()
    assert took < 10, "it holds a resolver for 30 s"
    assert held <= len(names) + 1
    assert outcomes[living].failure is None
    assert {outcomes[name].failure for name in names} == {Verdict.UNRESOLVABLE}
    assert outcomes[names[0]].detail == "name lookup did not answer within 0.3 s"
    eventually(lambda: threading.active_count() <= before, 5)


def test_given_a_plain_listener_when_asked_with_tls_then_tls_fails_and_the_remedy_is_named(plain_broker: str) -> None:
    outcome = verdict(TLS, plain_broker)
    assert outcome.failure is Verdict.TLS_FAILED
    assert "kafka.security.protocol" in outcome.detail


@pytest.mark.kafka
def test_given_a_right_password_then_the_broker_is_alive(sasl_broker: str) -> None:
    assert verdict(sasl("right"), sasl_broker).failure is None


@pytest.mark.kafka
def test_given_a_wrong_password_then_the_login_failed_and_the_password_is_not_repeated(sasl_broker: str) -> None:
    outcome = verdict(sasl("wr0ng-secret"), sasl_broker)
    assert outcome.failure is Verdict.AUTH_FAILED
    assert "Authentication failed" in outcome.detail
    assert "wr0ng-secret" not in outcome.detail


@pytest.mark.kafka
def test_given_a_listener_that_wants_a_login_when_asked_without_then_the_login_failed(sasl_broker: str) -> None:
    outcome = verdict(PLAIN, sasl_broker)
    assert outcome.failure is Verdict.AUTH_FAILED
    assert "kafka.security.protocol" in outcome.detail


@pytest.mark.kafka
def test_given_a_listener_with_login_when_asked_with_tls_then_tls_fails(sasl_broker: str) -> None:
    assert verdict(TLS, sasl_broker).failure is Verdict.TLS_FAILED


def test_given_100_addresses_of_which_90_are_black_holed_then_one_connect_timeout_is_the_price() -> None:
    with MockCluster(10) as mock, ExitStack() as holes:
        living = [BrokerAddress.parse(part) for part in mock.bootstrap_servers.split(",")]
        dead = [BrokerAddress.parse(holes.enter_context(black_hole())) for _ in range(90)]
        started = time.monotonic()
        outcomes = vet(LibrdkafkaVetter(PLAIN, Policy()), [*dead, *living])
        took = time.monotonic() - started
    assert took < 10 * CONNECT, f"{took:.2f} s; one after the other they cost {90 * CONNECT} s"
    assert {outcomes[a].failure for a in dead} == {Verdict.SILENT}
    assert {outcomes[a].failure for a in living} == {None}


def test_given_more_hung_addresses_than_threads_then_the_time_holds_and_nobody_unasked_is_blamed() -> None:
    with ExitStack() as stack:
        hung = [BrokerAddress.parse(stack.enter_context(accept_and_hang())) for _ in range(80)]
        started = time.monotonic()
        outcomes = vet(LibrdkafkaVetter(PLAIN, Policy()), hung, connect=1, request=1)
        took = time.monotonic() - started
    assert took < 15, "one after the other they cost 80 s"
    assert all(o.failure is Verdict.SILENT or o.tcp_only for o in outcomes.values())


def test_given_many_vettings_when_done_then_no_thread_and_no_descriptor_is_left(plain_broker: str) -> None:
    vetter = LibrdkafkaVetter(PLAIN, Policy())
    with refused_port() as refused, garbage_speaker() as garbage:
        addresses = [BrokerAddress.parse(a) for a in (plain_broker, refused, garbage, UNRESOLVABLE)]
        vet(vetter, addresses)
        # Shared clusters and sockets of other tests have threads of their own here: ours are those that go away again.
        _settled(_kernel_threads)
        descriptors, threads = _descriptors(), _kernel_threads()
        for _ in range(20):
            vet(vetter, addresses)
        eventually(lambda: _descriptors() <= descriptors and _kernel_threads() <= threads, 10, "the end of all probes")


def _settled(count: Callable[[], int]) -> None:
    """Wait until a count has stayed the same for a second."""
    history: list[tuple[float, int]] = []

    def same_for_a_second() -> bool:
        history.append((time.monotonic(), count()))
        recent = [value for at, value in history if at >= history[-1][0] - 1.0]
        return history[-1][0] - history[0][0] > 1.0 and len(set(recent)) == 1

    eventually(same_for_a_second, 20, "a steady number of threads")


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _kernel_threads() -> int:
    """Count threads as the kernel does: librdkafka's own are not Python's."""
    return len(list(Path("/proc/self/task").iterdir()))


def test_given_an_outcome_when_known_then_it_is_reported_before_the_slow_ones(plain_broker: str) -> None:
    with contextlib.ExitStack() as stack:
        slow = BrokerAddress.parse(stack.enter_context(black_hole()))
        outcomes = vet(LibrdkafkaVetter(PLAIN, Policy()), [slow, BrokerAddress.parse(plain_broker)], connect=1)
    assert next(iter(outcomes)) == BrokerAddress.parse(plain_broker)
