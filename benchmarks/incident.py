# ruff: noqa: E501 - a page, with the line breaks it has
"""The incident this project exists for, retold with what was measured: `docs/explanation/incident.md`.

`python -m benchmarks.incident [FOLDER]` publishes the report of a run of `make demo` (build/demo), and
`python -m benchmarks.incident limits` what became of the limits since; then run `python -m benchmarks.report`.
A run is judged by the limits of its day and by those the repository had before and after: raising one keeps no promise.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.results import environment

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
PICTURE = ROOT / "docs/images/incident.svg"
PAGE = "docs/explanation/incident.md"
_LEFT_OUT = ("timeline", "download_seconds")
"""Too long for a page: the picture shows it."""
LIMITS = {
    "first_start_seconds": "FIRST_START_LIMIT_SECONDS",
    "demo_seconds": "DEMO_LIMIT_SECONDS",
    "batch_seconds_p50": "BATCH_LIMIT_SECONDS",
    "new_partition_seconds_p99": "NEW_PARTITION_LIMIT_SECONDS",
    "kill_gap_seconds": "KILL_GAP_LIMIT_SECONDS",
    "dead_list_start_seconds": "DEAD_LIST_LIMIT_SECONDS",
    "dead_list_restart_seconds": "DEAD_LIST_EXTRA_LIMIT_SECONDS",
}
"""The goals in seconds, with the constant of `discovery.demo.report.outcome` that limits each."""


def main(what: str = "build/demo") -> None:
    """Take a report and its picture over, or the history of the limits alone."""
    path = RESULTS / "incident.json"
    if what == "limits":
        result = json.loads(path.read_text())
    else:
        report = json.loads((ROOT / what / "report.json").read_text())
        kept = {name: value for name, value in report.items() if name not in _LEFT_OUT}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        result = {"demo": kept, "published": now, "environment": environment()}
        shutil.copy(ROOT / what / "timeline.svg", PICTURE)
    result["limits"] = limits_in_history(ROOT)
    path.write_text(json.dumps(result, indent=1) + "\n")


def limits_in_history(repository: Path) -> dict[str, list[dict[str, Any]]]:
    """Return every limit each goal has had: seconds, time and commit, oldest first."""
    command = ["git", "log", "--reverse", "-p", "-U0", "--no-renames", "--format=commit %h %cI"]
    log = subprocess.run(
        [*command, r"-G^[A-Z_]+_SECONDS = ", "--", "discovery/demo"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    known: dict[str, str] = {}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in LIMITS}
    for change in re.split(r"^commit ", log, flags=re.MULTILINE)[1:]:
        commit, since = change.split(maxsplit=2)[:2]
        known |= re.findall(r"^\+([A-Z_]+_SECONDS) = ([A-Z_\d. +]+)$", change, re.MULTILINE)
        for name, constant in LIMITS.items():
            if constant not in known:
                continue
            # One limit is a sum with another constant.
            seconds = sum(float(known.get(term, term)) for term in known[constant].split(" + "))
            if [limit["seconds"] for limit in found[name][-1:]] != [seconds]:
                found[name].append({"seconds": seconds, "since": since, "commit": commit})
    return found


def broken_limits(result: Mapping[str, Any], goal: str) -> list[dict[str, Any]]:
    """Return the limits of other days that this run would have missed."""
    demo, published = result["demo"], datetime.fromisoformat(result["published"])
    figure = "dead_list_restart_seconds" if goal == "dead_list_start_seconds" else goal  # one start, two limits
    seconds = demo[figure] if goal in LIMITS else None
    if seconds is None:
        return []
    # The limit of a restart is what it may take longer than the first start.
    base = (demo["first_start_seconds"] or 0.0) if goal == "dead_list_restart_seconds" else 0.0
    limits: Sequence[dict[str, Any]] = result["limits"][goal]
    in_force = [limit for limit in limits if datetime.fromisoformat(limit["since"]) <= published][-1]
    return [limit for limit in limits if limit is not in_force and seconds - base > limit["seconds"]]


def verdict(result: Mapping[str, Any]) -> str:
    """Return how many goals were met, by the limits of the day and by all there ever were."""
    goals = result["demo"]["goals"]
    met = [goal["name"] for goal in goals if goal["met"]]
    always = sum(not broken_limits(result, name) for name in met)
    words = f"{len(met)} of {len(goals)} goals met"
    if always == len(met):
        return words
    return f"{words} by the limits of that day, {always} by every limit the repository has had"


def section(result: Mapping[str, Any]) -> str:
    """Return what its page of figures says."""
    demo = result["demo"]
    return f"""## The incident

`make demo` (4 minutes): {demo["brokers"]} brokers, {demo["events_produced"]:,} events; {verdict(result)};
load average {demo["load_average"]:.1f}. [The story](../explanation/incident.md).
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
published runs: [how they were measured](../figures/incident.md).

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
{demo["freeze_gap_seconds"]:.1f} s: they are asked in parallel with everybody else, within one timeout, and are quarantined when they stay silent.

**The job was started with only dead brokers in its list.** It counted again after {demo["dead_list_restart_seconds"]:.1f} s, Spark's own start
included (its first, on a good list, took {demo["first_start_seconds"]:.1f} s): it began with the living brokers that the last run had
[saved](../how-to/dead-list.md).

**Some partitions had no living replica.** {len(demo["single_leaderless"])} of {demo["single_partitions"]} partitions of a topic with one
replica. The query named exactly those, read the others to their end, and had the rest
{demo["single_returned_seconds"]:.1f} s after their brokers returned.

## What was promised, and what came

{_goals(result)}

{verdict(result)}.
{_moved(result)}
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


def _goals(result: Mapping[str, Any]) -> str:
    rows = []
    for goal in result["demo"]["goals"]:
        broken = "; ".join(f"**no**: {limit['seconds']:.1f} s" for limit in broken_limits(result, goal["name"]))
        met = "yes" if goal["met"] else "**no**"
        rows.append(f"| {goal['promise']} | {goal['measured']} | {met} | {broken or met} |")
    return "\n".join(["| promise | measured | met | by every limit of other days |", "|---|---|---|---|", *rows])


def _moved(result: Mapping[str, Any]) -> str:
    """Return which limits changed, when and where."""
    return "".join(
        f"The limit of `{name}` was "
        + ", then ".join(f"{limit['seconds']:.1f} s (`{limit['commit']}`, {limit['since'][:10]})" for limit in limits)
        + ".\n"
        for name, limits in result["limits"].items()
        if len(limits) > 1
    )


if __name__ == "__main__":
    main(*sys.argv[1:2])
