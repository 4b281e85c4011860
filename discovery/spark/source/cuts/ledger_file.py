"""A ledger in a file: one host, or a mounted volume that drivers share one after the other."""

import hashlib
import logging
import os
from collections.abc import Collection, Sequence
from pathlib import Path

import tenacity

from discovery.core.errors import LedgerDamagedError, StateError
from discovery.spark.source.cuts.ledger import ADOPT, Entry, LedgerState, Where, decode, encode, entries_of, fold, prune
from discovery.store.files import FileLock, set_aside, write_atomically
from discovery.store.snapshots import file_name

_log = logging.getLogger("kafka_discovery.source")
_LOCK_WAIT_SECONDS = 15.0
"""A query that is restarted may find its last process not quite gone."""
_SCHEMA = '{"ledger":1}'


class FileLedger:
    """Checksummed lines that are only added. A line cut short by a crash was never acknowledged and is dropped."""

    def __init__(self, state_dir: Path, source_id: str, *, lock_wait_seconds: float = _LOCK_WAIT_SECONDS) -> None:
        """Remember where; touches nothing."""
        self._source_id = source_id
        self._lock_wait_seconds = lock_wait_seconds
        self.path = (state_dir / "ledgers" / file_name(source_id)).with_suffix(".log")
        self._lock = FileLock(self.path.with_suffix(".lock"))
        self._handle: int | None = None
        self._size = 0

    def open(self) -> LedgerState:
        """See `Ledger.open`; waits up to 15 s for the last holder to end."""
        try:
            self._acquire()
            state = self._read()
        except OSError as error:
            raise StateError(f"stateDir: the ledger cannot be kept: {error}; name a folder you may write") from error
        return state

    def append(self, entries: Sequence[Entry]) -> None:
        """See `Ledger.append`.

        Runs: driver; blocks for an fsync.
        """
        content = b"".join(map(_line, entries))
        try:
            handle = self._opened()
            # What an append that failed has left must not run into the next line.
            os.ftruncate(handle, self._size)
            _write_all(handle, content, self._size)
            os.fsync(handle)
        except OSError as error:
            raise StateError(
                f"the ledger {self.path} cannot be written: {error}; make room, or mend the disk"
            ) from error
        self._size += len(content)

    def forget(self, before: LedgerState, kept: LedgerState) -> None:  # noqa: ARG002 - a topic needs both
        """See `Ledger.forget`.

        Runs: driver; blocks for two fsyncs.
        """
        try:
            self._replace(_content(kept))
        except OSError as error:
            raise StateError(f"the ledger {self.path} cannot be made shorter: {error}") from error

    def close(self) -> None:
        """See `Ledger.close`."""
        self._let_go()
        self._lock.release()

    def set_aside(self) -> str:
        """See `Ledger.set_aside`; it is kept beside the new one."""
        self._acquire()
        kept = set_aside(self.path)
        self.close()
        return f"it is kept as {kept}"

    def describe(self) -> str:
        """See `Ledger.describe`."""
        return str(self.path)

    def _acquire(self) -> None:
        retry = tenacity.Retrying(
            stop=tenacity.stop_after_delay(self._lock_wait_seconds),
            wait=tenacity.wait_fixed(0.2),
            retry=tenacity.retry_if_exception_type(StateError),
            reraise=True,
        )
        try:
            retry(self._lock.acquire)
        except StateError as error:
            raise StateError(
                f"sourceId {self._source_id!r} is in use: {error}; stop that query or give this source its own sourceId"
            ) from error

    def _read(self) -> LedgerState:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return LedgerState()
        state = prune(_fold(self.path, content))
        if (compact := _content(state)) != content:
            self._replace(compact)
        return state

    def _replace(self, content: bytes) -> None:
        self._let_go()  # first: also what fails may have replaced the file
        write_atomically(self.path, content)

    def _let_go(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _opened(self) -> int:
        if self._handle is None:
            if not self.path.exists():
                write_atomically(self.path, _content(LedgerState()))
            self._handle = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            self._size = os.fstat(self._handle).st_size
        return self._handle


def read_ledger(state_dir: Path, source_id: str) -> LedgerState | None:
    """Look at a ledger without holding it; None where there is none.

    Raises:
        StateError: it is damaged, or cannot be read.

    Runs: anywhere; its holder may write meanwhile.
    """
    return _read(FileLedger(state_dir, source_id).path)


def _read(path: Path) -> LedgerState | None:
    try:
        return _fold(path, path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"the ledger {path} cannot be read: {error}") from error


def other_ledgers(state_dir: Path, *, besides: Collection[str] = (), held: bool = True) -> dict[Where, LedgerState]:
    """Read the ledgers of all sources but some, by sourceId as their files name it; a damaged one is logged, no more.

    Args:
        state_dir: Where they are.
        besides: The sourceIds that are not looked at.
        held: Also those that a living process holds.

    Runs: anywhere; their holders may write meanwhile.
    """
    own = {FileLedger(state_dir, source_id).path for source_id in besides}
    found = {}
    for path in sorted((state_dir / "ledgers").glob("*.log")):
        if path in own or (not held and _is_held(path)):
            continue
        try:
            state = _read(path)
        except StateError as error:
            _log.warning("a cut in it cannot be reported: %s", error)
            continue
        if state is not None:
            found[Where(path.stem)] = state
    return found


def _is_held(path: Path) -> bool:
    try:
        return FileLock(path.with_suffix(".lock")).is_held()
    except OSError:
        return True


def _fold(path: Path, content: bytes) -> LedgerState:
    *lines, torn = content.split(b"\n")
    if torn:
        _log.warning("%s: its last line was cut short by a crash; it was never acted on", path)
    texts = [_checked(path, number, line) for number, line in enumerate(lines, 1)]
    if texts and texts[0] != _SCHEMA:
        raise StateError(f"{path} begins with {texts[0][:40]}, not with {_SCHEMA}: another version wrote it")
    return fold(LedgerState(), [decode(text) for text in texts[1:]])


def _checked(path: Path, number: int, line: bytes) -> str:
    digest, _, text = line.decode(errors="replace").partition(" ")
    if digest != _digest(text):
        raise LedgerDamagedError(f"{path} is damaged in line {number}; {ADOPT}")
    return text


def _content(state: LedgerState) -> bytes:
    return b"".join([_line(_SCHEMA), *map(_line, entries_of(state))])


def _line(entry: Entry | str) -> bytes:
    text = entry if isinstance(entry, str) else encode(entry)
    return f"{_digest(text)} {text}\n".encode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write_all(handle: int, content: bytes, offset: int) -> None:
    while content:
        written = os.pwrite(handle, content, offset)
        content, offset = content[written:], offset + written
