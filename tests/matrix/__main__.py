"""Runs cells and keeps what came of them: `python -m tests.matrix`, or those whose name holds a word: `… 4.3.0 Java/`.

Each cell runs in processes of its own; one that fails keeps its last words as its result and does not stop the rest.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from discovery.localkafka.jars.ivy import DownloadError
from tests.matrix import cases, page
from tests.matrix.cells import CELLS, Cell
from tests.matrix.environments import environment, inside, java_home, next_debian, other_python, python
from tests.support.results import ROOT, say

_CELL_SECONDS = 840
_COUNT = re.compile(r"(\d+) passed")


def main() -> None:
    """Run the cells that the arguments name, and make the page."""
    words = sys.argv[1:]
    chosen = [cell for cell in CELLS if not cell.not_run and (not words or any(word in cell.name for word in words))]
    for cell in chosen:
        say(cell.name)
        result = _result(cell)
        say(f"{result['outcome']}: {result['said']}")
        kept = page.results()
        kept[cell.name] = result
        page.RESULTS.write_text(json.dumps({name: kept[name] for name in sorted(kept)}, indent=2) + "\n")
    page.write()


def _result(cell: Cell) -> dict[str, Any]:
    began = time.monotonic()
    try:
        said, outcome = _run(cell), "passed"
    except (DownloadError, LookupError) as error:
        said, outcome = f"{type(error).__name__}: {error}", "not run"
    except Exception as error:  # noqa: BLE001 - whatever a version breaks is the result
        said, outcome = f"{type(error).__name__}: {error}"[-1500:], "failed"
    return {
        "outcome": outcome,
        "said": said,
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
        "seconds": round(time.monotonic() - began),
        "versions": _versions(cell),
    }


def _run(cell: Cell) -> str:
    if cell.case:
        case: Callable[[Cell], str] = getattr(cases, cell.case)
        return case(cell)
    interpreter = interpreter_of(cell)
    plugin = ["-p", "tests.matrix.brokers"] if cell.kafka else []
    command = [str(interpreter), "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *cell.tests]
    log = ROOT / "build" / f"matrix-{re.sub(r'[^a-z0-9.]+', '-', cell.name.lower())}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as out:
        done = subprocess.run(
            inside(command) if cell.next_debian else command,
            cwd=ROOT,
            env=environment(interpreter, kafka=cell.kafka, java=cell.java),
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=_CELL_SECONDS,
            check=False,
        )
    text = log.read_text(errors="replace")
    count = _COUNT.search(text.rstrip().rpartition("\n")[2])
    if done.returncode or not count:
        first = [line for line in text.splitlines() if line.startswith("E   ")][:2]
        failed = [line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))]
        raise AssertionError(" | ".join([*first, *failed])[:1400] or text[-800:])
    return f"{count[1]} tests"


def interpreter_of(cell: Cell) -> Path:
    """Return what runs a cell's Spark."""
    if cell.next_debian:
        return next_debian()
    return other_python(cell.python) if cell.python else python(cell.spark, without=cell.without)


def _versions(cell: Cell) -> dict[str, str]:
    """Ask the cell's own processes."""
    around: Callable[[list[str]], list[str]] = inside if cell.next_debian else list
    names = ("pyspark", "confluent-kafka", "pyarrow", "numba")
    code = (
        "import json, platform; from importlib.metadata import distributions as d;"
        f" print(json.dumps({{**{{x.name: x.version for x in d() if x.name in {names}}},"
        " 'python': platform.python_version()}))"
    )

    def said(*command: str) -> str:
        done = subprocess.run(around([*command]), cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout or done.stderr

    java = str(java_home(cell.java) / "bin/java") if cell.java else "java"
    found: dict[str, str] = json.loads(said(str(interpreter_of(cell)), "-c", code))
    return {**found, "brokers": cell.kafka or "4.1.0", "java": said(java, "-version").splitlines()[0]}


def _commit() -> str:
    """Name the last change of the product that is here."""

    def git(*words: str) -> str:
        command = ["git", *words, "--", "discovery", "pyspark_kafka_discovery", "spark_jobs"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    return git("log", "-1", "--format=%h") + ("-dirty" if git("status", "--porcelain") else "")


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
