"""Makes `docs/reference/versions.md` of the cells and their kept results: `python -m tests.matrix.page`."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.matrix.cells import CELLS, Cell
from tests.support.results import ROOT

RESULTS = Path(__file__).parent / "results.json"
PAGE = ROOT / "docs" / "reference" / "versions.md"
_HEAD = """\
# Versions

<!-- Written by `python -m tests.matrix.page`; do not edit. -->

What was run in which versions: real brokers and real Spark, exact rows. `make test` runs all of it, and far more,
with PySpark 4.2.0, Python 3.11, Java 17 and brokers 4.1.0; here is what `make test-matrix` ran beside that. A cell that
was not run says so. Older Kafka clients: [predictions, played](../figures/chaos-prediction.md).
"""


def results() -> dict[str, Any]:
    """Return what is kept, by the cell's name."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def render() -> str:
    """Return the page."""
    kept, parts = results(), [_HEAD]
    for part, cells in groupby(CELLS, key=lambda cell: cell.part):
        head = f"## {part}\n\n| version | what | result | run on | command |\n|---|---|---|---|---|\n"
        parts.append(head + "\n".join(_row(cell, kept.get(cell.name)) for cell in cells) + "\n")
    return "\n".join(parts)


def _row(cell: Cell, result: dict[str, Any] | None) -> str:
    command = f"`make test-matrix CELLS='{cell.part}/{cell.version}/'`"
    if result is None:
        return f"| {cell.version} | {cell.shows} | not run{f': {cell.not_run}' if cell.not_run else ''} | | {command} |"
    said = result["said"].replace("|", "\\|").replace("\n", " ")
    versions = result["versions"]
    where = f"PySpark {versions['pyspark']}, brokers {versions['brokers']}; {result['date']}, {result['commit']}"
    return f"| {cell.version} | {cell.shows} | {result['outcome']}: {said} | {where} | {command} |"


def write() -> None:
    """Write the page."""
    PAGE.write_text(render())


if __name__ == "__main__":
    write()
