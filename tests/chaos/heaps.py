"""What the heaps of some processes hold, again and again: whether memory that grows is kept by somebody."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.chaos.slope import Series, table
from tests.support.heaps import jvm_live_mib, python_heap

_MOST_GROWN = 8
FEW_EVENTS = {"KAFKA_DISCOVERY_EVENTS_MAX": "50"}
"""Environment of a service whose ring of events is full before anything is measured: until then it grows by design."""


class Heaps:
    """Samples of them, each after a full collection."""

    def __init__(self, folder: Path) -> None:
        """Begin without a sample; the processes were started while this folder was armed."""
        self._folder = folder
        self._series = Series()
        self._types: dict[str, list[Mapping[str, int]]] = {}

    def add(self, seconds: float, processes: Mapping[str, Collection[int]]) -> None:
        """Have every process collect, and count what is left; the title of a JVM ends with that word."""
        found: dict[str, float] = {}
        for title, pids in processes.items():
            if title.endswith("JVM"):
                live = jvm_live_mib(pids)
                found |= {} if live is None else {f"{title}: live heap and metaspace, MiB": live}
            else:
                heap = python_heap(pids, self._folder)
                found |= {f"{title}: blocks of Python, thousands": heap.blocks / 1000}
                found |= {f"{title}: C heap in use, MiB": heap.native_mib}
                found |= {f"{title}: processes that did not answer": heap.silent}
                self._types.setdefault(title, []).append(heap.types)
        self._series.add(seconds, found)

    def document(self) -> dict[str, Any]:
        """Return the slopes, and of which types there are more objects than after the first quarter, by process."""
        every = {}
        for title, seen in self._types.items():
            first, last = seen[len(seen) // 4], seen[-1]
            grown = {name: more for name, count in last.items() if (more := count - first.get(name, 0)) > 0}
            every[title] = dict(sorted(grown.items(), key=lambda item: -item[1])[:_MOST_GROWN])
        return {"heaps": self._series.slopes(), "more_objects": every}


def lines_of(result: Mapping[str, Any]) -> list[str]:
    """Return a table of what a result has to say of heaps."""
    if "heaps" not in result:
        return []
    more = [
        f"{title}: {', '.join(f'{count:+,} `{name}`' for name, count in grown.items())}"
        for title, grown in result["more_objects"].items()
        if grown
    ]
    return [
        "What their heaps hold, each after a full collection:",
        "",
        *table(result["heaps"]),
        "",
        *(["More objects at the end than after a quarter:", "", *(f"- {one}" for one in more), ""] if more else []),
    ]
