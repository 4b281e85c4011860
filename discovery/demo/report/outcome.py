"""What came of a demo: figures, goals, and the sentences that say it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from discovery.core.plural import counted
from discovery.demo.report.measure import Audit

NEW_PARTITION_LIMIT_SECONDS = 5.0
"""2.5 times the usual 2 s of two cores that run twelve brokers, the load and a stateful job with batches of a second.

The source alone needs less: `make bench-core`.
"""
BROKER_SESSION_SECONDS = 6.0
KILL_GAP_LIMIT_SECONDS = BROKER_SESSION_SECONDS + 2.0
DEAD_LIST_EXTRA_LIMIT_SECONDS = 5.0
"""How much longer a start on a dead list may take than the first start with all brokers alive."""
FIRST_START_LIMIT_SECONDS = 25.0
DEAD_LIST_LIMIT_SECONDS = 15.0
"""From the job's process to its first finished batch, both, on two cores that have nothing else to do."""
BATCH_LIMIT_SECONDS = 1.0
DEMO_LIMIT_SECONDS = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Everything measured; None: the demo did not come that far."""

    brokers: int
    audit: Audit | None = None
    single_audit: Audit | None = None
    daily_users: Sequence[tuple[str, int, int]] = ()
    """(day, users, events) as the job counted them."""
    query_restarts: int = 0
    """Besides the deliberate one."""
    slow_starts: int = 0
    """How often Spark gave a start up before its first batch, and the job started again."""
    query_failures: tuple[str, ...] = ()
    records_failed: int = 0
    """Records the generator could not deliver."""
    dropped_by_watermark: int = 0
    brokers_killed: int = 0
    brokers_doomed: int = 0
    partitions_before: int = 0
    partitions_after: int = 0
    first_start_seconds: float | None = None
    new_partition_seconds: dict[int, float | None] = field(default_factory=dict)
    new_partition_seconds_p50: float | None = None
    new_partition_seconds_p99: float | None = None
    kill_gap_seconds: float | None = None
    kill_gap_partition_seconds: float | None = None
    freeze_gap_seconds: float | None = None
    batch_seconds_p50: float | None = None
    """Half of the main job's micro-batches took no longer."""
    dead_list_restart_seconds: float | None = None
    single_partitions: int = 0
    single_leaderless: tuple[int, ...] = ()
    """Partitions of the one-replica topic whose only broker was dead."""
    single_named: tuple[int, ...] = ()
    """Partitions the query named as parked."""
    single_flowing_seconds: float | None = None
    """Process start until all records of the partitions that live were counted."""
    single_returned_seconds: float | None = None
    """The dead brokers' return until the parked records were counted too."""
    cores: int = 1
    load_average: float = 0.0
    """Processes that ran or waited for a processor, over the last five minutes: how crowded the machine was."""
    demo_seconds: float = 0.0
    download_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One promise, what was measured, and whether it was kept."""

    name: str
    promise: str
    measured: str
    met: bool
    timed: bool = False
    """It is about seconds, which a busy machine may miss; all others are about what is right."""


def goals(figures: Figures) -> tuple[Goal, ...]:
    """Hold the figures against what the project promises."""
    return (
        *_exactness("", "", figures.audit),
        *_steadiness(figures),
        *_speed(figures),
        *_single_replica(figures),
        *_exactness("single_", "one-replica topic: ", figures.single_audit),
    )


def _steadiness(figures: Figures) -> tuple[Goal, ...]:
    restarts, failed, killed = figures.query_restarts, figures.records_failed, figures.brokers_killed
    slow = f" ({counted(figures.slow_starts, 'slow start')} before a first batch)" if figures.slow_starts else ""
    return (
        _goal("query_restarts", "the query never restarts by itself", f"{restarts}{slow}", restarts == 0),
        _goal("records_failed", "Kafka took every record", failed, failed == 0),
        _goal(
            "brokers_killed",
            f"{figures.brokers_doomed} brokers die at once",
            killed,
            killed == figures.brokers_doomed > 0,
        ),
    )


def _speed(figures: Figures) -> tuple[Goal, ...]:
    restart = figures.dead_list_restart_seconds
    restart_limit = (figures.first_start_seconds or 0.0) + DEAD_LIST_EXTRA_LIMIT_SECONDS
    return (
        _limit(
            "first_start_seconds",
            "the job's first result is there within",
            figures.first_start_seconds,
            FIRST_START_LIMIT_SECONDS,
        ),
        _limit("demo_seconds", "the whole demo takes at most", figures.demo_seconds, DEMO_LIMIT_SECONDS),
        _limit("batch_seconds_p50", "half of the batches take at most", figures.batch_seconds_p50, BATCH_LIMIT_SECONDS),
        _limit(
            "new_partition_seconds_p99",
            "a new partition is read within",
            figures.new_partition_seconds_p99,
            NEW_PARTITION_LIMIT_SECONDS,
        ),
        _limit(
            "kill_gap_seconds",
            "after the kill no pause is longer than",
            figures.kill_gap_seconds,
            KILL_GAP_LIMIT_SECONDS,
        ),
        _limit("dead_list_start_seconds", "the start on a dead list is done within", restart, DEAD_LIST_LIMIT_SECONDS),
        _limit(
            "dead_list_restart_seconds",
            f"it takes at most {DEAD_LIST_EXTRA_LIMIT_SECONDS:.0f} s more than the first start, that is",
            restart,
            restart_limit,
        ),
    )


def _single_replica(figures: Figures) -> tuple[Goal, ...]:
    return (
        _goal(
            "single_parked",
            "partitions without a living broker are named, and no others",
            f"{list(figures.single_named)} named, {list(figures.single_leaderless)} without a broker",
            bool(figures.single_leaderless) and figures.single_named == figures.single_leaderless,
        ),
        _goal(
            "single_flowing",
            "the other partitions are read meanwhile",
            _seconds(figures.single_flowing_seconds),
            figures.single_flowing_seconds is not None,
        ),
    )


def _exactness(prefix: str, title: str, audit: Audit | None) -> tuple[Goal, ...]:
    if audit is None:
        return (_goal(f"{prefix}events_counted", f"{title}every event is counted", "not measured", met=False),)
    return (
        _goal(
            f"{prefix}events_counted",
            f"{title}every event is counted",
            f"{audit.events_counted} of {audit.events_produced}",
            audit.events_counted == audit.events_produced > 0,
        ),
        _goal(f"{prefix}duplicates", f"{title}none is counted twice", audit.duplicates, audit.duplicates == 0),
        _goal(f"{prefix}lost", f"{title}none is lost", audit.lost, audit.lost == 0),
        _goal(
            f"{prefix}checksum_mismatches",
            f"{title}each user has the right events",
            audit.checksum_mismatches,
            audit.checksum_mismatches == 0,
        ),
        _goal(
            f"{prefix}dead_letters",
            f"{title}every malformed record is a dead letter, and no other",
            f"{audit.dead_letters_found} of {audit.dead_letters_expected}, {audit.dead_letters_unexpected} others",
            audit.dead_letters_found == audit.dead_letters_expected and not audit.dead_letters_unexpected,
        ),
    )


def _goal(name: str, promise: str, measured: object, met: bool) -> Goal:  # noqa: FBT001 - the last word of a goal
    return Goal(name=name, promise=promise, measured=str(measured), met=met)


def _limit(name: str, promise: str, value: float | None, limit: float) -> Goal:
    met, reached = value is not None and value <= limit, value is not None
    return Goal(name=name, promise=f"{promise} {limit:.1f} s", measured=_seconds(value), met=met, timed=reached)


def _seconds(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.2f} s"
