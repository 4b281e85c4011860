"""`kafka-discovery serve`, whose loop can be frozen or made to raise by a line on standard input.

Nothing known freezes a loop or raises there, so these two faults are put in; everything else is as operators run it.
"""

import sys
import threading
from typing import Any

from discovery.cli.app import main
from discovery.loop.cycle import Cycle

_going = threading.Event()
_going.set()
_failing = threading.Event()
_turn = Cycle.turn


def turn(self: Cycle, *arguments: Any) -> float:
    """Turn, by default."""
    _going.wait()
    if _failing.is_set():
        _failing.clear()
        raise RuntimeError("put in by the test of the alerts")
    return _turn(self, *arguments)


def obey() -> None:
    """Carry out what standard input says: `freeze`, `thaw`, `fail`."""
    actions = {"freeze": _going.clear, "thaw": _going.set, "fail": _failing.set}
    for line in sys.stdin:
        actions[line.strip()]()
        print("done", flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    Cycle.turn = turn  # type: ignore[assignment, method-assign]
    threading.Thread(target=obey, daemon=True).start()
    main()
