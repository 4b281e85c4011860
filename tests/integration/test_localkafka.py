import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from discovery.core.errors import ConfigError, StateError
from discovery.localkafka import ports
from discovery.localkafka.admin import Admin, TopicError
from discovery.localkafka.cluster import BrokerStartError, LocalKafka
from discovery.localkafka.keeper.processes import ProcessIdentity, identify, is_running
from discovery.localkafka.properties import ClusterSettings
from tests.support.helpers import eventually, produce

pytestmark = pytest.mark.kafka

COMMAND = [sys.executable, "-c", "from discovery.cli.app import main; main()", "local-kafka"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    """Four brokers in two racks; every test leaves all of them alive."""
    with LocalKafka(ClusterSettings(brokers=4, racks=2)) as started:
        yield started


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose named clusters live in the test's folder."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path)}


def _replicas(cluster: LocalKafka, topic: str, partitions: int) -> dict[int, list[int]]:
    """Return them as soon as a broker knows so many; each learns of a topic in its own time."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **cluster.client_options})
    found: dict[int, list[int]] = {}

    def reported() -> bool:
        known = client.list_topics(timeout=10).topics.get(topic)
        found.update({index: list(one.replicas) for index, one in known.partitions.items()} if known else {})
        return len(found) == partitions

    eventually(reported, 30, f"{partitions} partitions of {topic}")
    return found


def _identities(cluster: LocalKafka) -> list[ProcessIdentity]:
    return [found for pid in cluster.process_ids().values() if (found := identify(pid))]


def _recorded(folder: Path) -> list[ProcessIdentity]:
    """Every process that the keeper wrote down, the keeper included; empty while it has not."""
    try:
        saved = json.loads((folder / "processes.json").read_text())
    except (OSError, ValueError):
        return []
    children = [{"pid": c["pid"], "started": c["started"]} for c in saved["processes"].values() if c["started"]]
    return [ProcessIdentity(**found) for found in [saved["keeper"], *children]]


def test_given_the_shared_cluster_when_records_are_written_then_they_are_read(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    kafka_cluster.create_topic(topic_name, 2, 3)
    produce(kafka_cluster.bootstrap_servers, topic_name, "a", ("k", "b"), partition=1)
    consumer = Consumer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "group.id": "t"})
    try:
        consumer.assign([TopicPartition(topic_name, 1, 0)])
        read = consumer.consume(2, timeout=60)
    finally:
        consumer.close()
    assert [(m.key(), m.value()) for m in read] == [(None, b"a"), (b"k", b"b")]


def test_given_a_broker_when_killed_and_restarted_then_metadata_follows_and_the_address_stays(
    cluster: LocalKafka,
) -> None:
    address = cluster.address(2)
    cluster.kill([2])
    assert not cluster.is_alive(2)
    cluster.wait_registered([2], registered=False, deadline_seconds=30)
    cluster.restart([2])
    assert cluster.is_alive(2)
    assert cluster.address(2) == address


def test_given_a_broker_when_paused_then_it_lives_and_is_fenced_until_it_is_resumed(cluster: LocalKafka) -> None:
    cluster.pause([3])
    assert cluster.is_alive(3)
    assert cluster.is_paused(3)
    assert 3 not in cluster.living_ids()
    cluster.wait_registered([3], registered=False, deadline_seconds=30)
    cluster.resume([3])
    assert not cluster.is_paused(3)
    cluster.wait_registered([3], deadline_seconds=30)


def test_given_a_dead_and_a_frozen_broker_when_healed_then_all_are_listed_again(cluster: LocalKafka) -> None:
    cluster.kill([2])
    cluster.pause([3])
    cluster.wait_registered([2, 3], registered=False, deadline_seconds=30)
    cluster.heal()
    assert cluster.living_ids() == cluster.broker_ids
    cluster.wait_registered(cluster.broker_ids, deadline_seconds=0.1)
    cluster.heal()


def test_given_a_topic_when_partitions_are_added_then_all_are_led(cluster: LocalKafka, topic_name: str) -> None:
    cluster.create_topic(topic_name, 2, 2)
    cluster.add_partitions(topic_name, 5)
    assert len(_replicas(cluster, topic_name, 5)) == 5


def test_given_two_racks_when_a_topic_is_created_then_each_partition_has_a_replica_in_both(
    cluster: LocalKafka, topic_name: str
) -> None:
    cluster.create_topic(topic_name, 6, 2)
    for replicas in _replicas(cluster, topic_name, 6).values():
        assert {cluster.settings.rack_of(broker_id) for broker_id in replicas} == {"rack-0", "rack-1"}


def test_given_an_assignment_when_a_topic_is_created_then_leaders_are_where_it_says(
    cluster: LocalKafka, topic_name: str
) -> None:
    cluster.create_topic(topic_name, assignment=[[4, 1], [2, 4], [3, 2]])
    assert _replicas(cluster, topic_name, 3) == {0: [4, 1], 1: [2, 4], 2: [3, 2]}


def test_given_replicas_on_a_broker_when_reassigned_off_then_it_holds_none(
    cluster: LocalKafka, topic_name: str
) -> None:
    cluster.create_topic(topic_name, assignment=[[1, 3], [2, 1], [3, 2]])
    cluster.reassign_off([1])
    after = _replicas(cluster, topic_name, 3)
    assert all(1 not in replicas for replicas in after.values())
    assert [len(replicas) for replicas in after.values()] == [2, 2, 2]


def test_given_a_topic_when_deleted_then_its_name_is_free(cluster: LocalKafka, topic_name: str) -> None:
    cluster.create_topic(topic_name, 1, 1)
    cluster.delete_topic(topic_name)
    cluster.create_topic(topic_name, 2, 1)
    assert len(_replicas(cluster, topic_name, 2)) == 2


def test_given_metadata_that_calls_a_dead_broker_controller_when_a_topic_is_deleted_then_another_is_asked(
    cluster: LocalKafka, topic_name: str
) -> None:
    cluster.create_topic(topic_name, 1, 2)
    admin = Admin(cluster.bootstrap_servers, cluster.client_options)
    found = admin.metadata(timeout_seconds=30)
    assert found is not None
    try:
        cluster.kill([found.controller_id])
        admin.delete_topic(topic_name, deadline_seconds=30)  # returns when metadata no longer names it
    finally:
        cluster.heal()


def test_given_wrong_requests_when_made_then_each_names_what_is_wrong(cluster: LocalKafka) -> None:
    with pytest.raises(TopicError, match=r"cannot create topic t: .*replication"):
        cluster.create_topic("t", 1, 9)
    with pytest.raises(TopicError, match="no-such-topic"):
        cluster.add_partitions("no-such-topic", 3)
    with pytest.raises(ConfigError, match=r"broker 9 does not exist here; choose from 1\.\.4"):
        cluster.kill([9])
    with pytest.raises(StateError, match="started already"):
        cluster.start()


def test_given_a_dead_broker_when_its_port_is_taken_then_restart_names_the_port(cluster: LocalKafka) -> None:
    cluster.kill([4])
    host, port = cluster.address(4).split(":")
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind((host, int(port)))
        squatter.listen()
        with pytest.raises(BrokerStartError, match=f"broker 4: port {port} is taken"):
            cluster.restart([4], deadline_seconds=60)
    cluster.restart([4])


def test_given_a_port_taken_after_it_was_chosen_when_started_then_the_broker_moves(tmp_path: Path) -> None:
    folder, squatter = tmp_path / "c", socket.socket()

    def squat() -> None:
        eventually((folder / "cluster.json").exists, 60, "the record of the cluster")
        squatter.bind(("127.0.0.1", json.loads((folder / "cluster.json").read_text())["ports"]["1"]))
        squatter.listen()

    thread = threading.Thread(target=squat)
    thread.start()
    with squatter, LocalKafka(ClusterSettings(brokers=1), folder=folder) as started:
        thread.join()
        assert started.address(1) != f"127.0.0.1:{squatter.getsockname()[1]}"
        assert LocalKafka.attach(folder).address(1) == started.address(1)
        started.create_topic("t")
        started.kill([1])
        host, port = started.address(1).split(":")
        assert ports._try_reserve(ports._lock_folder(), host, int(port)) is None


def test_given_users_when_a_client_has_a_wrong_password_then_only_it_is_refused() -> None:
    with LocalKafka(ClusterSettings(brokers=1, sasl_users={"ann": "right"})) as started:
        started.create_topic("t")
        options = {**started.client_options, "sasl.username": "ann", "sasl.password": "right"}
        produce(started.bootstrap_servers, "t", "x", options=options)
        seen: list[int] = []

        def note(error: KafkaError) -> None:
            seen.append(error.code())

        client: dict[str, Any] = {**options, "bootstrap.servers": started.bootstrap_servers, "log_level": 0}
        client |= {"sasl.password": "wrong", "error_cb": note}
        wrong = AdminClient(client)
        eventually(lambda: wrong.poll(0.1) is not None and KafkaError._AUTHENTICATION in seen, 20, "the refusal")


def test_given_a_cluster_when_its_owner_is_killed_then_nothing_is_left(tmp_path: Path, home: dict[str, str]) -> None:
    folder = tmp_path / "kafka-discovery" / "local-kafka" / "default"
    with subprocess.Popen([*COMMAND, "up", "--brokers", "2"], env=home, stdout=subprocess.PIPE) as owner:
        assert owner.stdout
        assert owner.stdout.readline()  # the status table: it is up
        processes = _recorded(folder)
        owner.kill()
    assert len(processes) >= 4
    eventually(lambda: not any(map(is_running, processes)), 15, "the end of all processes")
    eventually(lambda: not folder.exists(), 15, "the deletion of the data")


def test_given_a_cluster_that_is_starting_when_its_owner_is_killed_then_nothing_is_left(
    tmp_path: Path, home: dict[str, str]
) -> None:
    folder = tmp_path / "kafka-discovery" / "local-kafka" / "default"
    with subprocess.Popen([*COMMAND, "up", "--brokers", "2"], env=home, stdout=subprocess.PIPE) as owner:
        eventually(lambda: len(_recorded(folder)) >= 2, 60, "the first JVM")
        processes = _recorded(folder)
        owner.kill()
    eventually(lambda: not any(map(is_running, processes)), 15, "the end of all processes")
    eventually(lambda: not folder.exists(), 15, "the deletion of the data")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_given_a_cluster_when_its_keeper_is_killed_then_no_broker_is_left() -> None:
    cluster = LocalKafka(ClusterSettings(brokers=1))
    with cluster:
        folder, processes = cluster.folder, _identities(cluster)
        keeper = _recorded(folder)[0]
        os.kill(keeper.pid, signal.SIGKILL)
        eventually(lambda: not any(map(is_running, processes)), 15, "the end of the brokers")
        with pytest.raises(StateError, match="does not answer"):
            cluster.is_alive(1)
    assert not folder.exists()


def test_given_a_foreground_cluster_when_interrupted_then_it_ends_well(tmp_path: Path, home: dict[str, str]) -> None:
    folder = tmp_path / "kafka-discovery" / "local-kafka" / "default"
    # A background job of a shell inherits an ignored SIGINT; in a terminal it never is.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [COMMAND[0], "-c", heed + COMMAND[2], *COMMAND[3:], "up", "--brokers", "1"]
    with subprocess.Popen(command, env=home, stdout=subprocess.PIPE) as owner:
        try:
            assert owner.stdout
            assert owner.stdout.readline()
            processes = _recorded(folder)
            owner.send_signal(signal.SIGINT)
            assert owner.wait(30) == 0
        finally:
            owner.kill()
    assert not any(map(is_running, processes))
    assert not folder.exists()


def test_given_two_starters_of_one_name_when_both_start_then_one_wins_and_down_ends_it(
    tmp_path: Path, home: dict[str, str]
) -> None:
    command = [*COMMAND, "up", "--brokers", "1", "--detach", "--json"]
    starters = [
        subprocess.Popen(command, env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    reported = [starter.communicate(timeout=120) for starter in starters]
    try:
        assert sorted(starter.returncode for starter in starters) == [0, 1]
        assert sum("is up or starting" in err for _, err in reported) == 1
        shown = subprocess.run([*COMMAND, "status", "--json"], env=home, capture_output=True, text=True, check=True)
        assert [broker["state"] for broker in json.loads(shown.stdout)["brokers"]] == ["alive"]
        processes = _recorded(tmp_path / "kafka-discovery" / "local-kafka" / "default")
    finally:
        ended = subprocess.run([*COMMAND, "down"], env=home, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert processes
    assert not any(map(is_running, processes))


def _reported(home: dict[str, str], *arguments: str, exit_code: int = 0) -> "subprocess.CompletedProcess[str]":
    reported = subprocess.run(
        [*COMMAND, *arguments], env=home, capture_output=True, text=True, timeout=200, check=False
    )
    assert reported.returncode == exit_code, reported.stderr
    return reported


@pytest.mark.long
def test_given_a_detached_cluster_when_commands_ask_for_json_then_each_prints_json_alone(
    tmp_path: Path, home: dict[str, str]
) -> None:
    try:
        up = json.loads(_reported(home, "up", "--brokers", "2", "--detach", "--json").stdout)
        LocalKafka.attach(Path(up["folder"])).create_topic("t", assignment=[[2]])
        grown = json.loads(_reported(home, "add-partitions", "t", "3", "--json").stdout)
        emptied = json.loads(_reported(home, "reassign-off", "2", "--json").stdout)
        refused = _reported(home, "reassign-off", "1,2", "--json", exit_code=2)
    finally:
        down = json.loads(_reported(home, "down", "--json").stdout)
    assert up["bootstrap_servers"].count(",") == 1
    assert grown == {"name": "default", "topic": "t", "partitions": 3}
    assert emptied == {"name": "default", "emptied": [2]}
    assert down == {"name": "default", "down": True, "had_crashed": False, "swept_pids": []}
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert "name fewer brokers" in refused.stderr


def test_given_two_sessions_that_start_at_the_same_time_when_both_are_up_then_no_port_is_shared() -> None:
    clusters = [LocalKafka(ClusterSettings(brokers=1)) for _ in range(2)]
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(2) as starters:
        for cluster in clusters:
            stack.callback(cluster.stop)
        for started in [starters.submit(cluster.start) for cluster in clusters]:
            started.result()
        chosen = [port for cluster in clusters for port in cluster._record.ports.values()]
    assert len(set(chosen)) == len(chosen) == 4


def test_given_nothing_is_up_when_commands_are_given_then_one_line_says_so(home: dict[str, str]) -> None:
    for arguments in (["status"], ["kill", "1"], ["down"]):
        reported = subprocess.run([*COMMAND, *arguments], env=home, capture_output=True, text=True, check=False)
        assert reported.returncode == 1
        assert reported.stderr.count("\n") == 1
        assert "no local cluster named 'default' is up" in reported.stderr
