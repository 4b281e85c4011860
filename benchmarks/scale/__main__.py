"""`make simulate-scale`: plays every case and writes `build/bench/scale.json`; no broker, no Spark.

`python -m benchmarks.scale [CLUSTERS] [SECONDS]`: how many clusters are played, for how long; 3 and 20 by default.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import structlog

from benchmarks.harness import environment, say, write_result
from benchmarks.scale.cases import WAYS, Size, Way, at_rest, outage
from benchmarks.scale.client import measured_costs

MEASURED = Size(clusters=1, brokers=3, topics=1, partitions=1000)
"""As `make bench-sidecar` measures it with real brokers: says how much of a real service this account explains."""

SIDECAR = Path("benchmarks/results/sidecar.json")


def main(played: int = 3, seconds: float = 20.0) -> None:
    """Play all of it; about four minutes."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    size, measured = Size(), Way(name="as measured", all_ends=True)
    result: dict[str, Any] = {
        "size": {name: getattr(size, name) for name in size.__dataclass_fields__},
        "played_clusters": played,
    }
    result["costs_microseconds"] = measured_costs()
    result["measured_percent"] = json.loads(SIDECAR.read_text())["real"]["cpu_percent_with_a_follower"]
    result["like_the_measured_one"] = at_rest(MEASURED, measured, played=1, seconds=seconds)
    for name, case in (("at_rest", "at rest"), ("outage", "an outage")):
        result[name] = []
        for way in WAYS:
            say(f"{way.name}, {case}")
            if name == "at_rest":
                told = at_rest(size, way, played=played, seconds=seconds)
            else:
                told = outage(size, way, played=played, outage_seconds=3 * seconds, after_seconds=2 * seconds)
            result[name].append(told)
    say(f"written to {write_result('scale', {**result, 'environment': environment()})}")


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:2]), *(float(text) for text in sys.argv[2:3]))
