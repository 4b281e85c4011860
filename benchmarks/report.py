"""Makes the tables from `benchmarks/results`, the last runs we keep: `python -m benchmarks.report`.

`core.json` makes the page's beginning. Every other file there brings a section of its own: `<name>.json` is written up
by `benchmarks.<name>.section(result)` and drawn, into `<name>.svg`, by its `chart(result)`, or into several files by
its `charts(result)`; where the module has a `PAGE`, that page of the documentation is its `page(result)`. What is true
of that run alone stands in its `remarks`, lines of text. The README shows three figures, `docs/explanation/peers.md`
the short table of `peers.json`.
"""

import importlib
import json
from pathlib import Path
from typing import Any

from benchmarks.peers.report import short_table, shown_time
from benchmarks.peers.words import OURS

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "core.json"
PAGE = ROOT / "benchmarks" / "README.md"
README = ROOT / "README.md"
PEERS = ROOT / "benchmarks" / "results" / "peers.json"
PEERS_PAGE = ROOT / "docs" / "explanation" / "peers.md"
THROUGHPUT = ROOT / "benchmarks" / "results" / "throughput.json"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
PEERS_BEGIN, PEERS_END = "<!-- peers -->", "<!-- /peers -->"
Row = tuple[str, str, str, str]
_WATCHED_SECONDS = 25.0
"""Of the case that kills four of twelve: a gap as long had not ended."""


def rows(result: dict[str, Any]) -> list[Row]:
    """Return (what, ours, Spark's own source, target) in words."""
    new, kill = result["new_partitions"], result["kill_four_of_twelve"]
    cold, dead, vet, latest = (result[n] for n in ("cold_start", "dead_leaders", "vetting", "latest_offset"))

    pairs = f"n = {cold['all_alive']['n']} pairs"

    def later(name: str) -> str:
        return f"{_seconds(cold[name]['later_than_all_alive']['p50'])} later"

    def added(source: str) -> str:
        return f"p50 {_seconds(new[source]['p50'])}, p99 {_seconds(new[source]['p99'])}"

    def gap(source: str) -> str:
        seconds = kill[source]["gap_seconds"]
        seen = f"{'> ' if seconds >= _WATCHED_SECONDS else ''}{_seconds(min(seconds, _WATCHED_SECONDS))}"
        return seen if kill[source]["alive"] else f"{seen}, then dead"

    def planned(name: str) -> str:
        return f"p50 {latest[name]['p50']:.2f} ms, p99 {latest[name]['p99']:.1f} ms"

    return [
        (
            f"New partition to first row, trigger 200 ms (n = {new['kafka']['n']})",
            added("kafka-discovery"),
            added("kafka"),
            "p99 < 1.2 s",
        ),
        (
            "kill -9 of 4 of 12, RF 3: longest time without a finished batch (n = 1, 25 s watched)",
            gap("kafka-discovery"),
            gap("kafka"),
            "<= 8 s",
        ),
        (
            f"Cold start, 11 of 12 addresses black-holed ({pairs})",
            later("11_of_12_black_holed"),
            "not run",
            "<= 2 s later",
        ),
        (f"Cold start, 11 of 12 addresses refuse ({pairs})", later("11_of_12_refused"), "not run", "<= 2 s later"),
        (
            f"Start on a fully dead list with a saved view ({pairs})",
            later("dead_list_with_state"),
            "not run",
            "<= 2 s later",
        ),
        (
            f"RF 1, two of six leaders dead before the start ({pairs})",
            f"{_seconds(dead['later_seconds']['p50'])} later",
            "not run",
            "<= 2 s later",
        ),
        (
            f"Vetting of 100 addresses, 90 black-holed (n = {vet['rounds']['n']})",
            f"{vet['ratio_to_timeout']['p50']:.2f} x one connect timeout",
            "-",
            "<= 1.2 x",
        ),
        ("`latestOffset`, 1 000 partitions, brokers well", planned("well_milliseconds"), "-", "< 2 ms"),
        ("the same, all brokers frozen", planned("all_frozen_milliseconds"), "-", "< 2 ms"),
        ("the same, both cores full (5 000 rows/s)", planned("under_load_milliseconds"), "-", "< 2 ms"),
    ]


