"""The C heap of a worker, which librdkafka shares with Arrow."""

import ctypes
import os
from functools import cache

_M_ARENA_MAX = -8
_ARENAS = 2


@cache
def share_arenas() -> None:
    """Let all threads of this process share two arenas of the C heap, before a client has made its own.

    A librdkafka client has a thread for each broker. glibc gives each an arena, and keeps in it what that thread once
    needed: over 100 partitions a worker held 270 MB beyond its base with a bound of 64, with two arenas 55, and read
    no slower. It holds for the whole process, for threads of a user's function too: eight that compress run as before
    (`tests/unit/fetch/test_heap.py`). `MALLOC_ARENA_MAX` in the worker's environment goes before.

    Runs: worker, once; microseconds; nothing where the C library is another.
    """
    call = getattr(ctypes.CDLL(None), "mallopt", None)
    if call is not None and "MALLOC_ARENA_MAX" not in os.environ:
        call(_M_ARENA_MAX, _ARENAS)


def trim() -> None:
    """Give freed memory back to the system.

    Runs: worker; blocks for milliseconds; nothing where the C library has no such call.
    """
    call = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if call is not None:
        call(0)
