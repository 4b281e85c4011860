"""Open files and sockets: how many this process may have, and what it looks like when they run out."""

import contextlib
import errno
import resource
import socket

OUT_OF = "this process is out of file descriptors; raise its limit of open files (ulimit -n)"
_A_FEW = 12
"""What one probe of a broker opens: an event loop, a client with its wake-up pipes, a connection."""
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


def is_ours(error: BaseException | None) -> bool:
    """Tell whether an error came about on this side of a connection: it says nothing about the other.

    Runs: anywhere (pure).
    """
    return isinstance(error, OSError) and error.errno in _OURS


def exhausted() -> bool:
    """Tell whether descriptors are short now: a name lookup, or librdkafka, does not say that it failed for that.

    Runs: anywhere; opens and closes a few sockets.
    """
    with contextlib.ExitStack() as stack:
        try:
            for _ in range(_A_FEW):
                stack.enter_context(socket.socket())
        except OSError as error:
            return is_ours(error)
    return False


def allow(count: int) -> int:
    """Raise this process's soft limit of open files to `count`, as far as it may; return what it is then.

    Runs: anywhere, at start.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return count if soft == resource.RLIM_INFINITY else soft
