"""Files that survive a crash at any instant, and a lock that dies with its process."""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Self

from discovery.config.logs import event_log
from discovery.core.errors import StateError

_log = event_log("discovery.store")


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


def set_aside(path: Path) -> Path:
    """Rename a file that cannot be read, so that what replaces it costs nobody its content; return its new name.

    Raises:
        OSError: it cannot be renamed; FileNotFoundError: it is not there.
    """
    return path.replace(_damaged(path))


def write_sparing(path: Path, content: bytes, unread: set[Path]) -> None:
    """Replace `path` as `write_atomically` does; one that could not be read is kept under another name, once.

    Args:
        path: Of the file.
        content: What it holds then.
        unread: The files that could not be read; `path` is taken out of it.

    Raises:
        OSError: it cannot be kept, or see `write_atomically`; the old content stays.
    """
    if path in unread:
        _keep_too(path)
        unread.discard(path)
    write_atomically(path, content)


def _keep_too(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        kept = _damaged(path)
        try:
            kept.hardlink_to(path)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without links
            path.replace(kept)
        _log.warning("file_set_aside", path=str(path), kept=str(kept))


def _damaged(path: Path) -> Path:
    return path.with_suffix(f".damaged-{time.time_ns()}")


def was_set_aside(path: Path) -> bool:
    """Tell whether a file of that name was set aside, and nobody has deleted it since."""
    return any(path.parent.glob(f"{path.stem}.damaged-*"))


_RECORD_BYTES = 32


def _words(record: bytes) -> list[str]:
    return record.decode(errors="replace").split()


class FileLock:
    """An advisory lock held until `release` or the end of the process, however it ends.

    Its file holds the process id and a number of the holder's, in a place that is never cut: a full disk takes them.
    """

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
            holder, *_ = [*_words(os.pread(handle, _RECORD_BYTES, 0)), "unknown"]
            os.close(handle)
            raise StateError(f"{self._path} is held by process {holder}") from error
        self._handle = handle
        self.note(self.noted)
        return self

    @property
    def noted(self) -> int:
        """The number that the last holder noted, 0: none. Reads the file, held or not."""
        try:
            words = _words(self._path.read_bytes()[:_RECORD_BYTES])
        except OSError:
            return 0
        return int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0

    def note(self, number: int) -> None:
        """Keep a number >= 0 for whoever takes the lock next, also where the disk is full; of the holder."""
        assert self._handle is not None  # noqa: S101 - of the holder
        with contextlib.suppress(OSError):  # of a new file: the lock holds all the same
            os.pwrite(self._handle, f"{os.getpid():<11}{number:>20}\n".encode(), 0)

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
