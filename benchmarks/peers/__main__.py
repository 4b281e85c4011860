"""Fills cells of the matrix: `python -m benchmarks.peers [--case CASE…] [--system SYSTEM…] [--missing] [--seconds N]`.

Cells are kept in `benchmarks/results/peers.json` one by one, so that the matrix can be filled over several calls. Cases
that want the same brokers share them, one system after the other; a cell that could not be played says why, and the
others go on.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.peers.cases import CASES
from benchmarks.peers.harness import cluster_for, play
from benchmarks.peers.stage import Case
from benchmarks.peers.systems import SYSTEMS
from discovery.localkafka.cluster import LocalKafka
from tests.support.results import environment, say

RESULT = Path("benchmarks/results/peers.json")
_NETWORK = "PEERS_OWN_NETWORK"


def kept() -> dict[str, Any]:
    """Return what was kept so far."""
    return dict(json.loads(RESULT.read_text())) if RESULT.exists() else {"cells": {}}


def keep(case: str, system: str, cell: dict[str, object]) -> None:
    """Put one cell into the file."""
    result = kept()
    result["cells"].setdefault(case, {})[system] = cell
    about = environment()
    about.pop("load_average_at_start")  # each cell has its own
    result["environment"] = {**about, "kafka": "4.1.0", "flink": "2.2.1", "flink-connector-kafka": "5.0.0-2.2"}
    RESULT.write_text(json.dumps(result, separators=(",", ":"), sort_keys=True).replace('},"', '},\n"') + "\n")


class Bench:
    """Plays cases one after the other; neighbours that want the same brokers share them."""

    def __init__(self, until: float, files: Path | None = None) -> None:
        """Remember when to be through, on the monotonic clock, and where to leave the files of a cell."""
        self.until, self.good, self._files = until, True, files
        self._stack = contextlib.ExitStack()
        self._brokers: tuple[int, str | None] | None = None
        self._cluster: LocalKafka | None = None

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the brokers."""
        self.release()

    def release(self) -> None:
        """End the brokers, if there are any."""
        self._stack.close()
        self._cluster = None

    def has_time(self, case: Case) -> bool:
        """Tell whether a cell of this case would end in time."""
        return time.monotonic() + case.most_seconds <= self.until

    def run(self, case: Case, systems: Sequence[str]) -> None:
        """Play a case for these systems, as far as the time goes."""
        say(f"-- {case.title}")
        cluster = self._on(case)
        for system in systems:
            if not self.has_time(case):
                say(f"{case.name} {system}: no time left")
                return
            try:
                cell = play(case, system, cluster, self._files)
            except Exception:  # noqa: BLE001 - one cell must not cost the others
                say(f"{case.name} {system} could not be played:\n{traceback.format_exc()}")
                self.good = False
            else:
                keep(case.name, system, cell)
                say(f"{case.name} {system}: { {key: value for key, value in cell.items() if key != 'line'} }")

    def _on(self, case: Case) -> LocalKafka:
        wanted = (case.brokers, case.listener)
        if self._cluster is None or wanted != self._brokers:
            self._stack.close()
            self._cluster, self._brokers = self._stack.enter_context(cluster_for(case)), wanted
        return self._cluster


def in_own_network(arguments: Sequence[str]) -> int:
    """Run this program again where it may drop packets without harm to others."""
    script = 'ip link set lo up && exec "$0" -m benchmarks.peers "$@"'
    command = ["unshare", "--net", "sh", "-c", script, sys.executable, *arguments]
    return subprocess.run(command, check=False, env={**os.environ, _NETWORK: "1"}).returncode


def main() -> None:
    """Run the cells named, by default all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--system", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--missing", action="store_true", help="only cells that were never played")
    parser.add_argument("--seconds", type=float, default=86_400.0, help="begin nothing that would end later")
    parser.add_argument("--files", type=Path, help="folder to leave each cell's rows and logs in")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # brokers and systems end with us
    with Bench(time.monotonic() + given.seconds, given.files) as bench:
        for name in given.case:
            there = kept()["cells"].get(name, {}) if given.missing else {}
            systems = [one for one in given.system if one not in there]
            if not systems or not bench.has_time(CASES[name]):
                continue
            if CASES[name].listener and _NETWORK not in os.environ:
                bench.release()
                left = ["--seconds", str(bench.until - time.monotonic())]
                left += ["--files", str(given.files)] if given.files else []
                bench.good &= in_own_network(["--case", name, "--system", *systems, *left]) == 0
            else:
                bench.run(CASES[name], systems)
    sys.exit(0 if bench.good else 1)


if __name__ == "__main__":
    main()
