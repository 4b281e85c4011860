"""Makes `docs/figures` from `benchmarks/results`, the last runs we keep: `python -m benchmarks.report`.

`<name>.json` is written up by `benchmarks.<name>.section(result)` and drawn, into `<name>.svg`, by its `chart(result)`,
or into several files by its `charts(result)`; where the module has a `PAGE`, that page of the documentation is its
`page(result)`. What is true of that run alone stands in its `remarks`, lines of text. The README shows three figures,
`docs/explanation/peers.md` the short table of `peers.json`. Pages of chaos come from `python -m tests.chaos.report`.
"""

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.peers.report import short_table, shown_time
from benchmarks.peers.titles import OURS
from tests.support.results import PAGES, ROOT, page_of

RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
README = ROOT / "README.md"
PEERS = ROOT / "benchmarks" / "results" / "peers.json"
PEERS_PAGE = ROOT / "docs" / "explanation" / "peers.md"
THROUGHPUT = ROOT / "benchmarks" / "results" / "throughput.json"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
PEERS_BEGIN, PEERS_END = "<!-- peers -->", "<!-- /peers -->"


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


def made() -> dict[Path, str]:
    """Return the page of each kept result, by the file it belongs into."""
    return {
        PAGES / f"{path.stem.replace('_', '-')}.md": page_of(path, _module(path).section, "benchmarks.report")
        for path in RESULTS
    }


def _module(path: Path) -> ModuleType:
    return importlib.import_module(f"benchmarks.{path.stem}")


def draw() -> None:
    """Write the charts, and the pages of the documentation, of those results that have one."""
    for path in RESULTS:
        module = _module(path)
        if hasattr(module, "chart"):
            path.with_suffix(".svg").write_text(module.chart(json.loads(path.read_text())))
        if hasattr(module, "charts"):
            for name, drawn in module.charts(json.loads(path.read_text())).items():
                path.with_name(name).write_text(drawn)
        if hasattr(module, "PAGE"):
            (ROOT / module.PAGE).write_text(module.page(json.loads(path.read_text())))


def main() -> None:
    """Write all pages."""
    for page, text in made().items():
        page.write_text(text)
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
