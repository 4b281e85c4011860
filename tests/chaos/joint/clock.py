"""A wall clock that jumps, for one service: `python -m tests.chaos.joint.clock FILE serve …`.

It is Python's clock alone. Under libfaketime librdkafka 2.16 reads the false time, but the C library's `cnd_timedwait`,
in which it waits, does not: it then spins on all cores or oversleeps by the jump, as after no jump of a real clock.
"""

import sys
import time
from pathlib import Path

from discovery.cli.app import main


class Clock:
    """The wall clock of whatever is started as `program`; monotonic time goes on as it is."""

    def __init__(self, file: Path) -> None:
        """Begin with the right time."""
        self._file = file
        self.jump(0)

    @property
    def program(self) -> tuple[str, ...]:
        """How a service with this clock is started: arguments of Python, before its own."""
        return ("-m", "tests.chaos.joint.clock", str(self._file), "serve")

    def jump(self, seconds: int) -> None:
        """Let it be so far from the right time, from now on."""
        whole = self._file.with_suffix(".new")
        whole.write_text(str(seconds))
        whole.replace(self._file)


def follow(file: Path) -> None:
    """Set this process's wall clock by what the file says, whenever somebody looks at it."""
    right = time.time

    def seen() -> float:
        return right() + int(file.read_text())

    time.time = seen


if __name__ == "__main__":
    follow(Path(sys.argv.pop(1)))
    main()
