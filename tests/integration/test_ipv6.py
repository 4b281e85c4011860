"""Brokers that listen on an IPv6 address alone: every part that takes a list, or learns addresses, meets brackets."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from discovery.spark.source.batch import KafkaDiscoveryReader
from discovery.spark.source.options.parse import parse_options
from tests.support.endpoint import CONSUMER, endpoint_to, kafka_tool
from tests.support.helpers import eventually, numbered, produce
from tests.support.service import serving, wait_for
from tests.support.sink import Sink


def has_ipv6() -> bool:
    """Tell whether this machine has [::1]."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


pytestmark = [pytest.mark.kafka, pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on loopback here")]
TOPIC, COUNT = "orders", 20
LONG_FORM = "[0:0:0:0:0:0:0:1]"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    """Two brokers on [::1], and a topic with records."""
    with LocalKafka(ClusterSettings(brokers=2, host="::1")) as made:
        made.create_topic(TOPIC, 2)
        produce(made.bootstrap_servers, TOPIC, *numbered(COUNT))
        yield made


def dead_first(cluster: LocalKafka) -> str:
    """A list as users write it: a dead entry, one in the long form, and the living ones."""
    port = cluster.address(1).rpartition(":")[2]
    return f"[::1]:1,PLAINTEXT://{LONG_FORM}:{port},{cluster.address(2)}"


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "discovery.cli.app", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_given_brokers_on_ipv6_when_read_and_written_then_records_flow(cluster: LocalKafka, tmp_path: Path) -> None:
    # Apart from the views of other clusters that this user's state folder may hold.
    options = {"kafka.bootstrap.servers": dead_first(cluster), "subscribe": TOPIC, "stateDir": str(tmp_path)}
    reader = KafkaDiscoveryReader(parse_options(options))
    values = [v for part in reader.partitions() for b in reader.read(part) for v in b.column("value").to_pylist()]
    assert sorted(value.decode() for value in values) == sorted(numbered(COUNT))
    cluster.create_topic("copied")
    bootstrap = {"kafka.bootstrap.servers": dead_first(cluster)}
    sink = Sink(cluster, tmp_path, sink_id="six", topic="copied", more=bootstrap)
    sink.confirm(sink.write(0, ["a", "b"]))
    assert sink.visible() == ["a", "b"]


def test_given_brokers_on_ipv6_when_asked_about_then_addresses_are_shown_as_they_are_written(
    cluster: LocalKafka,
) -> None:
    vetted = command("bootstrap", "--bootstrap", dead_first(cluster))
    alive = {*cluster.bootstrap_servers.split(","), dead_first(cluster).split(",")[1].rpartition("/")[2]}
    assert set(vetted.stdout.strip().split(",")) == alive, vetted
    examined = command("doctor", "--bootstrap", dead_first(cluster)).stdout
    assert all(address in examined for address in (*alive, "[::1]:1")), examined
    asked = ("removal", "--brokers", "2", "--bootstrap", cluster.bootstrap_servers, "--json")
    assert json.loads(command(*asked).stdout)["verdict"] == "not"


def test_given_brokers_on_ipv6_when_a_service_follows_them_then_clients_reach_them_through_its_endpoint(
    cluster: LocalKafka, tmp_path: Path
) -> None:
    with serving(dead_first(cluster), tmp_path) as service:
        wait_for(service, "/readyz", 200)
        expected = {"[::1]:1": "refused", **dict.fromkeys(cluster.bootstrap_servers.split(","), "alive")}

        def shown() -> dict[str, str]:
            verdicts = {one["address"]: one["verdict"] for one in service.json("/v1/brokers")["brokers"]}
            return {address: verdicts[address] for address in expected}

        eventually(lambda: shown() == expected, 30, lambda: str(shown()))  # ready with the first that lives
    with endpoint_to(dead_first(cluster)) as running:
        asked = ["--bootstrap-server", running.endpoint.address, "--topic", TOPIC, "--from-beginning"]
        done = kafka_tool(CONSUMER, [*asked, "--max-messages", str(COUNT)])
        assert sorted(done.stdout.split()) == sorted(numbered(COUNT)), done.stderr
