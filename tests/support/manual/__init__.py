"""The documentation as something that is tested: its links, its navigation, and every snippet in it."""

import os


def long_run() -> bool:
    """Tell whether the blocks that take long are to be run, too: `make test-docs`."""
    return bool(os.environ.get("MANUAL_LONG"))
