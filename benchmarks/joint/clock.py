"""A clock that jumps, for one process: Debian's libfaketime between it and the system, where that is to be had."""

import os
from collections.abc import Mapping
from pathlib import Path

_LIBRARY = Path("usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
PLACES = (Path("build/tools").resolve() / _LIBRARY, Path("/") / _LIBRARY)
"""`make build/tools/.faketime` unpacks it; or it is installed."""


class Clock:
    """The wall clock of whatever is started with `variables`; monotonic time goes on as it is."""

    def __init__(self, file: Path) -> None:
        """Begin with the right time."""
        self._library = next((place for place in PLACES if place.exists()), None)
        self._file = file
        self.jump(0)

    @property
    def can_jump(self) -> bool:
        """Tell whether the library is there."""
        return self._library is not None

    @property
    def variables(self) -> Mapping[str, str]:
        """What a process must find in its environment; nothing without the library."""
        if self._library is None:
            return {}
        preloaded = f"{self._library} {os.environ.get('LD_PRELOAD', '')}".strip()
        told = {"FAKETIME_TIMESTAMP_FILE": str(self._file), "FAKETIME_CACHE_DURATION": "1"}
        return {**told, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "LD_PRELOAD": preloaded}

    def jump(self, seconds: int) -> None:
        """Let it be so far from the right time, from now on."""
        whole = self._file.with_suffix(".new")
        whole.write_text(f"{seconds:+d}\n")
        whole.replace(self._file)
