"""An endpoint over brokers of a test's making, and Kafka's own command line tools from its jars."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import map_client_options
from discovery.config.java import java_command
from discovery.core.model import parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.endpoint.limits import Limits
from discovery.endpoint.make import Followed, brokers_feed, make_endpoint
from discovery.localkafka.jars.download import kafka_jars
from tests.support.ports import free_port

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
_TOOL_SECONDS = 240.0
READY_SECONDS = 30.0


def brokers_at(address: str) -> set[int]:
    """Ask an address for the ids of its cluster's brokers."""
    client = AdminClient({"bootstrap.servers": address, "log_level": 0, "allow.auto.create.topics": False})
    return set(client.list_topics("/", timeout=20).brokers)


@contextlib.contextmanager
def endpoint_to(
    bootstrap: str,
    *,
    state_dir: Path | None = None,
    client: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> Iterator[Followed]:
    """Run an endpoint on a free port, in this process, and wait until it leads somewhere."""
    options, policy = open_stores(map_client_options(dict(client or {}))), Policy()
    feed = brokers_feed(parse_bootstrap_servers(bootstrap), options, policy, state_dir=state_dir)
    running = Followed(
        feed=feed, endpoint=make_endpoint(feed.view, options, policy, limits or Limits(port=free_port()))
    )
    running.start()
    try:
        assert running.endpoint.wait_ready(READY_SECONDS), running.feed.view()
        yield running
    finally:
        running.stop()


def tool_command(tool: str, arguments: Sequence[str]) -> list[str]:
    """Return how one of Kafka's own tools is started here."""
    return [
        java_command(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
        os.pathsep.join(map(str, kafka_jars())), tool, *arguments,
    ]  # fmt: skip


def kafka_tool(
    tool: str, arguments: Sequence[str], *, stdin: str = "", seconds: float = _TOOL_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's own tools, a JVM, to its end."""
    command = tool_command(tool, arguments)
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=seconds, check=False)


def properties_file(path: Path, properties: Mapping[str, str]) -> str:
    """Write a client's properties, without Spark's prefix, and return the path."""
    lines = (f"{name.removeprefix('kafka.')}={value}" for name, value in properties.items())
    path.write_text("\n".join(lines) + "\n")
    return str(path)
