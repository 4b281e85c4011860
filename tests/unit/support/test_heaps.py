import subprocess
import sys
from pathlib import Path

from tests.chaos.joint.clock import Clock
from tests.support.heaps import armed, python_heap

_GROWS = (
    "import sys; kept = []; print(flush=True)\nfor _ in sys.stdin: kept += [[] for _ in range(9000)]; print(flush=True)"
)


def _started(python: str = sys.executable) -> "subprocess.Popen[str]":
    command = [python, "-c", _GROWS]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_given_a_process_that_keeps_more_when_asked_then_its_heap_says_so_and_of_what(tmp_path: Path) -> None:
    with armed(tmp_path), _started() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = python_heap([process.pid], tmp_path)
        print(file=process.stdin, flush=True)
        process.stdout.readline()
        after = python_heap([process.pid], tmp_path)
        process.stdin.close()
    assert after.blocks - before.blocks > 8000
    assert after.types["builtins.list"] - before.types["builtins.list"] > 8000
    assert after.native_mib > 0


def test_given_a_process_that_cannot_answer_when_asked_then_it_lives_and_is_counted_as_silent(tmp_path: Path) -> None:
    with _started() as process:
        assert process.stdin is not None
        found = python_heap([process.pid], tmp_path)
        assert (found.blocks, found.silent) == (0, 1)
        assert process.poll() is None
        process.stdin.close()
    found = python_heap([process.pid], tmp_path)
    assert (found.blocks, found.silent) == (0, 0)


def test_given_a_python_with_the_clock_of_a_scene_when_asked_then_it_answers(tmp_path: Path) -> None:
    python = Clock(tmp_path / "clock").python(tmp_path / "python")
    with armed(tmp_path), _started(str(python)) as process:
        assert process.stdin is not None
        assert python_heap([process.pid], tmp_path).blocks > 0
        process.stdin.close()
