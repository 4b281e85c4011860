"""The command line of an installation without the `spark` extra."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("pyspark", "py4j", "pyarrow", "numba", "llvmlite", "numpy")))
from discovery.cli.app import main
sys.argv = ["kafka-discovery", *sys.argv[1:]]
main()
"""


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("words", [("--help",), ("serve", "--help"), ("jobs", "dau"), ("checkpoint", "--help")])
def test_given_no_spark_extra_when_the_core_is_asked_then_it_answers(words: tuple[str, ...]) -> None:
    answer = ask(*words)

    assert answer.returncode == 0, answer.stderr
    assert answer.stdout


def test_given_no_spark_extra_when_a_demo_is_asked_for_then_one_line_names_the_extra() -> None:
    answer = ask("demo")

    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.rstrip().endswith("pip install 'kafka-discovery[spark]'")
