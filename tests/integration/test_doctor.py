"""Every sentence of the doctor, in a situation made for real, beside what real JVM clients do in it."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from discovery.core.policy import Policy
from discovery.core.prediction.clients import ClientKind
from discovery.doctor.diagnose import Diagnosis, diagnose
from discovery.doctor.examine import examine
from discovery.doctor.inputs import described
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.chaos.prediction.comparison import Started
from tests.chaos.prediction.play import Order, can_compile, start_clients
from tests.support.faults import UNRESOLVABLE, accept_and_hang, black_hole, refused_port
from tests.support.helpers import eventually

pytestmark = pytest.mark.kafka
API_SECONDS = 6.0
QUICK = Policy(connect_timeout_seconds=2, request_timeout_seconds=4)
TIMES = {
    "default.api.timeout.ms": "6000",
    "request.timeout.ms": "4000",
    "socket.connection.setup.timeout.ms": "1000",
}
MANY = 20
"""Where half of all starts fail: all or none of so many would be one case in a million."""
Outcome = Callable[[Sequence[Started]], bool]


def all_start(starts: Sequence[Started]) -> bool:
    return all(one.ok for one in starts)


def all_fail_at_once(starts: Sequence[Started]) -> bool:
    """Before the limit: on a busy machine even a constructor that refuses takes its time."""
    return all(not one.ok and one.seconds < API_SECONDS - 0.5 for one in starts)


def all_fail_at_the_limit(starts: Sequence[Started]) -> bool:
    return all(not one.ok and one.seconds >= API_SECONDS - 0.5 for one in starts)


def some_fail_at_the_limit(starts: Sequence[Started]) -> bool:
    failed = [one for one in starts if not one.ok]
    return 0 < len(failed) < len(starts) and all_fail_at_the_limit(failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A list by the fate of its entries (l, b, r, s, u), a client, and what real starts with it do."""

    codes: tuple[str, ...]
    entries: str
    happens: Outcome
    version: str = "4.1"
    kind: ClientKind = ClientKind.ADMIN
    more: Mapping[str, str] = field(default_factory=dict)
    starts: int = 2
    error: str = ""

    @property
    def name(self) -> str:
        return "-".join((*self.codes, self.version, self.entries))


