"""How much of a processor one more process gets on this host: the cores it may use, its limit, and the load."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from discovery.core.plural import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """What processes started here have."""

    cores: int
    """Those they may run on."""
    limit: float | None
    """Cores that their control group allows altogether; None: no limit."""
    load: float
    """Processes that wanted a core, on average over the last minute."""

    @property
    def share(self) -> float:
        """Cores that a process of one thread gets, 0..1, as long as its driver does not need them itself."""
        fair = self.cores / max(self.cores, self.load + 1)
        return min(fair, self.limit or fair)

    def __str__(self) -> str:
        limit = "no limit" if self.limit is None else f"a limit of {self.limit:g} core{'s' * (self.limit != 1)}"
        return f"{counted(self.cores, 'core')}, {limit}, load {self.load:.1f}"


def processor_here(root: Path = Path("/")) -> Processor:
    """Look at this process's own cores, its control groups and the host's load.

    Args:
        root: Where `proc` and `sys` lie.

    Runs: anywhere; reads a few small files.
    """
    limits = list(_limits(root))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Processor(cores=cores, limit=min(limits, default=None), load=os.getloadavg()[0])


def _limits(root: Path) -> Iterator[float]:
    """Yield the limits of this process's group and of all above it."""
    mounts = root / "sys/fs/cgroup"
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            if not controllers:  # version 2: one hierarchy for all
                pair = _text(mounts / folder / "cpu.max")
            elif "cpu" in controllers.split(","):
                quota, period = (_text(mounts / "cpu" / folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
                pair = f"{quota} {period}"
            else:
                continue
            found = re.fullmatch(r"(\d+)\s+([1-9]\d*)\s*", pair or "")
            if found:  # no limit is written as -1 and as max
                yield int(found[1]) / int(found[2])


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
