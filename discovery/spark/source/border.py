"""The border to Spark: deliberate errors cross as one line, any other keeps its traceback under a fixed phrase."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from discovery.core.errors import BUG_PHRASE, DiscoveryError

_log = logging.getLogger("kafka_discovery.source")
HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


def one_line(error: DiscoveryError) -> DiscoveryError:
    """Let Spark show an error as its one line: a mistake of the user's needs no stack of ours.

    Runs: a Python process of Spark's that is about to fail this call.
    """
    os.environ[HIDE_TRACEBACK] = "1"
    return error


@contextmanager
def crossing() -> Iterator[None]:
    """Guard what Spark calls.

    Runs: any Python process of Spark's.
    """
    # A reused worker may have failed with one line before; what comes now may be a bug and needs its stack.
    os.environ.pop(HIDE_TRACEBACK, None)
    try:
        yield
    except DiscoveryError as error:
        raise one_line(error) from None
    except Exception:
        _log.exception("%s: a call of Spark's failed", BUG_PHRASE)
        raise