CONSUMER = ClientKind.CONSUMER
SITUATIONS = (
    Situation(codes=("all-alive",), entries="lll", happens=all_start),
    Situation(codes=("no-name", "partitions-unknown"), entries="uu", happens=all_fail_at_once, error="No resolvable"),
    Situation(codes=("none-alive", "partitions-unknown"), entries="rr", happens=all_fail_at_the_limit),
    Situation(codes=("some-dead", "name-gone", "thin", "harmless"), entries="lur", happens=all_start, version="3.9"),
    Situation(codes=("slow", "thin"), entries="lbb", happens=all_start, version="3.9"),
    Situation(codes=("may-fail",), entries="lsss", happens=some_fail_at_the_limit, kind=CONSUMER, starts=MANY),
    Situation(
        codes=("old-client", "may-fail"), entries="lb", happens=some_fail_at_the_limit, version="2.6", starts=MANY
    ),
    Situation(
        codes=("api-below-request",),
        entries="l",
        happens=all_fail_at_once,
        more={"request.timeout.ms": "9000"},
        error="default.api.timeout.ms",
    ),
    Situation(
        codes=("setup-eats-api", "may-fail"),
        entries="lb",
        happens=some_fail_at_the_limit,
        kind=CONSUMER,
        more={"socket.connection.setup.timeout.ms": "10000"},
        starts=MANY,
    ),
    Situation(
        codes=("request-eats-api", "may-fail"),
        entries="ls",
        happens=some_fail_at_the_limit,
        kind=CONSUMER,
        more={"request.timeout.ms": "6000"},
        starts=MANY,
    ),
    Situation(codes=("no-setup-timeout",), entries="bb", happens=all_fail_at_the_limit, version="2.6"),
    Situation(
        codes=("recovery-unknown",),
        entries="rr",
        happens=all_fail_at_the_limit,
        version="2.6",
        more={"metadata.recovery.strategy": "rebootstrap"},
    ),
    Situation(
        codes=("recovery-never",),
        entries="bb",
        happens=all_fail_at_the_limit,
        version="3.9",
        more={"metadata.recovery.strategy": "rebootstrap"},
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What was said of a situation, and what happened in it."""

    said: Diagnosis
    happened: Sequence[Started]


@pytest.fixture(scope="module")
def played(kafka_cluster: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Played]]:
    """All situations at once: one JVM for each version of the client."""
    if not can_compile():
        pytest.skip("the Java here has no compiler; with a JDK real clients are started")
    kafka_cluster.create_topic("doctor", 1, replication_factor=3)
    with ExitStack() as stack:
        made = {
            "l": [kafka_cluster.address(broker) for broker in kafka_cluster.broker_ids],
            "b": [stack.enter_context(black_hole()) for _ in range(2)],
            "r": [stack.enter_context(refused_port()) for _ in range(2)],
            "s": [stack.enter_context(accept_and_hang()) for _ in range(3)],
            "u": [UNRESOLVABLE, f"second-{UNRESOLVABLE}"],
        }
        lists = {s.name: _listed(s.entries, made) for s in SITUATIONS}
        with ThreadPoolExecutor(6) as pool:
            folder = tmp_path_factory.mktemp("doctor")
            said = dict(zip(lists, pool.map(lambda s: say(lists[s.name], s, folder), SITUATIONS), strict=True))
        happened: dict[str, Sequence[Started]] = {}
        for version in sorted({s.version for s in SITUATIONS}):
            orders = [o for s in SITUATIONS if s.version == version for o in [_order(s, lists[s.name])] * s.starts]
            happened |= start_clients(version, orders, warm_up=made["l"][0])
        yield {name: Played(said=said[name], happened=happened[name]) for name in lists}


def _listed(entries: str, made: Mapping[str, Sequence[str]]) -> str:
    return ",".join(made[letter][entries[:place].count(letter)] for place, letter in enumerate(entries))


def _order(situation: Situation, servers: str) -> Order:
    properties = {**TIMES, **situation.more, "bootstrap.servers": servers}
    return Order(name=situation.name, what=situation.kind.value, topic="doctor", properties=properties)


def say(servers: str, situation: Situation, folder: Path) -> Diagnosis:
    """Let the doctor look, and read the client's properties from a file."""
    file = folder / f"{abs(hash(situation.name))}.properties"
    given = {"bootstrap.servers": servers, **TIMES, **situation.more}
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    what = described(properties=file, client_version=situation.version, kind=situation.kind)
    return diagnose(examine(what.addresses, what.options, QUICK), what)


def codes(said: Diagnosis) -> set[str]:
    return {finding.code for finding in said.findings}


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_given_a_list_and_a_client_when_examined_then_what_is_said_is_what_real_clients_do(
    played: Mapping[str, Played], situation: Situation
) -> None:
    seen = played[situation.name]
    assert set(situation.codes) <= codes(seen.said), seen.said.findings
    assert situation.happens(seen.happened), seen.happened
    assert all(situation.error in one.error for one in seen.happened if not one.ok), seen.happened


ADVICE = {
    "old-client-may-fail-2.6-lb": {"new-list", "upgrade"},
    "slow-thin-3.9-lbb": {"new-list"},
    "may-fail-4.1-lsss": {"new-list", "quick-request", "patient-api"},
    "setup-eats-api-may-fail-4.1-lb": {"new-list", "quick-setup", "patient-api"},
}


@pytest.mark.parametrize("name", ADVICE)
def test_given_a_bad_list_when_examined_then_the_changes_that_help_are_reported_the_best_first(
    played: Mapping[str, Played], name: str
) -> None:
    advice = played[name].said.advice
    assert ADVICE[name] <= {one.code for one in advice}
    assert advice[0].code == "new-list"
    assert [one.after.failure for one in advice] == sorted(one.after.failure for one in advice)


def test_given_a_list_of_loopback_when_executors_are_elsewhere_then_it_is_said(
    kafka_cluster: LocalKafka, tmp_path: Path
) -> None:
    conf = tmp_path / "spark-defaults.conf"
    for master, wanted in (("spark://master:7077", True), ("local[2]", False)):
        conf.write_text(f"spark.master {master}\nspark.dau.kafka.bootstrap.servers {kafka_cluster.bootstrap_servers}\n")
        what = described(spark_conf=conf)
        assert ("loopback" in codes(diagnose(examine(what.addresses, what.options, QUICK), what))) is wanted


@pytest.fixture(scope="module")
def other() -> Iterator[LocalKafka]:
    """A cluster of two that tests may break: a login on one listener, none on the other."""
    plain = {"PLAIN": {"security.protocol": "PLAINTEXT"}}
    with LocalKafka(ClusterSettings(brokers=2, sasl_users={"alice": "secret"}, listeners=plain)) as cluster:
        cluster.create_topic("one", assignment=[[1], [2]])
        yield cluster


def _look(servers: str, **more: Path) -> Diagnosis:
    what = described(bootstrap=servers, **more)  # type: ignore[arg-type]
    return diagnose(examine(what.addresses, what.options, QUICK), what)


def test_given_a_wrong_password_when_examined_then_it_is_said_and_real_clients_fail_at_once(
    other: LocalKafka, tmp_path: Path
) -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="wrong";'
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login, **TIMES}
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    said = _look(other.address(1), properties=file)
    assert "auth-rejected" in codes(said)
    order = Order(name="x", what="admin", topic="", properties={**given, "bootstrap.servers": other.address(1)})
    happened = start_clients("4.1", [order], warm_up=other.address(1, listener="PLAIN"))["x"]
    assert all_fail_at_once(happened), happened


def test_given_a_list_that_leads_to_two_clusters_when_examined_then_it_is_said_and_the_right_list_is_reported(
    other: LocalKafka, kafka_cluster: LocalKafka
) -> None:
    said = _look(f"{kafka_cluster.bootstrap_servers},{other.address(1, listener='PLAIN')}")
    assert "two-clusters" in codes(said)
    assert said.advice[0].code == "new-list"
    assert other.address(1, listener="PLAIN") not in said.advice[0].sentence


def test_given_brokers_that_freeze_and_are_cut_off_when_examined_then_each_state_is_said(other: LocalKafka) -> None:
    """In order: frozen and still named; given up by the cluster, its partition leaderless; awake and unaware of it."""
    first, second = (other.address(broker, listener="PLAIN") for broker in (1, 2))
    other.pause([1])
    try:
        assert "advertised-dead" in codes(_look(second))
        other.wait_registered([1], registered=False)
        said = _look(second)
        assert "leaderless" in codes(said)
        assert [str(tp) for tp in said.facts.leaderless or ()] == ["one-0"]
        controller = other.process_ids()["controller"]
        os.kill(controller, signal.SIGSTOP)
        try:
            other.resume([1])
            eventually(lambda: "stale" in codes(_look(f"{first},{second}")), 30, "the doctor calls broker 1 stale")
        finally:
            os.kill(controller, signal.SIGCONT)
    finally:
        other.resume([1])
    other.wait_registered([1])
