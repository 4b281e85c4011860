"""Daily active users, exactly: `python -m spark_jobs.jobs.dau --help`.

Exit codes: 0 stopped or all read, 1 the query failed, 2 wrong options, 3 Kafka unreachable.
"""

import re
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from discovery.core import errors
from spark_jobs.jobs.dau_options import DauOptions, parse_arguments
from spark_jobs.jobs.dau_query import BatchWriter, make_session, read_records, start_query
from spark_jobs.jobs.dau_store import DauStore
from spark_jobs.jobs.progress_log import ProgressLog

_POLL_SECONDS = 0.2
_OWN_ERROR = re.compile(r"discovery\.core\.errors\.(\w+): (.+)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job until it is stopped; a user's mistake is one line and exit code 2.

    Runs: main thread of a driver process; blocks until the query ends or SIGTERM or SIGINT comes.
    """
    try:
        options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
        run(options)
    except errors.DiscoveryError as error:
        print(f"dau: {error}", file=sys.stderr)  # noqa: T201 - a job's own output
        return error.exit_code
    except PySparkException as error:
        known = _own_error(str(error))
        print(f"dau: the query failed: {known or error}", file=sys.stderr)  # noqa: T201 - a job's own output
        return known.exit_code if known else 1
    return 0


def run(options: DauOptions) -> None:
    """Count until the query ends or a signal comes.

    Raises:
        DiscoveryError: the output cannot be written or belongs to another checkpoint.
        StreamingQueryException: the query failed.

    Runs: main thread; blocks.
    """
    store = DauStore(options.output)
    store.create()
    session = make_session(options)
    stopping = _stop_on_signals()
    log = ProgressLog(options.progress_file)
    session.streams.addListener(log)
    writer = BatchWriter(store)
    try:
        query = start_query(read_records(session, options), writer, options)
        _await(query, stopping)
    except StreamingQueryException:
        if writer.failure is not None:
            raise writer.failure from None
        raise
    finally:
        # First: Spark would report the end to a listener whose process is gone.
        session.streams.removeListener(log)
        session.stop()


def _await(query: StreamingQuery, stopping: threading.Event) -> None:
    """Return when the query has ended by itself, or stop it; a batch in flight is replayed by the next start."""
    while query.isActive and not stopping.wait(_POLL_SECONDS):
        pass
    failure = query.exception()
    if failure is not None:
        raise failure
    query.stop()


def _stop_on_signals() -> threading.Event:
    """Handlers that only set a flag: Spark's own would cancel jobs and raise in the middle of a call."""
    stopping = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return stopping


def _own_error(text: str) -> errors.DiscoveryError | None:
    """Find the error a source raised on purpose inside Spark's traceback."""
    found = _OWN_ERROR.findall(text)
    if not found:
        return None
    name, message = found[-1]
    kind = getattr(errors, name, errors.DiscoveryError)
    known: errors.DiscoveryError = errors.DiscoveryError(message)
    known.exit_code = getattr(kind, "exit_code", 1)  # type: ignore[misc]
    return known


if __name__ == "__main__":
    sys.exit(main())
