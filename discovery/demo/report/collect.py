"""Turns what was recorded into figures, once the demo is over."""

import os
from collections.abc import Sequence

from discovery.demo.load.oracle import load_expected
from discovery.demo.output import read_days, read_dead_letters, read_users
from discovery.demo.recording import BrokerState, Moment, Recording
from discovery.demo.report.measure import (
    Audit,
    audit,
    first_batch_after,
    longest_gap_seconds,
    longest_partition_gap_seconds,
    new_partition_seconds,
    percentile,
)
from discovery.demo.report.outcome import Figures
from discovery.demo.scenario import Scenario
from discovery.demo.stage import Stage, TopicRun


def collect(
    stage: Stage, scenario: Scenario, recording: Recording, *, demo_seconds: float, download_seconds: float
) -> Figures:
    """Measure everything the scenario came to.

    Runs: main thread, after the processes have ended; reads files.
    """
    settings, main = stage.settings, stage.main
    history, batches = main.history(), main.history().batches
    fresh = _new_partitions(stage, scenario)
    seen = [seconds for seconds in fresh.values() if seconds is not None]
    complete = bool(fresh) and len(seen) == len(fresh)
    restarted = scenario.restarted_wall
    return Figures(
        brokers=settings.brokers,
        audit=_audit(main) if scenario.drained else None,
        single_audit=_audit(stage.single) if scenario.single_complete_wall else None,
        daily_users=read_days(main.database) if main.database.exists() else (),
        query_restarts=max(0, history.starts - main.job_runs) + len(history.failures),
        slow_starts=history.slow_starts,
        query_failures=history.failures,
        records_failed=main.produced().failed + stage.single.produced().failed,
        dropped_by_watermark=max((batch.dropped_by_watermark for batch in batches), default=0),
        brokers_killed=max((sample.count(BrokerState.DEAD) for sample in recording.samples), default=0),
        brokers_doomed=settings.per_rack,
        partitions_before=settings.partitions,
        partitions_after=settings.grown_partitions,
        first_start_seconds=_until_first_row(main, scenario.job_started_wall),
        new_partition_seconds=fresh,
        new_partition_seconds_p50=percentile(seen, 0.5) if complete else None,
        new_partition_seconds_p99=percentile(seen, 0.99) if complete else None,
        kill_gap_seconds=_gap(stage, recording, Moment.KILLED, Moment.FROZEN),
        kill_gap_partition_seconds=_gap(stage, recording, Moment.KILLED, Moment.FROZEN, per_partition=True),
        freeze_gap_seconds=_gap(stage, recording, Moment.FROZEN, Moment.STOPPED),
        dead_list_restart_seconds=_until_first_row(main, restarted),
        single_partitions=settings.brokers,
        single_leaderless=scenario.leaderless(),
        single_named=scenario.single_named,
        single_flowing_seconds=_between(scenario.single_started_wall, scenario.single_flowing_wall),
        single_returned_seconds=_between(scenario.returned_wall, scenario.single_complete_wall),
        batch_seconds_p50=percentile([batch.seconds for batch in batches], 0.5) if batches else None,
        cores=os.cpu_count() or 1,
        load_average=os.getloadavg()[1],
        demo_seconds=demo_seconds,
        download_seconds=download_seconds,
    )


def _audit(run: TopicRun) -> Audit | None:
    if not run.expected.exists() or not run.database.exists():
        return None
    return audit(load_expected(run.expected), read_users(run.database), read_dead_letters(run.database))


def _new_partitions(stage: Stage, scenario: Scenario) -> dict[int, float | None]:
    if scenario.created_wall is None:
        return {}
    fresh: Sequence[int] = range(stage.settings.partitions, stage.settings.grown_partitions)
    return new_partition_seconds(stage.main.history().batches, fresh, created_wall=scenario.created_wall)


def _gap(
    stage: Stage, recording: Recording, begin: Moment, end: Moment, *, per_partition: bool = False
) -> float | None:
    begin_wall, end_wall = recording.wall_of(begin), recording.wall_of(end)
    if begin_wall is None or end_wall is None:
        return None
    measure = longest_partition_gap_seconds if per_partition else longest_gap_seconds
    return measure(stage.main.history().batches, begin=begin_wall, end=end_wall)


def _until_first_row(run: TopicRun, began: float | None) -> float | None:
    if began is None:
        return None
    first = first_batch_after(run.history().batches, began)
    return None if first is None else first.finished_wall - began


def _between(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else end - begin
