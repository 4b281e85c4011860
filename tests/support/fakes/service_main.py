"""The service as a process, over a cluster in memory that its standard input can change.

A line is a method of `FakeCluster` and its arguments: `append t 0 5`, `kill 2`, `add_partitions t 6`.
"""

import asyncio
import json
import sys
import threading
from pathlib import Path

from discovery.config.clock import SystemClock
from discovery.config.logs import configure_logging
from discovery.config.provenance import Effective
from discovery.service.server import serve
from discovery.service.service import Service
from tests.support.fakes.cluster import FakeCluster, FakeNetwork
from tests.support.fakes.service import FAST, maker_over, settings_of

CALM = {"topics_interval_seconds": 1.0, "offsets_interval_seconds": 1.0, "interval_seconds": 1.0}


def obey(cluster: FakeCluster) -> None:
    """Carry out what standard input says, line by line."""
    for line in sys.stdin:
        name, *arguments = line.split()
        getattr(cluster, name)(*(int(a) if a.isdigit() else a for a in arguments))
        print("done", flush=True)  # noqa: T201 - the answer


def main(folder: Path, port: int, topics: int, rhythm: str = "fast", settings: str = "{}") -> None:
    """Serve a cluster `cluster-a` of three brokers with topics `t0` … of three partitions; `calm`: at 1 s intervals."""
    configure_logging(as_json=True)
    cluster = FakeCluster(FakeNetwork())
    for number in range(topics):
        cluster.create_topic(f"t{number}", 3)
    more = json.loads(settings)
    listener = {"port": port, **more.pop("api", {})}
    loop = FAST if rhythm == "fast" else CALM
    made = settings_of({"main": "cluster-a-b1:9092"}, folder, api=listener, probes={"port": 0}, loop=loop, **more)

    scheme = "https" if "tls_key_file" in listener else "http"

    def say(api: str, probes: str) -> None:
        print(json.dumps({"api": f"{scheme}://{api}", "probes": f"http://{probes}"}), flush=True)  # noqa: T201
        threading.Thread(target=obey, args=(cluster,), daemon=True).start()

    service = Service(Effective(settings=made, origins={}), clock=SystemClock(), maker=maker_over(cluster.network))
    asyncio.run(serve(service, on_listening=say))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
