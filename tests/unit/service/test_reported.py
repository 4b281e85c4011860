"""Reported lists outlive the process and a job that is down, for days; damage and full disks cost them alone."""

from pathlib import Path

import pytest

from discovery.core.model import BrokerAddress
from discovery.service import reported
from discovery.service.reported import ReportedLists

A, B = BrokerAddress("a", 9092), BrokerAddress("::1", 9092)
DAY = 86_400.0


def opened(path: Path) -> ReportedLists:
    made = ReportedLists()
    made.open(path, wall=DAY)
    return made


def test_given_lists_when_the_service_restarts_then_they_are_known_for_days(tmp_path: Path) -> None:
    first = opened(tmp_path / "lists" / "main.json")
    first.note("dau", [A, B], wall=DAY)
    first.note("visits", [B], wall=2 * DAY)
    first.note("other", [A], wall=2 * DAY)
    first.forget("other")
    first.forget("unknown")
    first.save()
    again = opened(tmp_path / "lists" / "main.json")
    assert not again.are_lost(DAY)
    assert again.lists(3 * DAY) == {"dau": (A, B), "visits": (B,)}
    assert again.lists(8.5 * DAY) == {"visits": (B,)}
    assert again.lists(10 * DAY) == {}


def test_given_another_list_or_none_when_reported_then_the_newest_word_counts(tmp_path: Path) -> None:
    lists = opened(tmp_path / "main.json")
    lists.note("dau", [A], wall=1.0)
    lists.note("dau", [B], wall=2.0)
    assert lists.lists(3.0) == {"dau": (B,)}
    lists.note("dau", [], wall=3.0)
    lists.save()
    assert opened(tmp_path / "main.json").lists(3.0) == {}


def test_given_the_same_list_again_when_reported_then_it_is_saved_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(reported, "write_sparing", lambda _, content, unread: written.append(content))
    lists = opened(tmp_path / "main.json")
    for wall in (1_000.0, 1_002.0, 1_500.0, 1_601.0, 1_700.0):
        lists.note("dau", [A], wall=wall)
        lists.save()
    assert len(written) == 2, "at once, and after ten minutes"


def test_given_more_than_is_kept_when_noted_then_those_of_longest_ago_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reported, "_MOST", 3)
    lists = ReportedLists()
    for number in range(5):
        lists.note(f"c{number}", [A, B], wall=float(number))
    assert list(lists.lists(5.0)) == ["c2", "c3", "c4"]
    monkeypatch.setattr(reported, "_MOST_ADDRESSES", 5)
    lists.note("c2", [A, B, BrokerAddress("c", 1)], wall=6.0)
    assert list(lists.lists(6.0)) == ["c4", "c2"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"lists": {"a": {"servers": "", "wall": 1}}}', b"\xff"])
def test_given_a_damaged_file_when_opened_then_it_counts_as_none_is_replaced_and_remembered_as_lost(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "main.json"
    path.write_bytes(content)
    lists = opened(path)
    assert lists.lists(0.0) == {}
    lists.note("dau", [A], wall=DAY)
    lists.save()
    again = opened(path)
    assert again.lists(DAY) == {"dau": (A,)}
    assert [again.are_lost(days * DAY) for days in (1, 7.9, 8.1)] == [True, True, False]


def asides(path: Path) -> list[Path]:
    return list(path.parent.glob("main.damaged-*"))


def test_given_a_file_that_cannot_be_read_when_lists_are_reported_then_it_is_kept_beside_the_new_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "main.json"
    first = opened(path)
    first.note("down", [B], wall=DAY)
    first.save()
    content = path.read_bytes()
    path.rename(tmp_path / "held")
    path.symlink_to(path)  # nobody can read it, not even the owner of everything
    lists = opened(path)
    path.unlink()
    (tmp_path / "held").rename(path)  # what hindered us is mended
    assert asides(path) == [], "until there is something to write"
    lists.note("dau", [A], wall=DAY)
    lists.save()
    lists.note("dau", [B], wall=DAY)
    lists.save()
    assert opened(path).lists(DAY) == {"dau": (B,)}
    (kept,) = asides(path)
    assert kept.read_bytes() == content


def test_given_an_end_before_the_new_file_was_written_when_opened_then_lists_are_known_to_be_lost(
    tmp_path: Path,
) -> None:
    path = tmp_path / "main.json"
    path.write_bytes(b"{")
    lists = opened(path)
    (tmp_path / ".main.json.tmp").mkdir()
    lists.note("dau", [A], wall=DAY)
    lists.save()  # sets the damaged one aside, and cannot write
    assert path.read_bytes() == b"{", "it stays until another takes its place"
    path.unlink()  # where no file can have two names it is taken away
    assert opened(path).are_lost(DAY)


def test_given_a_folder_that_takes_nothing_when_noted_then_memory_has_it_and_the_next_write_both(
    tmp_path: Path,
) -> None:
    (tmp_path / "lists").write_text("in the way")
    lists = ReportedLists()
    lists.open(tmp_path / "lists" / "main.json", wall=0.0)
    lists.note("dau", [A], wall=1.0)
    lists.save()
    assert lists.lists(1.0) == {"dau": (A,)}
    (tmp_path / "lists").unlink()
    lists.note("visits", [B], wall=2.0)
    lists.save()
    assert opened(tmp_path / "lists" / "main.json").lists(2.0) == {"dau": (A,), "visits": (B,)}
