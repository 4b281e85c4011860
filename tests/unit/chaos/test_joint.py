import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from discovery.config.clock import SystemClock
from discovery.core.errors import StateError
from discovery.spark.source.cuts.ledger import Incarnation
from discovery.spark.source.cuts.ledger_file import FileLedger, read_ledger
from tests.chaos.joint.account import Account
from tests.chaos.joint.clock import Clock, follow
from tests.chaos.joint.faults import MENU
from tests.chaos.joint.rounds import plan_of, section
from tests.chaos.seeds import BrokenPromiseError, damage, flipped


class Message:
    """What a consumer hands over, as far as it is looked at."""

    def __init__(self, value: str) -> None:
        self._value = value

    def value(self) -> bytes:
        return self._value.encode()


def seen(*values: str) -> Account:
    account = Account()
    for value in values:
        account.take(Message(value))
    return account


@pytest.mark.parametrize(("first", "faults"), [(1, MENU[:-2]), (201, MENU)])
def test_given_two_hundred_seeds_when_drawn_then_every_fault_comes_and_none_twice_alike(
    first: int, faults: tuple[str, ...]
) -> None:
    plans = [plan_of(seed) for seed in range(first, first + 200)]
    assert {fault for plan in plans for fault, _ in plan} == set(faults)
    assert {len(plan) for plan in plans} == {2, 3, 4}
    assert len({tuple(plan) for plan in plans}) == 200


def test_given_a_seed_of_the_first_two_hundred_when_drawn_again_then_its_plan_is_the_one_that_was_played() -> None:
    assert [fault for fault, _ in plan_of(12)] == ["recreate a topic", "reassign", "kill brokers"]


def test_given_acknowledged_records_when_one_is_not_visible_then_it_is_owed_and_named() -> None:
    account = seen("a#1")
    account.owe(["a#1", "a#2"])
    assert not account.settled()
    assert account.found() == "1 acknowledged records are not visible: ['a#2']"
    account.take(Message("a#2"))
    assert account.settled()


def test_given_a_record_that_comes_twice_when_checked_then_it_is_named() -> None:
    account = seen("a#1", "a#2")
    account.check_once(account.seen)
    account.take(Message("a#1"))
    with pytest.raises(BrokenPromiseError, match=r"1 records came twice: \['a#1'\]"):
        account.check_once(account.seen)
    account.written["a#1"] = 2
    account.check_once(account.seen)
    account.take(Message("a#1"))
    assert account.twice(account.seen) == ["a#1"], "the sources hold it twice, and it came three times"


def test_given_a_reader_that_goes_on_when_sources_are_counted_then_what_came_meanwhile_waits() -> None:
    account = seen("a#1", "a#1", "a#2")

    def held() -> Counter[str]:
        account.take(Message("a#2"))
        return Counter({"a#1": 2, "a#2": 1})

    account.check_once(account.seen, held)
    with pytest.raises(BrokenPromiseError, match=r"1 records came twice: \['a#2'\]"):
        account.check_once(account.seen, lambda: Counter({"a#1": 2, "a#2": 1}))


def test_given_a_deleted_topic_when_excused_then_what_was_not_seen_may_come_or_not_but_not_twice() -> None:
    account = seen("a#1")
    account.owe(["a#1", "a#2", "b#1"])
    account.excuse(["a#1", "a#2"])
    assert account.due == {"a#1", "b#1"}
    account.take(Message("a#2"))
    account.take(Message("b#1"))
    assert account.settled()
    account.check_known([])
    account.take(Message("a#2"))
    with pytest.raises(BrokenPromiseError, match="twice"):
        account.check_once(account.seen)


def test_given_a_record_nobody_wrote_when_checked_then_it_is_named() -> None:
    account = seen("x#1", "y#1")
    account.check_known(["x#1", "y#1"])
    with pytest.raises(BrokenPromiseError, match=r"no broker acknowledged: \['x#1'\]"):
        account.check_known(["y#1"])


def test_given_state_files_when_damaged_then_each_differs_and_a_ledger_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    files = [tmp_path / "view.json", tmp_path / "below" / "ids.json", tmp_path / "cuts.log"]
    for file in files:
        file.write_bytes(b"x" * 100)
    damage(tmp_path, random.Random(3))
    assert [file.read_bytes() == b"x" * 100 for file in files] == [False, False, True]


def test_given_a_clock_when_it_jumps_then_wall_time_does_and_monotonic_time_goes_on(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    wall, monotonic = time.time(), time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", time.time)
        follow(str(tmp_path / "clock"))
        assert 0 <= SystemClock().wall() - wall < 60
        clock.jump(-3600)
        assert -3600 <= SystemClock().wall() - wall < -3540
        assert 0 <= SystemClock().monotonic() - monotonic < 60
    assert time.time() >= wall


def test_given_an_interpreter_with_a_clock_when_it_jumps_then_what_it_runs_sees_so(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    (tmp_path / "shown.py").write_text("import sys, time; print(sys.argv[1], time.time())")
    python = clock.python(tmp_path / "python")
    clock.jump(3600)
    shown = subprocess.run(
        [python, "shown.py", "it is"], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    assert shown.startswith("it is ")
    assert 3500 < float(shown.split()[-1]) - time.time() < 3700


def test_given_the_lines_of_a_ledger_when_a_byte_is_flipped_then_it_is_refused(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path, "s")
    ledger.open()
    ledger.append([Incarnation(number=1, start={"t": {"0": 5}}, end={"t": {"0": 20}})])
    ledger.close()
    held = ledger.path.read_bytes()
    for seed in range(50):
        ledger.path.write_bytes(flipped(held, random.Random(seed)))
        with pytest.raises(StateError, match="is damaged in line"):
            read_ledger(tmp_path, "s")


def test_given_rounds_when_rendered_then_what_failed_is_not_hidden() -> None:
    held: dict[str, Any] = {
        "seed": 1, "scene": 1, "faults": ["kill brokers"], "broken": "", "ended": [], "progress": 4.0, "records": 90,
    }  # fmt: skip
    broke = {
        **held,
        "seed": 2,
        "broken": "BrokenPromiseError: 3 records came twice",
        "ended": ["a reason"],
        "again": "make chaos",
    }
    text = section({"seeds": [held, broke], "found": "- what was found"})
    assert "**1 of 2 rounds held**" in text
    assert "2 faults in 1 scenes, 90 records read; in rounds that held none lost and none twice" in text
    assert "seed 2: BrokenPromiseError: 3 records came twice" in text
    assert "| kill brokers | 2 | 4.0 s | 4.0 s |" in text
    assert "- what was found" in text
