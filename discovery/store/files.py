"""Files that survive a crash at any instant, and a lock that dies with its process."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Self

from discovery.core.errors import StateError


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` so that a reader sees the old or the new content, never a part, also after a power cut.

    One writer at a time (hold a lock): the temporary file has a fixed name, so that crashes do not pile up files.

    Raises:
        OSError: the disk is full, the folder is gone or read-only; the old content stays.

    Runs: any thread; blocks for two fsyncs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class FileLock:
    """An advisory lock held until `release` or the end of the process, however it ends."""

    def __init__(self, path: Path) -> None:
        """Name the lock file; touches nothing yet."""
        self._path = path
        self._handle: int | None = None

    def acquire(self) -> Self:
        """Take the lock or say who has it; does not wait.

        Raises:
            StateError: another process holds it; names its process id and the file.
        """
        if self._handle is not None:
            return self
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise StateError(f"{self._path} is held by process {holder}") from error
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        self._handle = handle
        return self

    def is_held(self) -> bool:
        """Tell whether another process holds it, without standing in the way of one that wants it.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def release(self) -> None:
        """Give the lock back; a second call does nothing. The file stays: removing it would race."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
