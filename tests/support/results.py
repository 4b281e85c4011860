"""Results of long runs, one format and one renderer for benchmarks and chaos: a JSON file, and a page made of it."""

import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "figures"
OUTPUT = Path("build/bench")


def say(text: str) -> None:
    """Tell the person who waits."""
    print(f"  {text}", flush=True)


def commit() -> str:
    """Return the commit that is checked out, with `-dirty` where something was changed since."""
    named = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return named.stdout.strip()


def environment() -> dict[str, Any]:
    """Return what the figures were taken on, and by which command on which commit."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    return {
        "commit": commit(),
        "command": " ".join(sys.orig_argv[1:]),
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "java": java[0] if java else "",
        "cores": os.cpu_count(),
        "load_average_at_start": round(os.getloadavg()[0], 1),
        **{name: version(name) for name in ("pyspark", "confluent-kafka", "pyarrow")},
    }


def kept_result(name: str) -> dict[str, Any]:
    """Return what earlier runs wrote to `build/bench/<name>.json`: cases take minutes, so runs fill one file."""
    path = OUTPUT / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_result(name: str, result: dict[str, Any]) -> Path:
    """Write `build/bench/<name>.json`."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    path = OUTPUT / f"{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    return path


def summary(values: Sequence[float]) -> dict[str, float | int | list[float]]:
    """Return count, median, p99 (nearest rank), extremes, and the values."""
    ordered = sorted(values)
    if not ordered:
        return {"n": 0}
    rank = min(len(ordered) - 1, max(0, -(-99 * len(ordered) // 100) - 1))
    return {
        "n": len(ordered),
        "p50": round(statistics.median(ordered), 4),
        "p99": round(ordered[rank], 4),
        "min": round(ordered[0], 4),
        "max": round(ordered[-1], 4),
        "values": [round(v, 4) for v in values],
    }


@contextlib.contextmanager
def load_noted(result: dict[str, Any]) -> Iterator[None]:
    """Keep the machine's load average of one minute before and after a case: whether the machine was its own."""
    before = os.getloadavg()[0]
    yield
    result["load_average"] = [round(before, 1), round(os.getloadavg()[0], 1)]


def refuse_unknown(benchmark: str, cases: Collection[str], names: Sequence[str]) -> None:
    """End with one line where a name is no case."""
    if unknown := [name for name in names if name not in cases]:
        raise SystemExit(f"{benchmark}: {unknown[0]!r} is no case; there are: {', '.join(cases)}")


def run_cases(benchmark: str, cases: Mapping[str, Callable[[], dict[str, Any]]], names: Sequence[str]) -> None:
    """Run the named cases, all if none is named; each is added to `build/bench/<benchmark>.json` as it ends.

    It keeps its own commit, since runs of other days fill the same file.
    """
    refuse_unknown(benchmark, cases, names)
    result = {**kept_result(benchmark), "environment": environment()}
    for name in names or cases:
        say(f"-- {name}")
        load: dict[str, Any] = {}
        with load_noted(load):
            found = cases[name]()
        result[name] = found | load | {"commit": commit()}
        say(f"wrote {write_result(benchmark, result)}")


def page_of(path: Path, section: Callable[[dict[str, Any]], str], command: str) -> str:
    """Return a page: what the section says of a kept result, what is true of that run alone, what it ran on.

    Args:
        path: The result, JSON.
        section: Makes Markdown of it; its first line is the heading.
        command: What writes the page again.
    """
    result = json.loads(path.read_text())
    taken = ", ".join(f"{name} {value}" for name, value in result["environment"].items())
    heading, _, text = section(result).lstrip("#").strip().partition("\n")
    remarks = "\n".join(result.get("remarks", ()))
    mark = f"<!-- Written by `python -m {command}`; do not edit. -->"
    parts = (f"# {heading}", mark, text.strip().replace("\n### ", "\n## "), remarks, f"Environment: {taken}.")
    return "\n\n".join(part for part in parts if part) + "\n"
