import json
from functools import partial

import pytest

from benchmarks.peers import charts, section
from benchmarks.peers.cases import CASES
from benchmarks.peers.report import short_table, wins
from benchmarks.peers.reported import java_cause, short, spark_cause
from benchmarks.peers.rows import FOREIGN, Row, longest_gap, measure, parse_rows, timeline
from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.titles import CASE_TITLES, SYSTEM_TITLES
from benchmarks.report import PEERS, PEERS_BEGIN, PEERS_END, PEERS_PAGE, put


def row(partition: int, offset: int, at: float, mark: str = "a") -> Row:
    return Row(partition=partition, offset=offset, mark=mark, at=at)


def steady(partition: int, *spans: tuple[int, int]) -> list[Row]:
    """A row a second in each span of seconds; the offset is the second."""
    return [row(partition, second, float(second)) for begin, end in spans for second in range(begin, end)]


def test_given_lines_when_one_was_cut_short_by_a_kill_then_the_others_count() -> None:
    assert parse_rows(["0 5 a 1500\n", "1 7 f 2500\n", "1 8 a 26"]) == [row(0, 5, 1.5), row(1, 7, 2.5, "f")]


def test_given_a_gap_at_the_end_when_watching_ends_then_it_is_not_over() -> None:
    gap = longest_gap([11.0, 12.0], 10.0, 20.0)
    assert (gap.seconds, gap.over) == (8.0, False)
    assert longest_gap([18.0], 10.0, 20.0).over


def test_given_one_partition_stands_still_when_measured_then_the_gap_of_all_is_short_and_its_own_is_long() -> None:
    written = steady(0, (0, 40)) + steady(1, (0, 40))
    arrived = steady(0, (0, 40)) + steady(1, (0, 10), (25, 40)) + [row(1, s, 25.0) for s in range(10, 25)]
    found = measure(arrived, written, since=10.5, healed_at=10.5, until=35.5, living=(0, 1))
    assert found["gap_seconds"] == 1.0
    assert (found["slowest_seconds"], found["slowest_over"]) == (14.5, True)
    assert found["recovered_seconds"] == 14.5
    assert (found["written_gap_seconds"], found["written_slowest_seconds"]) == (1.0, 1.0)
    assert [found[name] for name in ("lost", "unread", "repeated", "foreign")] == [0, 0, 0, 0]


def test_given_a_partition_that_never_returns_when_measured_then_it_did_not_recover_and_its_rows_are_unread() -> None:
    written = steady(0, (0, 40)) + steady(1, (0, 40))
    found = measure(
        steady(0, (0, 40)) + steady(1, (0, 10)), written, since=10.5, healed_at=10.5, until=35.5, living=(0, 1)
    )
    assert found["recovered_seconds"] is None
    assert (found["slowest_seconds"], found["slowest_over"]) == (25.0, False)
    assert (found["lost"], found["unread"]) == (0, 30)
    assert measure(steady(0, (0, 40)), written, since=10.5, healed_at=10.5, until=35.5, living=(0,))["slowest_over"]


def test_given_skipped_repeated_and_foreign_rows_when_measured_then_each_is_counted_as_what_it_is() -> None:
    written = [*steady(0, (0, 20)), row(0, 0, 21.0, "b")]
    arrived = [*steady(0, (0, 5), (7, 20)), row(0, 3, 20.5), row(0, 4, 20.5), row(0, 99, 20.6, FOREIGN)]
    found = measure(arrived, written, since=1.0, healed_at=1.0, until=21.0, living=(0,))
    assert [found[name] for name in ("lost", "unread", "repeated", "foreign")] == [2, 1, 2, 1]
    assert found["rows"] == 18


def test_given_rows_that_come_twice_when_drawn_then_each_counts_once_at_its_first_arrival() -> None:
    arrived = [row(0, 1, 10.1), row(0, 1, 12.0), row(0, 2, 10.3), row(0, 3, 11.9), row(0, 4, 99.0)]
    assert timeline(arrived, since=11.0, start=-1.0, end=1.0) == [2, 0, 0, 1, 0][:4]


@pytest.mark.parametrize(
    ("died", "shown"),
    [
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Timeout of 60000ms expired // x",
            "Timeout of 60000ms expired",
        ),
        (
            "[PYTHON_X] Failed: Traceback (most recent call): //  File y // a.b.LossError: t was recreated // at org.X",
            "a.b.LossError: t was recreated",
        ),
        (
            "[X] failed: Traceback (most): // py4j.protocol.Py4JJavaError: called // : org.S: x // Caused by: a: b",
            "a: b",
        ),
        ("", "nothing"),
    ],
)
def test_given_what_a_query_died_of_when_rendered_then_it_is_the_line_that_says_why(died: str, shown: str) -> None:
    assert spark_cause(died) == shown


