"""The cells: what is run in which versions, and how. The order is that of the page."""

from dataclasses import dataclass

_SOURCE = "tests/spark/test_source.py::test_given_"
_GROUPS = "tests/spark/test_groups.py::test_given_"
_CUT = "tests/spark/test_cut.py::test_given_"
SOURCE = (
    _SOURCE + "records_when_read_from_earliest_then_each_comes_once_with_all_columns",
    _SOURCE + "a_query_at_latest_when_partitions_are_added_then_theirs_come_from_the_first",
    _SOURCE + "a_restart_from_the_checkpoint_when_read_then_nothing_is_lost_or_repeated",
    _SOURCE + "committed_and_aborted_transactions_when_read_committed_then_only_the_committed_come",
    "tests/spark/test_faults_topics.py::test_given_a_recreated_topic_when_loss_must_fail_then_the_query_ends_with_a_line_that_says_recreated",
    "tests/spark/test_batch.py::test_given_mostly_dead_addresses_when_read_at_once_then_the_rows_come",
    _GROUPS + "a_group_when_a_query_starts_there_then_it_reads_on_and_the_group_follows_through_kills_and_failures",
)
SINK = ("tests/spark/test_sink.py",)
WRITER = ("tests/integration/test_sink_writer.py",)
CUTS = (_CUT + "a_batch_in_flight_when_its_sole_leaders_die_then_it_ends_without_them_and_they_resume_exactly",)
LEDGER = ("tests/contract/test_ledger.py",)
JOBS = (
    "tests/spark/test_dau.py::test_given_a_topic_when_the_job_runs_stops_and_runs_again_then_each_event_counts_once",
    "tests/spark/test_sink_jobs.py",
)
LOCKED = "4.2.0"
"""The PySpark of the lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run: tests that pytest runs in the cell's environment, or one function of `cases`."""

    part: str
    version: str
    shows: str
    tests: tuple[str, ...] = ()
    case: str = ""
    spark: str = LOCKED
    kafka: str = ""
    """Empty: the brokers that tests use anyway."""
    python: str = ""
    """Empty: the one of `make setup`."""
    java: str = ""
    """Empty: the one that is found anyway."""
    next_debian: bool = False
    """Run by the interpreter and the Java of the Debian after the one here."""
    without: frozenset[str] = frozenset()
    """Packages that the environment does not have."""
    not_run: str = ""
    """Why it was not."""

    @property
    def name(self) -> str:
        """What the command line and the results call it."""
        return f"{self.part}/{self.version}/{self.shows}"


def _of_brokers(version: str) -> tuple[Cell, ...]:
    sets = {"source, groups": SOURCE, "exactly-once sink": SINK + WRITER, "cuts, their ledger in Kafka": CUTS + LEDGER}
    return tuple(
        Cell(part="Brokers", version=version, shows=shows, tests=tests, kafka=version) for shows, tests in sets.items()
    )


def _of_spark(version: str) -> tuple[Cell, ...]:
    sets = {"source, groups, cuts": SOURCE + CUTS, "sink, ready jobs": SINK + JOBS}
    return tuple(
        Cell(part="Spark", version=version, shows=shows, tests=tests, spark=version) for shows, tests in sets.items()
    )


def _older(version: str, *, reads: bool) -> tuple[Cell, ...]:
    cases = {"Spark's own source on a dead list: `run`, `run_query`, the endpoint": "native"}
    if reads:
        cases["our format: `spark.read` reads, a stream is refused in one line"] = "older"
    return tuple(
        Cell(part="Spark below 4.2", version=version, shows=shows, case=case, spark=version)
        for shows, case in cases.items()
    )


CELLS = (
    *_of_spark("4.2.1"),
    *_of_spark("4.3.0"),
    Cell(part="Spark", version="4.2.0 to 4.3.0", shows="one checkpoint, up and down again", case="takeover"),
    *_older("4.1.4", reads=True),
    *_older("4.0.5", reads=True),
    *_older("3.5.9", reads=False),
    *_of_brokers("3.7.2"),
    *_of_brokers("3.9.1"),
    *_of_brokers("4.0.1"),
    *_of_brokers("4.4.0"),
    Cell(
        part="Python and Java",
        version="Python 3.13, Java 21",
        shows="source, sink, brokers",
        tests=SOURCE + SINK,
        next_debian=True,
    ),
    Cell(part="Python and Java", version="Java 25", shows="source, brokers", tests=SOURCE, java="25"),
    Cell(part="Python and Java", version="Python 3.12", shows="source, sink", tests=SOURCE + SINK, python="3.12"),
    Cell(
        part="Packages",
        version="no numba",
        shows="the plain engine reads, and the log says so once",
        case="plain",
        without=frozenset({"numba", "llvmlite"}),
    ),
)
