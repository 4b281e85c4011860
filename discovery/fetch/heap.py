"""The C heap of a worker, which librdkafka shares with Arrow."""

import ctypes


def trim() -> None:
    """Give freed memory back: a client's threads have heaps of their own, and the allocator keeps what they held.

    Runs: worker; blocks for milliseconds; nothing where the C library has no such call.
    """
    call = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if call is not None:
        call(0)
