"""One run of a job as a child process: its words passed on as they come, the last ones kept."""

import collections
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from discovery.core.errors import ConfigError

_KEPT_BYTES = 400_000
"""Of what a job says: a Java stack trace with all its causes is some tens of kilobytes."""
_GRACE_SECONDS = 30.0
"""After a signal, until the job is killed."""


@dataclass(slots=True)
class Tail:
    """The end of what was said. Thread-safe enough: one writer per stream, read when they have ended."""

    _parts: collections.deque[bytes] = field(default_factory=collections.deque)
    _size: int = 0

    def add(self, data: bytes) -> None:
        """Take some more."""
        self._parts.append(data)
        self._size += len(data)
        while self._size > _KEPT_BYTES and len(self._parts) > 1:
            self._size -= len(self._parts.popleft())

    def text(self) -> str:
        """Return it."""
        return b"".join(self._parts).decode(errors="replace")


class Job:
    """Runs a command to its end, in a process group of its own; signals are passed on to the whole group."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Remember what to run."""
        self._command = list(command)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self.tail = Tail()
        self.stopped = threading.Event()

    def run(self) -> int:
        """Run it; returns its exit code, negative: the signal that ended it.

        Raises:
            ConfigError: there is no such program.

        Runs: the supervisor's thread; blocks as long as the job lives.
        """
        try:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"{self._command[0]}: cannot be run: {error.strerror or error}") from error
        if self.stopped.is_set():  # a signal came in between
            self._signal(signal.SIGTERM)
        readers = [
            threading.Thread(target=self._pass_on, args=(source, sink), name="job output", daemon=True)
            for source, sink in ((self._process.stdout, sys.stdout), (self._process.stderr, sys.stderr))
        ]
        for reader in readers:
            reader.start()
        code = self._process.wait()
        # Children of the job may keep its output open for ever: whatever remains of the group ends with it.
        self._signal(signal.SIGTERM)
        for reader in readers:
            reader.join(5)
        self._signal(signal.SIGKILL)
        return code

    def stop(self, number: int) -> None:
        """Pass a signal on; the job is killed if it has not ended after a while. Runs: any thread."""
        first = not self.stopped.is_set()
        self.stopped.set()
        self._signal(number)
        if first:
            timer = threading.Timer(_GRACE_SECONDS, self._signal, args=(signal.SIGKILL,))
            timer.daemon = True
            timer.start()

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _pass_on(self, source: BinaryIO, sink: object) -> None:
        out = getattr(sink, "buffer", None)
        with source:
            while data := source.read1(65_536):  # type: ignore[attr-defined]
                self.tail.add(data)
                if out is not None:
                    with contextlib.suppress(OSError, ValueError):
                        out.write(data)
                        out.flush()
