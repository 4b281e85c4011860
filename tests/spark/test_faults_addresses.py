"""Lists of addresses that are dead, silent, foreign or wrong, under real queries."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discovery.core.model import (
    Broker,
    BrokerAddress,
    BrokerId,
    ClusterId,
    Generation,
    Snapshot,
    parse_bootstrap_servers,
)
from discovery.localkafka.cluster import LocalKafka
from discovery.store.snapshots import SnapshotStore
from tests.support.faults import UNRESOLVABLE, Garbage, accept_and_hang, black_hole, garbage_speaker, refused_port
from tests.support.foreign_broker import ForeignBroker
from tests.support.helpers import eventually, numbered, produce
from tests.support.kafka_fixtures import KafkaFactory
from tests.support.spark.driver import SparkDriver
from tests.support.spark.fixtures import StartQuery, replicas
from tests.support.spark.native import stays
from tests.support.spark.oracle import Load

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def _list_of(cluster: LocalKafka, *brokers: int) -> str:
    return ",".join(map(cluster.address, brokers))


def _wait_said(driver: SparkDriver, words: str) -> None:
    eventually(lambda: words in driver.log(), 30, f"{words!r} in the log")


def test_given_a_saved_view_when_a_query_restarts_on_a_list_of_dead_brokers_then_it_goes_on_and_is_exact(
    breakable: LocalKafka, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((3, 4, 5, 6)))
    listed = {"kafka_bootstrap_servers": _list_of(breakable, 1, 2), "sourceId": topic_name, "checkpoint": "same"}
    with Load(breakable.bootstrap_servers, topic_name, range(4)) as load:
        first = start_query(topic_name, **listed)
        first.wait_rows(100)
        first.stop()
        breakable.kill([1, 2])
        second = start_query(topic_name, **listed)
        second.wait_rows(1, 30)
        load.wait_more(100)
        second.assert_exact(load, first)
    assert first.rows()


@pytest.mark.parametrize("restarted", [False, True])
def test_given_no_saved_view_when_a_query_starts_on_a_dead_list_then_it_fails_in_time_with_a_verdict_per_address(
    breakable: LocalKafka, start_query: StartQuery, topic_name: str, tmp_path: Path, *, restarted: bool
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((3,)))
    dead = f"{_list_of(breakable, 1, 2)},{UNRESOLVABLE}"
    if restarted:
        produce(breakable.bootstrap_servers, topic_name, *numbered(10))
        first = start_query(topic_name, checkpoint="same", kafka_bootstrap_servers=dead)
        first.wait_rows(10)
        first.wait_committed()
        first.stop()
    breakable.kill([1])
    breakable.pause([2])
    began = time.monotonic()
    query = start_query(
        topic_name,
        checkpoint="same",
        kafka_bootstrap_servers=dead,
        startupTimeout="6s",
        stateDir=str(tmp_path / "no-state"),
    )
    failure = query.wait_failure(40)
    assert time.monotonic() - began >= 6
    assert "startupTimeout: after 6 s no living broker" in failure
    assert f"{breakable.address(1)}: refused" in failure
    assert f"{breakable.address(2)}: silent" in failure
    assert f"{UNRESOLVABLE}: unresolvable" in failure
    assert "Traceback" not in failure
    if restarted:
        produce(breakable.bootstrap_servers, topic_name, *numbered(5, prefix="later"))
        fresh = start_query(
            topic_name,
            checkpoint="same",
            kafka_bootstrap_servers=breakable.address(5),
            stateDir=str(tmp_path / "no-state"),
        )
        fresh.wait_rows(5)
        assert fresh.values() == set(numbered(5, prefix="later")), "the list of now counts, not the checkpoint's"


def test_given_a_running_query_when_the_file_of_its_list_changes_then_it_goes_on(
    breakable: LocalKafka, driver: SparkDriver, start_query: StartQuery, topic_name: str, tmp_path: Path
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((3, 4, 5)))
    listed = tmp_path / "brokers"
    with Load(breakable.bootstrap_servers, topic_name, range(3)) as load, refused_port() as dead:
        options = {
            "bootstrapServersFile": str(listed),
            "kafka_bootstrap_servers": dead,
            "startingOffsets": "earliest",
            "checkpoint": "same",
        }
        listed.write_text(dead)
        query = start_query(topic_name, **options)
        _wait_said(driver, f"{dead} is refused")
        stays(lambda: query.status()["active"] and not query.count(), 2, "a query that waits for a living broker")
        listed.write_text(_list_of(breakable, 1))
        query.wait_rows(100)
        listed.write_text(_list_of(breakable, 6))
        breakable.kill([1])
        load.wait_more(100)
        query.wait_rows(query.count() + 200)
        query.assert_alive()
        query.stop()
        # Nothing but the file leads the next start to a living broker.
        again = start_query(topic_name, stateDir=str(tmp_path / "no-state"), **options)
        load.wait_more(100)
        again.assert_exact(load, query)


def test_given_eleven_of_twelve_addresses_black_holed_when_a_query_starts_cold_then_rows_come_at_once(
    breakable: LocalKafka, driver: SparkDriver, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2, 3)))
    produce(breakable.bootstrap_servers, topic_name, *numbered(90))
    with contextlib.ExitStack() as stack:
        holes = [stack.enter_context(black_hole()) for _ in range(11)]
        query = start_query(topic_name, kafka_bootstrap_servers=",".join([*holes, breakable.address(4)]))
        query.wait_rows(90, 30)
        assert query.values() == set(numbered(90))
        for hole in holes:
            _wait_said(driver, f"{hole} is silent")


def test_given_names_that_do_not_resolve_and_ports_that_are_not_kafka_when_listed_then_rows_come_and_each_is_named(
    breakable: LocalKafka, driver: SparkDriver, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2)))
    produce(breakable.bootstrap_servers, topic_name, *numbered(40))
    with garbage_speaker(Garbage.HTTP) as garbage, accept_and_hang() as mute, refused_port() as refused:
        strange = {UNRESOLVABLE: "unresolvable", garbage: "not kafka", mute: "silent", refused: "refused"}
        query = start_query(topic_name, kafka_bootstrap_servers=",".join([*strange, breakable.address(1)]))
        query.wait_rows(40, 30)
        assert query.values() == set(numbered(40))

        for address, verdict in strange.items():
            _wait_said(driver, f"{address} is {verdict}")
        query.assert_alive()


@pytest.fixture
def old_view(breakable: LocalKafka, tmp_path: Path) -> Iterator[Callable[[str | None], None]]:
    """Save the view of a cluster that is gone, which was reached by the addresses of the living one."""
    with refused_port() as gone:
        broker = Broker(broker_id=BrokerId(1), address=BrokerAddress.parse(gone))
        snapshot = Snapshot(generation=Generation(3), cluster_id=ClusterId("gone"), brokers=(broker,))

        def save(source_id: str | None) -> None:
            for path in (tmp_path / "state" / "clusters").glob("*.json"):
                path.unlink()
            store = SnapshotStore(tmp_path / "state", source_id=source_id)
            store.open()
            assert store.save(snapshot, parse_bootstrap_servers(breakable.bootstrap_servers, option="list"))
            store.close()

        yield save


def test_given_a_cluster_that_is_gone_when_its_list_leads_to_another_then_only_new_queries_begin_there(
    breakable: LocalKafka,
    driver: SparkDriver,
    start_query: StartQuery,
    topic_name: str,
    old_view: Callable[[str | None], None],
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2)))
    produce(breakable.bootstrap_servers, topic_name, *numbered(10))
    old_view(None)
    first = start_query(topic_name, checkpoint="same")
    first.wait_rows(10)
    first.wait_committed()
    first.stop()
    _wait_said(driver, "but the saved state says gone, whose brokers are gone; as nothing was read yet")
    again = start_query(topic_name, checkpoint="same")
    produce(breakable.bootstrap_servers, topic_name, *numbered(10, prefix="later-"))
    again.wait_rows(10)
    again.wait_committed()
    again.stop()
    old_view(None)
    errors = [start_query(topic_name, checkpoint="same").wait_failure(15)]
    old_view(topic_name)
    errors.append(start_query(topic_name, sourceId=topic_name).wait_failure(15))
    for error in errors:
        assert "but the saved state says gone" in error
        assert "`kafka-discovery state list`, then `state reset`" in error
        assert "Traceback" not in error


def test_given_an_address_of_another_cluster_in_the_list_when_read_then_its_records_never_come(
    breakable: LocalKafka, driver: SparkDriver, start_query: StartQuery, kafka_factory: KafkaFactory, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2)))
    other = kafka_factory(brokers=1)
    other.create_topic(topic_name, 2)
    produce(other.bootstrap_servers, topic_name, *numbered(500, prefix="foreign-"))
    with Load(breakable.bootstrap_servers, topic_name, range(2)) as load:
        listed = f"{other.address(1)},{_list_of(breakable, 1, 2)}"
        query = start_query(topic_name, kafka_bootstrap_servers=listed)
        query.wait_rows(100)
        verdict = f"belongs to cluster {other.cluster_id}, not to {breakable.cluster_id}"
        _wait_said(driver, f"{other.address(1)} is foreign cluster ({verdict})")
        query.assert_exact(load)


def test_given_a_broker_whose_address_goes_to_another_cluster_when_read_then_its_records_never_come(
    breakable: LocalKafka, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2, 3)))
    with Load(breakable.bootstrap_servers, topic_name, range(3)) as load:
        query = start_query(topic_name)
        query.wait_rows(100)
        breakable.kill([2])
        # Our own producer must have forgotten the address: librdkafka would write to whatever cluster answers there.
        breakable.wait_registered([2], registered=False)
        load.wait_more(300)
        with ForeignBroker(breakable.address(2)) as other:
            other.create_topic(topic_name, 3)
            produce(other.bootstrap_servers, topic_name, *numbered(2000, prefix="foreign-"))
            load.wait_more(800)
            seen = query.count()
            query.wait_rows(seen + 800)
        query.assert_exact(load)


def test_given_wrong_credentials_when_a_query_starts_then_it_fails_in_time_and_the_password_shows_nowhere(
    driver: SparkDriver, start_query: StartQuery, kafka_factory: KafkaFactory, topic_name: str, tmp_path: Path
) -> None:
    cluster = kafka_factory(brokers=1, sasl_users={"spark": "right-secret"})
    cluster.create_topic(topic_name, 1)
    produce(cluster.bootstrap_servers, topic_name, *numbered(10), options=cluster.client_options)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"

    def start(password: str, checkpoint: str) -> object:
        return start_query(
            topic_name,
            checkpoint=checkpoint,
            kafka_bootstrap_servers=cluster.bootstrap_servers,
            kafka_security_protocol="SASL_PLAINTEXT",
            kafka_sasl_mechanism="PLAIN",
            kafka_sasl_jaas_config=f'{module} required username="spark" password="{password}";',
            startupTimeout="6s",
        )

    good = start("right-secret", "good")
    good.wait_rows(10)  # type: ignore[attr-defined]
    failure = start("wrong-secret", "bad").wait_failure(40)  # type: ignore[attr-defined]
    assert f"{cluster.address(1)}: auth_failed" in failure
    assert "Traceback" not in failure
    written = "".join(file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file())
    for secret in ("right-secret", "wrong-secret"):
        assert secret not in failure
        assert secret not in driver.log()
        assert secret not in written


def test_given_a_running_query_when_another_takes_its_source_id_then_that_one_fails_and_says_so(
    breakable: LocalKafka, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1,)))
    produce(breakable.bootstrap_servers, topic_name, *numbered(10))
    first = start_query(topic_name, sourceId=topic_name)
    first.wait_rows(10)
    failure = start_query(topic_name, sourceId=topic_name).wait_failure(40)
    assert topic_name in failure
    assert "sourceId" in failure
    assert "Traceback" not in failure
    produce(breakable.bootstrap_servers, topic_name, *numbered(10, prefix="more-"))
    first.wait_rows(20)
    first.assert_alive()
