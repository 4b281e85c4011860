"""Clients that know no timeout for connections, with a half-dead list and with the endpoint.

`python -m benchmarks.old_clients`; a part of `make bench-rescue`.
"""

import contextlib
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.endpoint import endpoint_process
from benchmarks.foresight.judge import Started
from benchmarks.foresight.play import TOPIC, Order, start_clients
from benchmarks.harness import environment, load_noted, say, write_result
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.jars.download import client_jars, oldest_client_jars
from discovery.localkafka.properties import ClusterSettings
from tests.support.faults import black_hole

ENTRIES, DEAD, STARTS = 12, (4, 8), 40
BROKERS = 4
HELP = {"list": "the list itself", "endpoint": "the endpoint's address"}
Result = dict[str, Any]


def measure() -> Result:
    """Start forty clients of each version with each list, and with the address of an endpoint that was given it."""
    versions = {"2.4.1": oldest_client_jars(), "2.6.3": client_jars()["2.6"]}
    with LocalKafka(ClusterSettings(brokers=BROKERS)) as cluster, contextlib.ExitStack() as stack:
        cluster.create_topic(TOPIC, 2, replication_factor=3)
        holes = [stack.enter_context(black_hole()) for _ in range(max(DEAD))]
        lists = {dead: _mixed(_living(cluster, ENTRIES - dead), holes[:dead]) for dead in DEAD}
        endpoints = {dead: stack.enter_context(endpoint_process(servers)) for dead, servers in lists.items()}
        told: Result = {}
        for version, jars in versions.items():
            told[version] = _rows(jars, {"list": lists, "endpoint": endpoints}, cluster.address(1))
            say(f"{version}: {told[version]}")
    return told


def _living(cluster: LocalKafka, count: int) -> list[str]:
    """Return so many entries; a broker may have two, under two names."""
    ports = [cluster.address(broker).rpartition(":")[2] for broker in cluster.broker_ids]
    return [f"{host}:{port}" for host in ("127.0.0.1", "localhost") for port in ports][:count]


def _mixed(living: Sequence[str], dead: Sequence[str]) -> str:
    return ",".join([*dead[::2], *living, *dead[1::2]])


def _rows(jars: Sequence[Path], servers: dict[str, dict[int, str]], warm_up: str) -> list[Result]:
    orders = [
        Order(name=f"{kind} {dead}", what="consumer", topic=TOPIC, properties={"bootstrap.servers": address})
        for kind, addresses in servers.items()
        for dead, address in addresses.items()
        for _ in range(STARTS)
    ]
    happened = start_clients("old", orders, warm_up=warm_up, jars=jars)
    return [_row(name, starts) for name, starts in happened.items()]


def _row(name: str, starts: Sequence[Started]) -> Result:
    kind, dead = name.split()
    failed = [one for one in starts if not one.ok]
    return {
        "servers": kind,
        "dead": int(dead),
        "starts": len(starts),
        "failed": len(failed),
        "mean_seconds": round(statistics.fmean(one.seconds for one in starts), 2),
        "longest_seconds": round(max(one.seconds for one in starts), 2),
        "error": failed[0].error[:160] if failed else "",
    }


def section(result: Result) -> str:
    """Tell the kept run; `benchmarks.report` puts it into the page."""
    low, high = result["load_average"]
    rows = [
        f"| {version}, {one['dead']} of {ENTRIES} black holes | {HELP[one['servers']]} | {one['failed']} of "
        f"{one['starts']} | {one['mean_seconds']} s, {one['longest_seconds']} s |"
        for version in ("2.4.1", "2.6.3")
        for one in sorted(result[version], key=lambda one: (one["dead"], one["servers"] != "list"))
    ]
    return "\n".join([
        "## Old clients behind the endpoint\n",
        "`python -m benchmarks.old_clients`, a part of `make bench-rescue`. Consumers of clients without a connection",
        f"timeout, with their own defaults (60 s), {STARTS} starts each, all in one JVM a moment apart (load average",
        f"{low}-{high}); a start is over when the client knows its topic's partitions.\n",
        "| client and list | started with | failed starts | mean and longest start |",
        "|---|---|---|---|",
        *rows,
        f"\nThe failed ones say: {_error(result)}\n",
    ])  # fmt: skip


def _error(result: Result) -> str:
    return next((one["error"] for version in ("2.4.1", "2.6.3") for one in result[version] if one["error"]), "nothing")


def main() -> None:
    result: Result = {}
    with load_noted(result):
        result.update(measure())
    result["environment"] = environment()
    write_result("old_clients", result)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
