"""The demo's figures, from recordings made by hand: each must fail when what it measures goes wrong."""

import json
from pathlib import Path

import pytest

from discovery.demo.follow import Batch, Follower
from discovery.demo.load.oracle import Expected
from discovery.demo.report.measure import (
    audit,
    first_batch_after,
    longest_gap_seconds,
    longest_partition_gap_seconds,
    new_partition_seconds,
    percentile,
)
from discovery.demo.stage import lag, rows_per_second


def batch(number: int, finished: float, rows: int = 10, **offsets: int) -> Batch:
    ends = {name.removeprefix("p"): offset for name, offset in offsets.items()}
    return Batch(batch_id=number, finished_wall=finished, rows=rows, end_offsets=ends)


def expected(**users: tuple[int, int]) -> Expected:
    totals = {("2026-01-01", user): total for user, total in users.items()}
    return Expected(users=totals, malformed=frozenset({(0, 5), (1, 7)}))


@pytest.mark.parametrize(("share", "value"), [(0.5, 2.0), (0.99, 4.0), (0.0, 1.0), (1.0, 4.0)])
def test_given_values_when_a_percentile_is_asked_then_it_is_one_of_them(share: float, value: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == value


def test_given_no_values_when_a_percentile_is_asked_then_it_refuses() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_given_partitions_in_batches_when_measured_then_the_first_row_counts_and_a_missing_one_is_none() -> None:
    batches = [batch(0, 10, p0=5, p1=0), batch(1, 12, p0=5, p1=3), batch(2, 14, p0=5, p1=9)]
    assert new_partition_seconds(batches, [1, 2], created_wall=9.5) == {1: 2.5, 2: None}


def test_given_a_gap_around_the_kill_when_measured_then_it_counts_from_the_last_result_before() -> None:
    batches = [batch(0, 10), batch(1, 11), batch(2, 18), batch(3, 19)]
    assert longest_gap_seconds(batches, begin=12, end=19.5) == 7


def test_given_no_result_after_the_kill_when_measured_then_the_gap_reaches_the_end() -> None:
    assert longest_gap_seconds([batch(0, 10)], begin=11, end=31) == 21


def test_given_one_partition_that_stands_still_when_measured_then_its_gap_is_longer_than_the_whole() -> None:
    batches = [batch(i, 10 + i, p0=i + 1, p1=1 if i < 6 else i) for i in range(9)]
    assert longest_gap_seconds(batches, begin=10.5, end=18) == 1
    assert longest_partition_gap_seconds(batches, begin=10.5, end=18) == 6


def test_given_batches_when_the_first_after_a_moment_is_asked_then_earlier_ones_do_not_count() -> None:
    batches = [batch(0, 10), batch(1, 20)]
    assert first_batch_after(batches, 10) == batches[1]
    assert first_batch_after(batches, 20) is None


def test_given_equal_accounts_when_audited_then_they_are_exact() -> None:
    account = expected(a=(3, 30), b=(1, 7))
    assert audit(account, account.users, account.malformed).exact


def test_given_a_lost_and_a_doubled_event_when_audited_then_they_do_not_cancel_out() -> None:
    account = expected(a=(3, 30), b=(2, 7))
    found = audit(account, {("2026-01-01", "a"): (4, 40), ("2026-01-01", "b"): (1, 3)}, account.malformed)
    assert (found.events_counted, found.events_produced) == (5, 5)
    assert (found.duplicates, found.lost) == (1, 1)
    assert not found.exact


def test_given_the_right_number_of_wrong_events_when_audited_then_the_checksum_tells() -> None:
    account = expected(a=(3, 30))
    found = audit(account, {("2026-01-01", "a"): (3, 31)}, account.malformed)
    assert found.checksum_mismatches == 1
    assert not found.exact


@pytest.mark.parametrize("letters", [frozenset({(0, 5)}), frozenset({(0, 5), (1, 7), (2, 2)})])
def test_given_other_dead_letters_when_audited_then_it_is_not_exact(letters: frozenset[tuple[int, int]]) -> None:
    account = expected(a=(3, 30))
    assert not audit(account, account.users, letters).exact


def test_given_a_day_nobody_expected_when_audited_then_its_events_are_duplicates() -> None:
    account = expected(a=(3, 30))
    found = audit(account, {**account.users, ("2026-01-02", "a"): (2, 1)}, account.malformed)
    assert found.duplicates == 2


def test_given_offsets_when_the_lag_is_asked_then_partitions_do_not_make_up_for_each_other() -> None:
    assert lag({"0": 10, "1": 5, "2": 4}, {"0": 4, "1": 9}) == 10


def test_given_batches_when_the_rate_is_asked_then_only_the_last_ten_seconds_count() -> None:
    assert rows_per_second([batch(0, 10, rows=900), batch(1, 99, rows=30), batch(2, 99.5, rows=10)], 100) == 4


@pytest.mark.parametrize("tenths", range(0, 90, 5))
def test_given_batches_of_five_seconds_when_the_rate_is_asked_at_any_moment_then_it_is_what_flows(tenths: int) -> None:
    batches = [batch(number, 5.0 * number, rows=3000) for number in range(1, 9)]
    assert rows_per_second([one for one in batches if one.finished_wall <= 20 + tenths / 10], 20 + tenths / 10) == 600


def progress(number: int, rows: int, ends: dict[str, dict[str, int]] | str) -> str:
    return json.dumps(
        {
            "event": "progress",
            "batchId": number,
            "timestamp": "2026-01-01T00:00:10.500Z",
            "numInputRows": rows,
            "durationMs": {"triggerExecution": 1500},
            "sources": [{"endOffset": ends}],
            "dropped_by_watermark": 0,
        }
    )


def test_given_a_growing_file_when_followed_then_half_a_line_waits_and_empty_batches_do_not_count(
    tmp_path: Path,
) -> None:
    path = tmp_path / "progress.jsonl"
    follower = Follower(path, "t")
    assert follower.read().batches == ()
    line = progress(1, 7, {"t": {"0": 7}})
    path.write_text('{"event": "started"}\n' + progress(0, 0, "{}") + "\n" + line[:20])
    assert follower.read().starts == 1
    assert follower.read().batches == ()
    with path.open("a") as file:
        file.write(line[20:] + "\n" + progress(1, 9, '{"t": {"0": 9}}') + "\n")
    history = follower.read()
    assert [found.rows for found in history.batches] == [7]
    assert history.end_offsets == {"0": 7}
    assert history.batches[0].seconds == 1.5
    assert history.batches[0].finished_wall == pytest.approx(1767225612.0)


def test_given_a_query_that_failed_when_followed_then_its_reason_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text(
        '{"event": "terminated", "exception": "boom\\n at x"}\n{"event": "terminated", "exception": null}\n'
    )
    assert Follower(path, "t").read().failures == ("boom",)


TOO_SLOW = "org.apache.spark.SparkException: Python worker failed to connect back.\n at x"


def test_given_a_start_that_spark_gave_up_before_its_first_batch_when_followed_then_it_is_no_restart_and_no_failure(
    tmp_path: Path,
) -> None:
    path, started = tmp_path / "progress.jsonl", '{"event": "started"}\n'
    ended = json.dumps({"event": "terminated", "exception": TOO_SLOW}) + "\n"
    path.write_text(started + ended + started + progress(0, 7, {"t": {"0": 7}}) + "\n")
    history = Follower(path, "t").read()
    assert (history.starts, history.slow_starts, history.failures) == (1, 1, ())
    path.write_text(started + progress(0, 7, {"t": {"0": 7}}) + "\n" + ended)
    history = Follower(path, "t").read()
    assert (history.starts, history.slow_starts, len(history.failures)) == (1, 0, 1)
    path.write_text(started + ended + started + ended)
    history = Follower(path, "t").read()
    assert (history.starts, history.slow_starts, len(history.failures)) == (1, 1, 1), "the last start was given up"
