"""The exactly-once sink under seeds of faults, as `make chaos-sink` kept them: `python -m tests.chaos.sink.figures`."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos.sink.chaos import Kept, result_of, table
from tests.support.results import environment, write_result

KEPT = Path("build/chaos-sink.jsonl")


def section(result: dict[str, Any]) -> str:
    """Tell the figures in words."""
    results = [result_of(raw) for raw in result["seeds"]]
    points = next((len(r.faults) for r in results if r.seed == 0 and r.kind == "tasks"), 0)
    lines = [
        "## The sink under chaos",
        "",
        "`make chaos-sink`: what the exactly-once sink is made of is killed (SIGKILL), or stopped and resumed as a",
        "zombie (SIGSTOP), at a named point before or after any step, abandoned by its driver, or replayed without",
        "`commits/N`, while brokers are paused, bounced and killed. *Tasks* are the real writer in processes of their",
        "own on three brokers; *Spark* is a whole query that copies a topic. Ten checks look for what is lost,",
        "repeated, torn, out of order, left open or written again by a restart; any finding makes a seed not sound.",
    ]
    if points:
        lines += [
            f"Seeds of kills and of stops pass each of the {points} points once.",
            "",
        ]
    return "\n".join([*lines, table(results)])


def main(file: Path) -> None:
    """Turn what was kept into a result."""
    seeds = sorted((asdict(result) for result in Kept(file).results), key=lambda raw: (raw["kind"], raw["seed"]))
    print(write_result("chaos_sink", {"environment": environment(), "seeds": seeds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else KEPT)
