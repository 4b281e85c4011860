"""What `make chaos-source` (tests/chaos/cut_rounds.py) saw, as a page of figures."""

import statistics
from typing import Any

_TEXT = """## Brokers, workers, executors and drivers killed in turn

`make chaos-source`: six brokers, topics with one replica, 200 records/s, a source with a `sourceId` on a standalone
cluster of two executors. In each round two brokers are killed, and within 3 s something else: a Python worker, an
executor, or the driver. The query must go on with the living partitions while the two brokers are still dead. After
a driver's death they are started again first: the batch it left may be in a sink already, so its replay must not be
cut and waits for them. In the end every record that a broker acknowledged must be in the rows of all runs, once."""


def section(result: dict[str, Any]) -> str:
    """Tell what a run saw, in words."""
    rows = []
    for victim in dict.fromkeys(one["victim"] for one in result["rounds"]):
        seconds = [one["seconds"] for one in result["rounds"] if one["victim"] == victim]
        until = "with a new driver and healed brokers" if victim == "driver" else "while the brokers are dead"
        rows.append(
            f"| {victim} | {len(seconds)} | {until} | {statistics.median(seconds):.1f} s | {max(seconds):.1f} s |"
        )
    total = (
        f"{result['records']} records acknowledged, each delivered once; {result['cuts']} batches were cut; "
        f"{result['drivers']} drivers; seed {result['seed']}."
    )
    head = [
        "| also killed | rounds | rows of every living partition again | median | longest |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([_TEXT, "", *head, *rows, "", total, ""])
