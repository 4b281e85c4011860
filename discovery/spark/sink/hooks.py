"""Named points of the protocol at which a test can kill, stop or hold a process; free of cost where none is armed.

A folder named by `KAFKA_DISCOVERY_SINK_HOOKS` arms them: a file `<point>` (any lane) or `<point>@<lane>` holds a word:

- `kill`, `stop`: SIGKILL or SIGSTOP to this very process;
- `raise`: an error as from a bug;
- `hold`: wait until the file `<point>….held.<pid>` that it becomes is gone, while somebody kills something else.

A file works once: whoever comes first claims it by renaming, so that the retry of a killed task passes.

Where hooks are armed every record also carries a header that says which attempt wrote it, and every task leaves a line
in the file `said.jsonl` of that folder: what a checker needs to tell attempts apart. A file `plain` there leaves that
header out, so that records are produced as in production, whole batches at once.
"""

import itertools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

VARIABLE = "KAFKA_DISCOVERY_SINK_HOOKS"
STEPS = tuple(f"step{number}.{when}" for number in range(8) for when in ("before", "after"))
POINTS = (*STEPS, "step5.middle", "step6.sent", "commit.before", "commit.checked", "commit.after")
"""Steps as numbered in `writer.py`; `step6.sent` is between the marker and the end of the transaction."""
AUDIT_HEADER = "kafka-discovery-audit"
SAID = "said.jsonl"
PLAIN = "plain"
_PAUSE_SECONDS = 0.02
Headers = list[tuple[str, bytes | None]]
Auditor = Callable[[Headers | None], Headers]


def point(name: str, lane: int | None = None) -> None:
    """Do what the file for this point says, if there is one.

    Raises:
        RuntimeError: the file says `raise`.

    Runs: workers and driver, a few times per task; two looks at the file system where hooks are armed, else nothing.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return
    for armed in (Path(folder, name), Path(folder, f"{name}@{lane}")):
        taken = armed.with_name(f"{armed.name}.held.{os.getpid()}")
        try:
            armed.rename(taken)
        except OSError:
            continue
        _act(taken.read_text().strip(), taken)


class step:  # noqa: N801 - reads as a word of the protocol
    """One numbered step between its two points; the second is passed only where the step succeeded."""

    def __init__(self, number: int, lane: int) -> None:
        self._number, self._lane = number, lane

    def __enter__(self) -> None:
        point(f"step{self._number}.before", self._lane)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            point(f"step{self._number}.after", self._lane)


def _act(action: str, taken: Path) -> None:
    match action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "hold":
            while taken.exists():
                time.sleep(_PAUSE_SECONDS)
        case _:
            raise RuntimeError(f"armed by a test: {taken.name}")


def auditor(*, query_id: str, batch_id: int, lane: int, attempt: str) -> Auditor | None:
    """Return what adds the audit header to each record's headers in turn; None where nothing is armed, or `plain` is.

    Runs: workers, once per task; a look at the file system where hooks are armed, else nothing.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None or Path(folder, PLAIN).exists():
        return None
    numbers = itertools.count()

    def audited(headers: Headers | None) -> Headers:
        who = {"q": query_id, "b": batch_id, "lane": lane, "attempt": attempt, "seq": next(numbers)}
        return [*(headers or ()), (AUDIT_HEADER, json.dumps(who).encode())]

    return audited


def said(*, batch_id: int, lane: int, attempt: str, outcome: str) -> None:
    """Leave a line about the end of a task where hooks are armed.

    Runs: workers, once per task; appends to a small file, or nothing.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return
    line = json.dumps({"batch": batch_id, "lane": lane, "attempt": attempt, "outcome": outcome})
    with Path(folder, SAID).open("a") as file:
        file.write(line + "\n")
