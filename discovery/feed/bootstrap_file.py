"""A bootstrap list in a file, which may be changed while its readers run."""

import threading
from collections.abc import Callable
from pathlib import Path

from discovery.config.logs import event_log
from discovery.core.errors import BUG_PHRASE, ConfigError
from discovery.core.model import BrokerAddress, parse_bootstrap_servers

_log = event_log("discovery.feed")
_INTERVAL_SECONDS = 1.0
_MAX_BYTES = 64 * 1024
_Stamp = tuple[int, int, int]


class BootstrapFile:
    """Addresses separated by commas or lines, `#` begins a comment. Watched on a thread of its own.

    A thread, because a hung mount must not hold up the loop; by looking once a second, because mounted volumes tell
    nobody that they changed. Kubernetes replaces such a file by swinging a link, so it is followed.
    """

    def __init__(self, path: Path, *, option: str = "bootstrapServersFile") -> None:
        """Remember where; touches nothing."""
        self.path = path
        self._option = option
        self._stamp: _Stamp | None = None
        self._complaint = ""
        self._stop = threading.Event()

    def read(self) -> tuple[BrokerAddress, ...]:
        """Return what stands there now.

        Raises:
            ConfigError: it cannot be read, is too large, or holds no address or a wrong one; names the file.

        Runs: anywhere; one small file.
        """
        try:
            self._stamp = self._stamp_now()
            with self.path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
            if len(content) > _MAX_BYTES:
                raise ConfigError(f"{self._option}: {self.path} is larger than 64 KiB: it holds something else")
            lines = [line.partition("#")[0] for line in content.decode().splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._option}: {self.path} cannot be read: {error}") from None
        return parse_bootstrap_servers(",".join(lines), option=f"{self._option} ({self.path})")

    def watch(self, on_change: Callable[[tuple[BrokerAddress, ...]], None]) -> None:
        """Call back with every new list until `stop`, on the watching thread; a bad file keeps the old one."""
        watcher = threading.Thread(target=self._watch, args=(on_change,), name="kafka-discovery list", daemon=True)
        watcher.start()

    def stop(self) -> None:
        """End the watch; does not wait for a thread that hangs in a mount."""
        self._stop.set()

    def look(self) -> tuple[BrokerAddress, ...] | None:
        """Return the list if the file was touched since it was last read; None if not, or if it is bad.

        Runs: the watching thread, once a second.
        """
        try:
            if self._stamp_now() == self._stamp:
                return None
            found = self.read()
        except (OSError, ConfigError) as error:
            self._complain(str(error))
            return None
        self._complain("")
        return found

    def _watch(self, on_change: Callable[[tuple[BrokerAddress, ...]], None]) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            try:
                if (found := self.look()) is not None:
                    on_change(found)
            except Exception:  # noqa: BLE001 - a watch that ends must be heard, not seen on stderr
                _log.exception(f"{BUG_PHRASE}: the bootstrap list is not watched any more")
                return

    def _stamp_now(self) -> _Stamp:
        found = self.path.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _complain(self, text: str) -> None:
        if text and text != self._complaint:
            _log.warning("the list read before stays in use", reason=text)
        self._complaint = text
