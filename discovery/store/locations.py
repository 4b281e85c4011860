"""Where state lives by default: the user's state folder, as the XDG base directory specification names it."""

import os
from pathlib import Path


def default_state_dir() -> Path:
    """Return `$XDG_STATE_HOME/kafka-discovery`, by default below `~/.local/state`; touches nothing."""
    home = os.environ.get("XDG_STATE_HOME", "")
    # The XDG rules: a relative value is invalid and is ignored.
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return base / "kafka-discovery"