def test_given_a_java_trace_when_rendered_then_it_is_the_innermost_cause() -> None:
    trace = "org.X: outer\n\tat org.Y\nCaused by: org.Z: names the reason\n\tat org.Q\n\t... 3 more\n"
    assert java_cause(trace) == "org.Z: names the reason"
    assert len(short("x" * 999)) == 300


def test_given_all_cases_when_named_then_each_has_its_words_and_every_system_too() -> None:
    assert list(CASES) == list(CASE_TITLES)
    assert list(SYSTEMS) == ["native", "flink", "flink_dynamic", "ours", "sidecar", "endpoint"]
    assert set(SYSTEMS) == set(SYSTEM_TITLES)


@pytest.mark.parametrize("name", list(CASES))
def test_given_a_case_when_its_topic_is_placed_then_every_partition_has_its_copies_on_brokers_of_their_own(
    name: str,
) -> None:
    placement = CASES[name].placement()
    assert len({replicas[0] for replicas in placement}) == len(placement)
    assert all(len(set(replicas)) == CASES[name].copies for replicas in placement)
    assert {broker for replicas in placement for broker in replicas} <= set(range(1, CASES[name].brokers + 1))


def test_given_rf1_when_two_are_killed_then_just_their_partitions_are_not_counted_as_living() -> None:
    placement = CASES["leaders"].placement()
    struck = CASES["leaders"].strike
    assert isinstance(struck, partial)
    killed, living = struck.args[0], struck.keywords["living"]
    assert [p for p, replicas in enumerate(placement) if not set(replicas) & set(killed)] == list(living)


def cell(**changed: object) -> dict[str, object]:
    return {
        "usual_seconds": 0.4, "gap_seconds": 2.0, "gap_over": True, "slowest_seconds": 7.0, "slowest_over": True,
        "recovered_seconds": 7.0, "written_gap_seconds": 1.0, "written_slowest_seconds": 6.0,
        "restarts": 0, "lost": 0, "unread": 0, "repeated": 0, "foreign": 0, "watched_seconds": 30.0,
        "healed_seconds": 0.0, "load_average": [1.0, 2.0], "reported": "nothing",
        "line": {"start": -5.0, "step": 0.5, "rows": [3, 0, 4]}, **changed,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("theirs", "better"),
    [
        ({"gap_seconds": 1.0}, {"gap_seconds"}),
        ({"gap_seconds": 1.8}, set()),
        ({"gap_seconds": 1.0, "lost": 3}, set()),
        ({"gap_seconds": 1.0, "foreign": 3}, set()),
        ({"recovered_seconds": None, "restarts": 2}, set()),
    ],
)
def test_given_a_peer_when_it_does_better_then_just_that_figure_is_marked(
    theirs: dict[str, object], better: set[str]
) -> None:
    result = {"cells": {"killed": {"flink": cell(**theirs), "ours": cell()}}}
    assert {name for _, _, name in wins(result)} == better
    assert short_table(result).count("★") == len(better & {"gap_seconds", "recovered_seconds"})


def test_given_we_never_recover_and_a_peer_does_when_rendered_then_the_peer_wins() -> None:
    result = {"cells": {"killed": {"flink": cell(), "ours": cell(recovered_seconds=None, restarts=4)}}}
    assert ("killed", "flink", "recovered_seconds") in wins(result)
    assert "not in 30 s; 4 restarts" in short_table(result)


def test_given_text_with_marks_when_put_then_only_what_stands_between_them_changes() -> None:
    assert put("a <x> old </x> b <x> c", "<x>", "</x>", "new") == "a <x>\n\nnew\n\n</x> b <x> c"


def test_given_the_kept_cells_when_the_page_of_peers_is_made_then_its_table_is_the_committed_one() -> None:
    result = json.loads(PEERS.read_text())
    shown = PEERS_PAGE.read_text().split(PEERS_BEGIN)[1].split(PEERS_END)[0].strip()
    assert shown == short_table(result)
    for name, drawn in charts(result).items():
        assert (PEERS.parent / name).read_text() == drawn


def test_given_the_kept_cells_when_rendered_then_no_unknown_case_or_system_is_left_out() -> None:
    result = json.loads(PEERS.read_text())
    assert set(result["cells"]) <= set(CASE_TITLES)
    for name, cells in result["cells"].items():
        assert set(cells) <= set(SYSTEM_TITLES), name
    assert all(CASE_TITLES[name][1:] in section(result) for name in result["cells"])
