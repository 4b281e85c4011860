"""Whose id a reader may take over: a process that has ended here, or one that was silent for long."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from discovery.feed.identity import instance_name, is_surely_dead
from discovery.service.consumers import ConflictError, Consumer, Registry

NAME = "from discovery.feed.identity import instance_name; print(instance_name(), flush=True); input()"


def test_given_a_process_of_this_host_when_it_ends_then_its_name_says_so_and_not_before() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", NAME], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout is not None
        name = one.stdout.readline().strip()
        assert not is_surely_dead(name)
        one.kill()
        deadline = time.monotonic() + 30
        while not is_surely_dead(name):  # nobody has asked for its exit code yet: it is a zombie
            assert time.monotonic() < deadline
    assert is_surely_dead(name)


@pytest.mark.parametrize("change", [0, 1])
def test_given_a_name_of_another_host_or_namespace_when_judged_then_nothing_is_sure(change: int) -> None:
    parts = instance_name().rsplit("-", 4)
    parts[change], parts[2] = "another", "999999999"
    assert not is_surely_dead("-".join(parts))
    for strange in ("", "host-1", "a-b-c-d-e"):
        assert not is_surely_dead(strange)


def test_given_a_process_id_used_again_when_judged_then_the_first_owner_is_dead() -> None:
    host, place, pid, _, chance = instance_name().rsplit("-", 4)
    assert is_surely_dead(f"{host}-{place}-{pid}-1-{chance}")


def test_given_no_proc_when_named_then_nobody_is_called_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(path: Path) -> Path:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "readlink", nowhere)
    host, place, _, started, chance = instance_name().rsplit("-", 4)
    assert not is_surely_dead(f"{host}-{place}-999999999-{started}-{chance}")


def consumer(instance: str, at: float, *, replaces: str = "") -> Consumer:
    return Consumer(
        id="q",
        instance=instance,
        cluster="c",
        kind="spark",
        acked_generation=0,
        heard_at=at,
        replaces=replaces,
    )


def test_given_an_id_in_use_when_another_reports_then_it_is_refused_until_the_holder_is_silent_or_named_dead() -> None:
    registry = Registry(silence_seconds=30)
    registry.put(consumer("one", 0.0))
    with pytest.raises(ConflictError, match="in use by 'one', heard 10 s ago"):
        registry.put(consumer("two", 10.0))
    with pytest.raises(ConflictError):
        registry.put(consumer("two", 10.0, replaces="three"))
    registry.put(consumer("two", 10.0, replaces="one"))
    with pytest.raises(ConflictError, match="in use by 'two'"):
        registry.put(consumer("one", 11.0))
    registry.put(consumer("three", 20.1))
    registry.drop("q", "two")
    assert [one.instance for one in registry.all(20.2)] == ["three"]
    registry.drop("q", "three")
    assert registry.all(20.2) == []
