"""Events outlive the process: numbers only grow, and damage costs the damaged lines alone."""

import errno
import resource
from pathlib import Path

import pytest

from discovery.core.diff import Event, EventKind
from discovery.service.events import Timeline


def event(text: str) -> Event:
    return Event(EventKind.BROKER_REMOVED, "9", text)


def opened(path: Path, limit: int = 10, *, wall: float = 0.0) -> Timeline:
    made = Timeline(limit)
    made.open(path, wall=wall)
    return made


def sentences(timeline: Timeline) -> list[str]:
    return [happening.event.sentence for happening in timeline.since(0, limit=1_000)]


def test_given_events_when_the_service_restarts_then_they_are_shown_and_numbers_go_on(tmp_path: Path) -> None:
    path = tmp_path / "events" / "main.json"
    first = opened(path)
    first.add([event("a"), event("b")], wall=3.0)
    second = opened(path)
    assert [h.document() for h in second.since(0, limit=9)] == [h.document() for h in first.since(0, limit=9)]
    second.add([event("c")], wall=4.0)
    assert [(h.number, h.wall, h.event.sentence) for h in opened(path).since(1, limit=9)] == [
        (2, 3.0, "b"), (3, 4.0, "c"),
    ]  # fmt: skip


def test_given_more_events_than_are_kept_when_added_then_the_file_stays_small(tmp_path: Path) -> None:
    timeline = opened(tmp_path / "e", limit=10)
    for number in range(95):
        timeline.add([event(str(number))], wall=0.0)
    assert len((tmp_path / "e").read_bytes().splitlines()) <= 20
    assert sentences(opened(tmp_path / "e")) == [str(number) for number in range(85, 95)]


@pytest.mark.parametrize("left", [None, b"", b"first line", b"{", b"\xff\n"])
def test_given_a_file_that_lost_events_when_opened_then_a_reader_of_the_last_number_misses_none(
    tmp_path: Path, left: bytes | None
) -> None:
    path = tmp_path / "e"
    first = opened(path, wall=1_000.0)
    first.add([event(str(number)) for number in range(5)], wall=1_000.0)
    (*_, last) = first.since(0, limit=9)
    if left is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0] if left == b"first line" else left)
    again = opened(path, wall=1_001.0)
    again.add([event("new")], wall=1_001.0)
    assert [one.event.sentence for one in again.since(last.number, limit=9)] == ["new"]


def test_given_a_clock_that_went_back_when_opened_then_numbers_go_on_from_those_that_are_kept(tmp_path: Path) -> None:
    opened(tmp_path / "e", wall=1_000.0).add([event("a")], wall=1_000.0)
    again = opened(tmp_path / "e", wall=10.0)
    again.add([event("b")], wall=10.0)
    first, second = again.since(0, limit=9)
    assert second.number == first.number + 1


@pytest.mark.parametrize("cut", range(2, 80, 7))
def test_given_a_file_cut_at_any_byte_when_opened_then_what_is_whole_is_shown_and_new_events_are_kept(
    tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "e"
    opened(path).add([event("a"), event("b")], wall=0.0)
    path.write_bytes(path.read_bytes()[:-cut])
    again = opened(path)
    again.add([event("c")], wall=0.0)
    assert sentences(opened(path)) == ["a", "c"]


def test_given_a_disk_that_takes_nothing_when_added_then_events_are_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    timeline = opened(tmp_path / "file" / "e")
    timeline.add([event("a")], wall=0.0)
    assert sentences(timeline) == ["a"]


def test_given_a_file_that_could_not_be_read_when_it_is_replaced_then_it_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e"
    opened(path).add([event("old")], wall=0.0)
    before = path.read_bytes()
    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", unreadable)
        again = opened(path, limit=2)
    for number in range(5):
        again.add([event(str(number))], wall=0.0)
    (kept,) = tmp_path.glob("*.damaged-*")
    assert kept.read_bytes().startswith(before)
    assert sentences(opened(path))[-2:] == ["3", "4"]


def unreadable(path: Path) -> bytes:
    raise OSError(errno.EIO, "Input/output error", str(path))


def test_given_a_disk_that_takes_half_a_line_when_the_next_is_added_then_both_are_there_after_a_restart(
    tmp_path: Path,
) -> None:
    path = tmp_path / "e"
    timeline = opened(path)
    timeline.add([event("a")], wall=0.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 9, hard))
    try:
        timeline.add([event("b")], wall=0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not path.read_bytes().endswith(b"\n"), "the line is torn"
    timeline.add([event("c")], wall=0.0)
    timeline.add([event("d")], wall=0.0)
    assert sentences(opened(path)) == ["a", "b", "c", "d"]
