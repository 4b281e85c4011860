"""Last-known-good snapshots on disk: what lets a start on a dead list find the living brokers.

Layout below the state folder: `sources/<source id>.json` for a source with a name, which one process may hold;
`clusters/<cluster id>.json` for all others, written by whoever holds the lock, read by everybody.
"""

import hashlib
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from discovery.config.logs import event_log
from discovery.core.errors import StateError
from discovery.core.model import BrokerAddress, ClusterId, Generation, Snapshot
from discovery.store.codec import Saved, decode, encode
from discovery.store.files import FileLock, write_atomically, write_sparing

_MAX_KNOWN = 1_000
_log = event_log("discovery.store")


def file_name(name: str) -> str:
    """Return a file name for any id: itself where it is harmless, else its readable part and a hash."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name):
        return f"{name}.json"
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:60].strip("-")
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


class SnapshotStore:
    """Loads and saves the snapshot of one loop. The constructor does no I/O; not thread-safe: the loop owns it."""

    def __init__(self, state_dir: Path, *, source_id: str | None = None) -> None:
        """Remember where; `source_id` asks for a file, and a lock, of its own."""
        self._state_dir = state_dir
        self._source_id = source_id
        self._path: Path | None = state_dir / "sources" / file_name(source_id) if source_id else None
        self._lock: FileLock | None = None
        self._known: frozenset[BrokerAddress] = frozenset()
        self._loaded: Saved | None = None
        self._unread: set[Path] = set()
        """Files that could not be read: they are set aside before they are replaced."""
        self.floor = Generation(0)
        """Once `load` was called: the newest generation used, also where no file is left; the next are above it."""
        self.may_replace = False
        """Whether the view of another cluster than the loaded one is kept: the list outvoted it for good."""
        self.write_failures = 0
        self.is_failing = False
        """The last view was not written."""

    def open(self) -> None:
        """Take the lock of a named source.

        Raises:
            StateError: another process holds the source; names option and remedy.
            OSError: the folder cannot be made.
        """
        if self._path is None or self._lock is not None:
            return
        lock = FileLock(self._path.with_suffix(".lock"))
        try:
            self._lock = lock.acquire()
        except StateError as error:
            raise StateError(
                f"sourceId {self._source_id!r} is in use: {error}; stop that query or give this source its own sourceId"
            ) from error

    def load(self, configured: Collection[BrokerAddress], *, cluster_id: ClusterId | None) -> Snapshot | None:
        """Return the saved view that belongs here, or None; a broken file is logged and counts as none.

        A named source has its file. Otherwise it is the cluster given, else the one saved cluster that knows the most
        of the configured addresses; a tie is no answer. Where the cluster given is not the one of a named source's
        file, its view is returned for the topic ids that were read, and is replaced by the first one saved. A view
        after which others could not be written gets a number above theirs: a generation is never used for two contents.
        """
        saved = self._load_named() if self._path else self._load_shared(configured, cluster_id)
        whose = saved.snapshot.cluster_id if saved else cluster_id
        if (path := self._path or (self._shared(whose) if whose else None)) is not None:
            self.floor = Generation(FileLock(path.with_suffix(".lock")).noted)
        if saved is None:
            return None
        if cluster_id in {None, saved.snapshot.cluster_id}:
            self._loaded, self._known = saved, saved.known_addresses
        is_newest = saved.snapshot.generation >= self.floor
        return saved.snapshot if is_newest else replace(saved.snapshot, generation=Generation(self.floor + 1))

    def save(self, snapshot: Snapshot, addresses: Collection[BrokerAddress]) -> bool:
        """Write the view; returns False, tells and counts when it cannot.

        Runs: the loop's thread; blocks for two fsyncs.
        """
        if self._loaded is not None and self._loaded.snapshot.cluster_id != snapshot.cluster_id:
            if not self.may_replace:
                return False
            self._disown(self._loaded, addresses)
        if self._path is None and not self._claim(snapshot.cluster_id):
            return False
        known = frozenset(addresses) | {b.address for b in snapshot.brokers}
        self._known = frozenset(sorted(known) + sorted(self._known - known)[: max(0, _MAX_KNOWN - len(known))])
        path = self._path or self._shared(snapshot.cluster_id)
        if self._lock is not None:
            self._lock.note(snapshot.generation)
        try:
            write_sparing(path, encode(Saved(snapshot=snapshot, known_addresses=self._known)), self._unread)
        except OSError as error:
            self._note_failure(path, error)
            return False
        self.is_failing = False
        return True

    def close(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _shared(self, cluster_id: ClusterId) -> Path:
        return self._state_dir / "clusters" / file_name(cluster_id)

    def _disown(self, left: Saved, addresses: Collection[BrokerAddress]) -> None:
        """Take addresses that are another cluster's by now out of the view that was loaded: they do not lead to it."""
        self._loaded, self._known = None, frozenset()
        path = self._shared(left.snapshot.cluster_id)
        lock = FileLock(path.with_suffix(".lock"))
        try:
            lock.acquire()
            write_atomically(path, encode(replace(left, known_addresses=left.known_addresses - frozenset(addresses))))
        except StateError as error:
            _log.debug("state_written_by_another", cluster_id=left.snapshot.cluster_id, error=str(error))
        except OSError as error:
            self._note_failure(path, error)
        finally:
            lock.release()

    def _claim(self, cluster_id: ClusterId) -> bool:
        """Become the writer of the cluster's shared file, if nobody is: the others' views are as good as ours."""
        if self._lock is None:
            try:
                self._lock = FileLock(self._shared(cluster_id).with_suffix(".lock")).acquire()
            except StateError as error:
                _log.debug("state_written_by_another", cluster_id=cluster_id, error=str(error))
            except OSError as error:
                self._note_failure(self._shared(cluster_id), error)
        return self._lock is not None

    def _note_failure(self, path: Path, error: OSError) -> None:
        self.write_failures += 1
        self.is_failing = True
        remedy = "name a folder you may write as stateDir, or make room"
        _log.warning("state_not_written", path=str(path), error=str(error), failures=self.write_failures, remedy=remedy)

    def _load_named(self) -> Saved | None:
        assert self._path is not None  # noqa: S101 - ensured by the caller
        return self._read(self._path)

    def _load_shared(self, configured: Collection[BrokerAddress], cluster_id: ClusterId | None) -> Saved | None:
        if cluster_id is not None:
            return self._read(self._shared(cluster_id))
        wanted = frozenset(configured)
        every = [saved for path in sorted((self._state_dir / "clusters").glob("*.json")) if (saved := self._read(path))]
        ranked = sorted(every, key=lambda saved: -len(saved.known_addresses & wanted))
        counts = [len(saved.known_addresses & wanted) for saved in ranked]
        if not counts or counts[0] == 0:
            return None
        if len(counts) > 1 and counts[0] == counts[1]:
            _log.warning(
                "state_ambiguous", remedy="set clusterId", clusters=[s.snapshot.cluster_id for s in ranked[:2]]
            )
            return None
        return ranked[0]

    def _read(self, path: Path) -> Saved | None:
        try:
            return decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, StateError) as error:
            _log.warning("state_unreadable", path=str(path), error=str(error), consequence="starting without it")
            self._unread.add(path)
            return None