def figures(peers: dict[str, Any], throughput: dict[str, Any]) -> str:
    """Return the three figures of the README; ★ marks what a peer does better."""

    def seconds(case: str, figure: str) -> list[str]:
        return [shown_time(peers["cells"][case], one, figure) for one in (OURS, "native", "flink")]

    rates = throughput["1KB-6p"]
    million = [f"{rates[one]['rows_per_second']['p50'] / 1e6:.2f} million" for one in ("kafka-discovery", "kafka")]
    lines = [
        ("what", "kafka-discovery", "Spark's own source", "Flink's KafkaSource"),
        ("restart, all listed brokers removed: until all is read", *seconds("dead_list", "recovered_seconds")),
        ("2 of 6 brokers killed, 3 replicas: longest pause", *seconds("killed", "gap_seconds")),
        ("rows per second, 6 partitions, values of 1 KB", *million, "not run"),
    ]
    head, *rows = (f"| {' | '.join(cells)} |" for cells in lines)
    return "\n".join([head, "|---|---|---|---|", *rows])


def table(result: dict[str, Any]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| what | kafka-discovery | Spark's own source | target |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows(result))])


def page(result: dict[str, Any]) -> str:
    """Return the whole page."""
    seen = ", ".join(f"{name} {value}" for name, value in result["environment"].items())
    return f"""# Benchmarks

`make bench-core` runs every case on this machine and writes `build/bench/core.json`; one case:
`python -m benchmarks.core vetting`. `python -m benchmarks.report` makes this page from the run it shows,
`benchmarks/results/core.json`. Brokers, Spark and load share the machine's cores, so ratios within one run count, not
absolute times.

{table(result)}

How it was measured. A row counts when a *finished* batch of the query holds it. Cases with both columns run on the same
kind of cluster one after the other; new partitions were run again after the others, all on one day. "Later" compares
with the same query on a list of three living brokers, in pairs in the same run. `latestOffset` is called as Spark calls
it, every 10 ms, in the process that runs the loop.

What falls short, and why:

- **New partitions** come 0.2-0.3 s later than with Spark's own source (in an earlier run of the same day both took
  0.76 s): CreatePartitions and the leader's election take 0.1-0.4 s, a batch 0.3 s, metadata is asked
  every 300 ms, and both sources wait for the trigger.
- **A batch in flight** waits for its dead leader until the cluster elects another one (session timeout 6 s here).
- **`latestOffset` under full load** misses 2 ms at the 99th percentile: a plan over 1 000 partitions takes 1.1 ms of
  processor time and then shares one interpreter with the loop's workers, which unpack the offsets of 333 partitions per
  leader five times a second. A shorter switch interval of the interpreter made it worse (11 ms).

Environment: {seen}.
"""


def sections() -> str:
    """Return what the other kept results have to say, by name."""
    others = sorted(path for path in RESULT.parent.glob("*.json") if path != RESULT)
    return "".join(f"\n{_section(path)}" for path in others)


def _section(path: Path) -> str:
    result = json.loads(path.read_text())
    seen = ", ".join(f"{name} {value}" for name, value in result["environment"].items())
    module = importlib.import_module(f"benchmarks.{path.stem}")
    text: str = module.section(result)
    remarks = "\n".join(result.get("remarks", ()))
    return "\n\n".join([text.rstrip(), *([remarks] if remarks else ()), f"Environment: {seen}.\n"])


def draw() -> None:
    """Write the charts, and the pages of the documentation, of those results that have one."""
    for path in sorted(RESULT.parent.glob("*.json")):
        module = importlib.import_module(f"benchmarks.{path.stem}")
        if hasattr(module, "chart"):
            path.with_suffix(".svg").write_text(module.chart(json.loads(path.read_text())))
        if hasattr(module, "charts"):
            for name, drawn in module.charts(json.loads(path.read_text())).items():
                path.with_name(name).write_text(drawn)
        if hasattr(module, "PAGE"):
            (ROOT / module.PAGE).write_text(module.page(json.loads(path.read_text())))


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def main() -> None:
    """Write all pages."""
    PAGE.write_text(page(json.loads(RESULT.read_text())) + sections())
    draw()
    peers, throughput = json.loads(PEERS.read_text()), json.loads(THROUGHPUT.read_text())
    README.write_text(put(README.read_text(), BEGIN, END, figures(peers, throughput)))
    PEERS_PAGE.write_text(put(PEERS_PAGE.read_text(), PEERS_BEGIN, PEERS_END, short_table(peers)))


def put(text: str, begin: str, end: str, inside: str) -> str:
    """Return the text with what stands between two marks replaced."""
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{inside}\n\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    main()
