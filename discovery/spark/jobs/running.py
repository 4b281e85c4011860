"""What every job does around its query: a session, signals, an end in one line."""

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, Protocol, TypeVar

from prometheus_client import CollectorRegistry, start_http_server
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from discovery.config.java import java_command
from discovery.config.metric_families import registry_of
from discovery.config.signals import STOP_SIGNALS, on_stop_signal
from discovery.core import errors
from discovery.core.model import BrokerAddress
from discovery.spark.jobs.arguments import Job
from discovery.spark.jobs.outputs import make_ready
from discovery.spark.jobs.progress_log import ProgressLog
from discovery.spark.launch.python import worker_python
from discovery.spark.launch.queries import StartedQuery
from discovery.spark.progress.listener import SourceProgress


class _HasJob(Protocol):
    @property
    def job(self) -> Job: ...


Options = TypeVar("Options", bound=_HasJob)
Result = TypeVar("Result")
_POLL_SECONDS = 0.2
_JVM_SECONDS = 60.0
_BEFORE_SPARK = 100
"""Hadoop runs hooks by falling priority; Spark's has 40."""
_OWN_ERROR = re.compile(r"discovery\.core\.errors\.(\w+): (.+)")
_REPORTED_BY_US = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
"""Says why a query failed with a stack trace of its own; the job says it in one line."""
_SHUFFLE = "spark.sql.shuffle.partitions"
_MIN_LOCAL_SLOTS = 2
"""A task that waits for a dead leader holds its slot; one more keeps the rest going."""
STREAM_SETTINGS = {
    # Days begin at midnight UTC, wherever the job runs.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # State leaves with the next data; an extra batch without any would only delay it.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
"""What exact counting needs of any session."""
CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_CHECKPOINT_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def make_session(
    name: str, *, master: str | None, settings: Sequence[tuple[str, str]], checkpoint: str
) -> SparkSession:
    """Start Spark, or take the session spark-submit prepared, with what exact counting needs.

    Raises:
        ConfigError: Spark is to be started here, and there is no Java for it.

    Runs: any thread, once; blocks for the start of a JVM (about 5 s).
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        java_command()  # Spark itself would say that its gateway exited
    # Without it the source's runner starts the system's interpreter, which lacks our packages.
    os.environ.setdefault("PYSPARK_PYTHON", worker_python())
    builder = SparkSession.builder.appName(name)
    for setting, value in STREAM_SETTINGS.items():
        builder = builder.config(setting, value)
    if master or not submitted:
        slots = max(_MIN_LOCAL_SLOTS, os.cpu_count() or 1)
        # A task of its own that fails is repeated on a cluster; here it would end the query: one retry.
        master = master or f"local[{slots},2]"
        builder = builder.master(master)
        if master.startswith("local"):
            builder = (
                builder.config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.driver.host", "127.0.0.1")
            )
    for setting, value in settings:
        builder = builder.config(setting, value)
    session = builder.getOrCreate()
    if str(session.sparkContext.master).startswith("local") and not session.sparkContext.getConf().contains(_SHUFFLE):
        # Each keeps state of its own: with Spark's 200 a first batch takes 40 s on two cores.
        session.conf.set(_SHUFFLE, str(_MIN_LOCAL_SLOTS))
    session.sparkContext.setLogLevel("WARN" if submitted else "ERROR")
    _mute(session, _REPORTED_BY_US)
    write_local_files_without_forks(session, checkpoint)
    return session


def write_local_files_without_forks(session: SparkSession, checkpoint: str) -> None:
    """Choose Spark's other checkpoint manager where the checkpoint is a folder of this machine.

    Without Hadoop's native library the default one forks processes for each file's rights and state. Both keep the
    same files. On a local disk both look whether a file exists and then rename; to replace a file of the state, the
    default deletes it first, and this one renames over it. The user's own choice stays.

    Raises:
        ConfigError: Hadoop has no client for that file system, or cannot use the address.

    Runs: driver, once; asks Hadoop which file system the checkpoint lies in.
    """
    hadoop: Any = session.sparkContext._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]  # noqa: SLF001 - no public way
    configuration = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    try:
        local = hadoop.Path(checkpoint).getFileSystem(configuration).getScheme() == "file"
    except Py4JJavaError as error:
        said = _first_line(error)
        remedy = "correct it, or start again where its file system can be reached"
        if "ClassNotFoundException" in said or "No FileSystem for scheme" in said:
            remedy = "name Hadoop's client for that scheme with --conf spark.jars.packages=…"
        raise errors.ConfigError(f"--checkpoint: {checkpoint}: {said}; {remedy}") from error
    if local and session.conf.get(CHECKPOINT_MANAGER, None) is None:
        session.conf.set(CHECKPOINT_MANAGER, LOCAL_CHECKPOINT_MANAGER)


def _first_line(error: Py4JJavaError) -> str:
    """Return what Java said, without the trace that follows."""
    return str(error.java_exception.toString()).splitlines()[0]


def _mute(session: SparkSession, logger: str) -> None:
    configurator: Any = session.sparkContext._jvm.org.apache.logging.log4j.core.config.Configurator  # type: ignore[union-attr]  # noqa: SLF001 - no public way
    level: Any = session.sparkContext._jvm.org.apache.logging.log4j.Level  # type: ignore[union-attr]  # noqa: SLF001
    configurator.setLevel(logger, level.OFF)


def ended(job: str, act: Callable[[], None]) -> int:
    """Run a job; whatever ends it on purpose is one line on stderr.

    Returns:
        0 stopped or all read, 1 the query failed, 2 wrong options, 3 Kafka unreachable.

    Runs: main thread; blocks as long as `act`.
    """
    before = {number: signal.signal(number, _leave) for number in STOP_SIGNALS}
    try:
        act()
    except errors.DiscoveryError as error:
        print(f"{job}: {_sentence(error)}", file=sys.stderr)  # noqa: T201 - a job's own output
        return error.exit_code
    except (PySparkException, Py4JJavaError) as error:
        known = own_error(str(error))
        # PySpark leaves what a file system refuses as py4j raised it.
        said = _sentence(known) if known else _first_line(error) if isinstance(error, Py4JJavaError) else error
        print(f"{job}: the query failed: {said}", file=sys.stderr)  # noqa: T201 - a job's own output
        return known.exit_code if known else 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def _sentence(error: errors.DiscoveryError) -> str:
    """Add the class where it tells whether a restart helps: `kafka-discovery run` reads it."""
    is_telling = isinstance(error, errors.TransactionError | errors.DataLossError)
    return f"{error} ({type(error).__name__})" if is_telling else str(error)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    """Stop a job before Spark starts: nothing is under way that could be lost."""
    sys.exit(0)


def run_job(
    name: str,
    arguments: Sequence[str] | None,
    parse: Callable[[Sequence[str]], Options],
    start: Callable[[SparkSession, Options], StreamingQuery],
) -> int:
    """Run a job until it is stopped; a user's mistake is one line and exit code 2.

    Args:
        name: The job's module.
        arguments: The command line; None: this process's own.
        parse: Reads it.
        start: Starts the query.

    Returns:
        The exit code, see `ended`.

    Runs: main thread of a driver process; blocks until the query ends or SIGTERM or SIGINT comes.
    """

    def run() -> None:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        run_query(name, options.job, lambda session: start(session, options))

    return ended(name, run)


def read_records(session: SparkSession, job: Job, **more: str) -> DataFrame:
    """Describe the source; nothing is read yet.

    Args:
        session: The job's.
        job: What to read.
        more: Options that the job itself sets.

    Runs: driver; blocks for one short Python worker.
    """
    return session.readStream.format(job.source_format).options(**dict(job.source) | more).load()


def written(frame: DataFrame, write: Callable[[DataFrame, int], None], name: str, job: Job) -> StreamingQuery:
    """Start the query that writes each micro-batch.

    Args:
        frame: What is written.
        write: Of (batch, batch id), see `outputs.writer_of`.
        name: Of the query; the topic's is added.
        job: Checkpoint and trigger.

    Runs: driver, once; returns when the query is planned.
    """
    # Without an aggregation the update mode is the append mode.
    writer = frame.writeStream.queryName(f"{name}-{job.topic}").outputMode("update").foreachBatch(write)
    writer = writer.option("checkpointLocation", job.checkpoint)
    if job.available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(job.trigger_interval_seconds * 1_000)} milliseconds").start()


def run_query(name: str, job: Job, start: Callable[[SparkSession], StreamingQuery]) -> None:
    """Run a query until it ends or a signal comes; the session ends with it.

    Args:
        name: The job's module.
        job: The shared options.
        start: Starts the query.

    Raises:
        DiscoveryError: options, output or cluster do not fit.
        StreamingQueryException: the query failed.

    Runs: main thread; blocks.
    """
    make_ready(job.output, job.topic)
    stopping = threading.Event()
    with on_stop_signal(lambda _: stopping.set()), metrics_server(job.metrics) as registry:
        # A session that the main thread starts takes SIGINT for itself: Spark's handler cancels the batch and raises in
        # the midst of a call.
        with ThreadPoolExecutor(1, "session") as aside:
            session = aside.submit(
                make_session,
                f"{name.replace('_', '-')}-{job.topic}",
                master=job.master,
                settings=job.spark_options,
                checkpoint=job.checkpoint,
            ).result()
        log = ProgressLog(name, job.progress_file)
        session.streams.addListener(log)
        progress = SourceProgress(session, state_dir=job.state_dir, registry=registry)
        with stopped_before_the_jvm(session, stopping):
            try:
                if registry is not None:
                    progress.start()
                await_end(session, lambda: start(session), stopping)
            finally:
                # First: Spark would report the end to a listener whose process is gone.
                progress.stop()
                session.streams.removeListener(log)
                session.stop()


@contextmanager
def metrics_server(address: BrokerAddress | None) -> Iterator[CollectorRegistry | None]:
    """Serve a registry by HTTP; None: there is none.

    Raises:
        ConfigError: the address cannot be had.

    Runs: main thread; the server in a thread of its own.
    """
    if address is None:
        yield None
        return
    registry = registry_of()
    try:
        server, thread = start_http_server(address.port, addr=address.host, registry=registry)
    except OSError as error:
        raise errors.ConfigError(f"--metrics: {address} cannot be had: {error.strerror}; name a free port") from error
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class StoppedError(Exception):
    """The job was asked to stop before something was done."""


def until_stopped(act: Callable[[], Result], stopping: threading.Event) -> Result:
    """Do what may wait for Kafka for minutes, for as long as nobody stops the job.

    Args:
        act: Runs on a thread of its own; what a start does may be left in the middle, as if its driver had died.
        stopping: Asks for the end.

    Returns:
        What `act` returns.

    Raises:
        StoppedError: the job was stopped before.
        Exception: as `act` does.

    Runs: main thread; blocks.
    """
    if stopping.is_set():
        raise StoppedError
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(act())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            outcome.set_exception(error)

    # A daemon: the process does not wait for it. Not `_leave`: it would end a call to the JVM in its middle.
    thread = threading.Thread(target=run, name="start", daemon=True)
    thread.start()
    while thread.is_alive() and not stopping.is_set():
        thread.join(_POLL_SECONDS)
    if not outcome.done():
        raise StoppedError
    return outcome.result()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - a job's own output


def await_end(session: SparkSession, start: Callable[[], StreamingQuery], stopping: threading.Event) -> None:
    """Start a query; return when it has ended by itself, or stop it: the next start replays a batch in flight.

    Args:
        session: The job's.
        start: Builds and starts the query; again where it died of a slow start.
        stopping: Asks for the end, also of a start.

    Raises:
        StreamingQueryException: it failed.
        Exception: as `start` does.

    Runs: main thread; blocks.
    """
    try:
        started = StartedQuery(lambda: until_stopped(start, stopping), _say)
        while started.current().isActive and not stopping.wait(_POLL_SECONDS):
            pass
        query = started.current()
    except StoppedError:
        return
    failure = query.exception()
    if failure is not None:
        raise failure
    # Tasks and writers report that they were cancelled; whoever asked for the stop knows.
    session.sparkContext.setLogLevel("OFF")
    query.stop()


class _JvmEnds:
    """What the JVM calls when it is asked to end, before it stops Spark."""

    def __init__(self, stopping: threading.Event, over: threading.Event) -> None:
        self._stopping, self._over = stopping, over

    def run(self) -> None:
        """Ask for the end of the job and wait for it. Runs: a thread of py4j's; blocks <= `_JVM_SECONDS`."""
        self._stopping.set()
        self._over.wait(_JVM_SECONDS)

    class Java:
        """What py4j looks for."""

        implements = ("java.lang.Runnable",)


@contextmanager
def stopped_before_the_jvm(session: SparkSession, stopping: threading.Event) -> Iterator[None]:
    """Let a signal to the JVM (that of spark-submit, with which an orchestrator ends a driver) stop the job first.

    Hadoop runs the hooks of a JVM that ends one after the other; Spark's own would cancel the batch under the query.

    Args:
        session: Ends within the block.
        stopping: Is set by that signal.

    Runs: main thread; the JVM waits <= 60 s for the block.
    """
    ensure_callback_server_started(session.sparkContext._gateway)  # type: ignore[no-untyped-call]  # noqa: SLF001 - no public way
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001
    over = threading.Event()
    hook = jvm.java.lang.Thread(_JvmEnds(stopping, over))
    manager = jvm.org.apache.hadoop.util.ShutdownHookManager.get()
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
    manager.addShutdownHook(hook, _BEFORE_SPARK, int(_JVM_SECONDS) + 1, seconds)
    try:
        yield
    finally:
        with suppress(Py4JError):  # it is ending already
            manager.removeShutdownHook(hook)
        over.set()


def own_error(text: str) -> errors.DiscoveryError | None:
    """Find the error that source or sink raised on purpose inside Spark's traceback.

    Runs: anywhere (pure).
    """
    found = _OWN_ERROR.findall(text)
    if not found:
        return None
    name, message = found[-1]
    kind: Any = getattr(errors, name, None)
    if kind is errors.GatewayError:
        return errors.GatewayError(errors.FailureKind.TRANSIENT, message)
    is_ours = isinstance(kind, type) and issubclass(kind, errors.DiscoveryError)
    return kind(message) if is_ours else errors.DiscoveryError(message)
