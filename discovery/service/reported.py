"""Bootstrap lists that consumers reported in the last days: a job that is down now needs its list at its next start.

Who reported each is kept with it, so that an id has its holder also where the service restarts.
"""

import json
import threading
from collections.abc import Sequence
from pathlib import Path

from discovery.config.logs import event_log
from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress, parse_bootstrap_servers
from discovery.store.files import was_set_aside, write_sparing

_KEPT_SECONDS = 7 * 86_400.0
_MOST = 10_000
_MOST_ADDRESSES = 100_000
"""Of all lists together. Beyond it, those that were reported longest ago go."""
_SAVED_EACH_SECONDS = 600.0
"""How old the saved times of reports may be; a list that is new or has changed is saved at once."""
_Reported = tuple[tuple[BrokerAddress, ...], float, str]
_NONE: _Reported = ((), 0.0, "")
_log = event_log("discovery.service")


class ReportedLists:
    """The last list of each consumer of one cluster, in memory and in a file. Thread-safe."""

    def __init__(self) -> None:
        """Keep them in memory alone until a file is opened."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._kept: dict[str, _Reported] = {}
        """By id, with when it was reported last (seconds since the epoch) and by which instance, if that has not ended;
        that of longest ago first."""
        self._lost_wall = float("-inf")
        """When kept lists could not be read; in the file too."""
        self._path: Path | None = None
        self._unread: set[Path] = set()
        """The file, where it holds what could not be read: it is set aside before it is replaced."""
        self._is_due = False
        self._is_saving = False
        self._saved_wall = 0.0

    def open(self, path: Path, *, wall: float) -> None:
        """Go on from what a file holds; one that is damaged is logged and counts as none, see `are_lost`.

        The next list is written beside it, so that whoever mends it loses nothing.

        Runs: a worker thread, before anything is noted.
        """
        self._path = path
        try:
            self._kept, self._lost_wall = _read(path.read_bytes())
        except FileNotFoundError:
            if was_set_aside(path):  # and the process ended before it wrote the next one
                self._lost_wall = wall
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
            self._lost_wall = wall
            self._unread.add(path)
            consequence = "beginning without them; for seven days no removal is called safe"
            _log.warning("lists_not_read", path=str(path), error=str(error), consequence=consequence)

    def note(self, consumer_id: str, addresses: Sequence[BrokerAddress], *, instance: str = "", wall: float) -> None:
        """Keep what a consumer lists now; nothing forgets it. Runs: anywhere; waits for no disk."""
        now: _Reported = (tuple(addresses), wall, instance) if addresses else _NONE
        with self._lock:
            before = self._kept.pop(consumer_id, _NONE)
            if addresses:
                self._kept[consumer_id] = now
            if (now[0], now[2]) == (before[0], before[2]) and wall - self._saved_wall < _SAVED_EACH_SECONDS:
                return
            self._kept = _bounded(self._kept, wall)
            self._saved_wall = wall
        self._save_soon()

    def holder(self, consumer_id: str) -> str:
        """Return the instance that reported last, empty where it has ended or is not known."""
        with self._lock:
            return self._kept.get(consumer_id, _NONE)[2]

    def end(self, consumer_id: str, instance: str) -> None:
        """Note that an instance has ended; its list stays. Runs: anywhere; waits for no disk."""
        with self._lock:
            addresses, at, holder = self._kept.get(consumer_id, _NONE)
            if not holder or holder != instance:
                return
            self._kept[consumer_id] = (addresses, at, "")
        self._save_soon()

    def forget(self, consumer_id: str) -> None:
        """Forget a consumer that does not come back. Runs: anywhere; waits for no disk."""
        with self._lock:
            known = self._kept.pop(consumer_id, None)
        if known is not None:
            self._save_soon()

    def lists(self, wall: float) -> dict[str, tuple[BrokerAddress, ...]]:
        """Return the lists of the last days by consumer."""
        with self._lock:
            return {one: addresses for one, (addresses, at, _) in self._kept.items() if wall - at <= _KEPT_SECONDS}

    def are_lost(self, wall: float) -> bool:
        """Tell whether lists of the last days could not be read: who is down may have reported one."""
        return wall - self._lost_wall <= _KEPT_SECONDS

    def save(self) -> None:
        """Write what is not saved yet. Runs: a worker thread; blocks for two fsyncs."""
        with self._writing:
            while (content := self._unsaved()) is not None:
                path, text = content
                try:
                    write_sparing(path, text, self._unread)
                except OSError as error:
                    consequence = "they are written with the next ones"
                    _log.warning("lists_not_written", path=str(path), error=str(error), consequence=consequence)

    def _unsaved(self) -> tuple[Path, bytes] | None:
        with self._lock:
            if self._path is None or not self._is_due:
                self._is_saving = False
                return None
            self._is_due = False
            return self._path, _written(self._kept, self._lost_wall)

    def _save_soon(self) -> None:
        with self._lock:
            self._is_due = True
            if self._is_saving:
                return
            self._is_saving = True
        threading.Thread(target=self.save, name="save-lists", daemon=True).start()


def _bounded(kept: dict[str, _Reported], wall: float) -> dict[str, _Reported]:
    found: dict[str, _Reported] = {}
    left = _MOST_ADDRESSES
    for one, reported in reversed(kept.items()):
        left -= len(reported[0])
        if left < 0 or len(found) == _MOST:
            break
        if wall - reported[1] <= _KEPT_SECONDS:
            found[one] = reported
    return dict(reversed(found.items()))


def _written(kept: dict[str, _Reported], lost_wall: float) -> bytes:
    lost = {"lost_wall": lost_wall} if lost_wall > 0 else {}
    lists = {
        one: {"servers": ",".join(map(str, addresses)), "wall": at, "instance": instance}
        for one, (addresses, at, instance) in kept.items()
    }
    return json.dumps({"schema": 1, "lists": lists, **lost}).encode()


def _read(content: bytes) -> tuple[dict[str, _Reported], float]:
    document = json.loads(content)
    read = {
        str(one): (parse_bootstrap_servers(found["servers"]), float(found["wall"]), str(found.get("instance", "")))
        for one, found in document["lists"].items()
    }
    return dict(sorted(read.items(), key=lambda pair: pair[1][1])), float(document.get("lost_wall", "-inf"))
