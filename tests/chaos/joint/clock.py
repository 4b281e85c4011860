"""A wall clock that jumps, for one service (`python -m tests.chaos.joint.clock FILE serve …`) or for Spark's Python.

It is Python's clock alone. Under libfaketime librdkafka 2.16 reads the false time, but the C library's `cnd_timedwait`,
in which it waits, does not: it then spins on all cores or oversleeps by the jump, as after no jump of a real clock.
"""

import sys
import time
from pathlib import Path

_ROOT = Path(__file__).parents[3]


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

    def python(self, folder: Path) -> Path:
        """Write an interpreter with this clock, as `PYSPARK_PYTHON` names one, into a folder of its own."""
        folder.mkdir()
        starts = f"import sys; sys.path.append({str(_ROOT)!r})", "from tests.chaos.joint import clock"
        asked = "import tests.support.heap_probe.sitecustomize"  # Python imports one module of this name
        (folder / "sitecustomize.py").write_text("\n".join([*starts, f"clock.follow({str(self._file)!r})", asked]))
        script = folder / "python"
        script.write_text(f'#!/bin/sh\nPYTHONPATH={folder}:$PYTHONPATH exec {sys.executable} "$@"\n')
        script.chmod(0o755)
        return script

    def jump(self, seconds: int) -> None:
        """Let it be so far from the right time, from now on."""
        whole = self._file.with_suffix(".new")
        whole.write_text(str(seconds))
        whole.replace(self._file)


def follow(file: str) -> None:
    """Set this process's wall clock by what the file says, whenever somebody looks at it."""
    right, shown = time.time, Path(file)

    def seen() -> float:
        return right() + int(shown.read_text())

    time.time = seen


if __name__ == "__main__":
    from discovery.cli.app import main

    follow(sys.argv.pop(1))
    main()
