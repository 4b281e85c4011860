"""The demo's own child processes: started with a log file each, ended whatever happens."""

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import discovery
from discovery.core.errors import DiscoveryError

_STOP_SECONDS = 30.0


class ProcessError(DiscoveryError):
    """A process of the demo ended or hung when it should not; carries its last words."""


class Child:
    """One Python module, or file, running as a process. The constructor does no I/O; also a context manager."""

    def __init__(self, module: str, arguments: Sequence[str], *, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._command = [sys.executable, "-m", "discovery.config.parent_death", module, *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self.retired = False
        """It was asked to end, or may end by itself: its end is no fault."""

    def start(self) -> Self:
        """Start it; returns at once."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                cwd=Path(discovery.__file__).parent.parent,
                # Ctrl-C is for the demo alone, which then ends its children in order.
                start_new_session=True,
            )
        return self

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process else None

    def check(self) -> None:
        """Raise where it has ended by itself.

        Raises:
            ProcessError: it ended; carries its exit code and last line.
        """
        if self.exit_code is not None:
            raise ProcessError(f"the {self.name} ended with exit code {self.exit_code}: {self.last_words()}")

    def stop(self, *, timeout_seconds: float = _STOP_SECONDS) -> int:
        """Ask it to end, wait, and kill it after the timeout.

        Returns:
            Its exit code; negative: the signal that ended it.
        """
        self.retired = True
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_seconds)
        self.kill()
        return int(self._process.returncode)

    def wait(self, *, timeout_seconds: float) -> int:
        """Wait until it ends by itself.

        Raises:
            ProcessError: it still runs after the timeout.
        """
        if self._process is None:
            return 0
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise ProcessError(f"the {self.name} did not end within {timeout_seconds:g} s") from None

    def kill(self) -> None:
        """End it now; safe to call twice."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            if self._process.stdin:
                self._process.stdin.close()

    def last_words(self) -> str:
        """Return the last line of its log that says something."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:400] if lines else "it said nothing"

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()
