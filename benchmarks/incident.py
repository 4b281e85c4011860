# ruff: noqa: E501 - a page, with the line breaks it has
"""The incident this project exists for, retold with what was measured: `docs/explanation/incident.md`.

`python -m benchmarks.incident [FOLDER]` publishes the report of a run of `make demo` (build/demo); then run
`python -m benchmarks.report`.
"""

import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import environment

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
PICTURE = ROOT / "docs/images/incident.svg"
PAGE = "docs/explanation/incident.md"
_LEFT_OUT = ("timeline", "download_seconds")
"""Too long for a page: the picture shows it."""


def main(folder: str = "build/demo") -> None:
    """Take a report and its picture over."""
    report = json.loads((ROOT / folder / "report.json").read_text())
    kept = {name: value for name, value in report.items() if name not in _LEFT_OUT}
    RESULTS.joinpath("incident.json").write_text(
        json.dumps({"demo": kept, "environment": environment()}, indent=1) + "\n"
    )
    shutil.copy(ROOT / folder / "timeline.svg", PICTURE)


def section(result: Mapping[str, Any]) -> str:
    """Return what `benchmarks/README.md` says."""
    demo = result["demo"]
    met = sum(goal["met"] for goal in demo["goals"])
    return f"""## The incident

`make demo` (4 minutes): {demo["brokers"]} brokers, {demo["events_produced"]:,} events; {met} of {len(demo["goals"])} goals met, load
average {demo["load_average"]:.1f}. [The story](../docs/explanation/incident.md).
"""


def page(result: Mapping[str, Any]) -> str:
    """Return the story."""
    demo, rescue = result["demo"], _published("rescue")
    without, helped = rescue["restart"], rescue["incident"]["back_after_seconds"]
    native, ours = _published("stall")["rf1_native"], _published("stall")["rf1_file"]
    return f"""# The incident, retold

<!-- Written by `python -m benchmarks.report`; do not edit. -->

One night 4 of 12 brokers were removed. The list of the job that counts daily active users still named them. It restarted for more than an
hour: each restart tried the same dead addresses, waited for their timeouts, and died. Nothing was wrong with Kafka.

Here the night happens again, on real brokers and with the real job, as `make demo` plays it. All figures on this page come from
published runs: [how they were measured](../../benchmarks/README.md#the-incident).

## The night, without help

A job on Spark's own source with a list of three removed brokers and an unfinished batch in its checkpoint finishes **no batch
and dies after {without["without_dies_after"]:.0f} s**; what supervises it starts it again, and it dies again. That is the hour. It
said:

> {_quoted(without["without_died_of"])}

which names no address that is dead, and no list. (`make bench-rescue`; a start on living brokers took
{_seconds(without["living_list"])} in the same run, and with `kafka-discovery run` on the dead list {_seconds(without["run"])}.)

Not every such night kills a job, and this page would be dishonest if it said so: a modern client with living leaders and three
replicas survives the removal itself. In the same run both the job with help and the one without outlived the kill and the freeze; what
ended the one without was **the restart on the dead list**, never again in the
240 s watched, where the job under `kafka-discovery run` had its first batch after {_seconds(helped["run"])}.

## The night, with `format("kafka-discovery")`

![Rows per second, lag, brokers and partitions over the night](../images/incident.svg)

{_events(demo)}

{demo["events_produced"]:,} events were acknowledged to the generator, which keeps its own books; the job counted
{demo["events_counted"]:,}, {demo["duplicates"]} twice, {demo["lost"]} lost.

## What happened at each turn

**Partitions were added.** The loop asks for the topic's metadata every 0.3 s and the next batch reads what is new: here
{demo["new_partition_seconds_p50"]:.1f} s after the request (median), {demo["new_partition_seconds_p99"]:.1f} s at most.

**A rack died.** Until Kafka itself notices (a session of 6 s here) the dead brokers still lead their partitions. The longest
time without a finished batch was {demo["kill_gap_seconds"]:.1f} s. In the plainer experiment of `make bench-stall`, two of six brokers
and one replica, the median was {ours["gap_seconds"]["p50"]:.1f} s over {ours["gap_seconds"]["n"]} rounds; with Spark's own source it had not ended
when watching did, after {min(native["gap_seconds"]["values"]):.0f} s and more.
The batch does not wait for its dead leader: it is [cut, and rewound](cut-and-rewind.md).

**Two brokers froze.** They accept connections and say nothing, which costs a client far more than a refusal. The longest pause was
{demo["freeze_gap_seconds"]:.1f} s: they are asked in parallel with everybody else, within one timeout, and rest when they stay silent.

**The job was started with only dead brokers in its list.** It counted again after {demo["dead_list_restart_seconds"]:.1f} s, Spark's own start
included (its first, on a good list, took {demo["first_start_seconds"]:.1f} s): it began with the living brokers that the last run had
[saved](../how-to/dead-list.md).

**Some partitions had no living copy.** {len(demo["single_leaderless"])} of {demo["single_partitions"]} partitions of a topic with one
replica. The query named exactly those, read the others to their end, and had the rest
{demo["single_returned_seconds"]:.1f} s after their brokers returned.

## What was promised, and what came

{_goals(demo)}

The machine had two cores for {demo["brokers"]} brokers, two Spark jobs and the generator (load average
{demo["load_average"]:.1f}).

## What would have helped that night, from cheap to thorough

1. Ask `kafka-discovery removal --brokers 9,10,11,12` [before](../how-to/removal.md): it names the jobs that still list them.
2. Ask the [doctor](../how-to/doctor.md) what a start with that list would do.
3. Put `kafka-discovery run --` [before the command](../how-to/spark-native.md): nothing in the job changes.
4. Change the one word, and give the source a name.
"""


def _published(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def _seconds(value: float | None) -> str:
    return "for ever" if value is None else f"{value:.0f} s"


def _quoted(text: str) -> str:
    """Return the exception that Kafka's client threw, without what Spark has put before it."""
    found = re.search(r"[\w.]+(?:Exception|Error): (?!.*(?:Exception|Error): ).*", text, re.DOTALL)
    return " ".join((found[0] if found else text).split())


def _events(demo: Mapping[str, Any]) -> str:
    rows = [f"| {max(0.0, event['second']):.0f} s | {event['text']} |" for event in demo["events"]]
    return "\n".join(["| | |", "|---|---|", *rows])


def _goals(demo: Mapping[str, Any]) -> str:
    rows = [
        f"| {goal['promise']} | {goal['measured']} | {'yes' if goal['met'] else '**no**'} |" for goal in demo["goals"]
    ]
    return "\n".join(["| promise | measured | met |", "|---|---|---|", *rows])


if __name__ == "__main__":
    main(*sys.argv[1:2])
