"""Plans without pauses of Python's garbage collector.

A plan over 50 000 partitions makes some hundred thousand small objects, none of them in a cycle; the collector walked
through all living ones again and again meanwhile, for two thirds of the time.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Keep the collector out of the block; reference counts free what is not in a cycle all the same.

    Runs: driver, around one plan; other threads of the process are collected again right after it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
