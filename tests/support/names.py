"""The names of all tests there are, for documents that point to them."""

import re
from functools import cache
from pathlib import Path

_TESTS = Path(__file__).parents[1]
_TEST = re.compile(r"^def (test_\w+)\(", re.MULTILINE)


@cache
def existing_tests() -> frozenset[str]:
    """Return `unit/test_x.py::test_given_...` for every test function, and for those that a target of its own runs."""
    return frozenset(
        f"{path.relative_to(_TESTS).as_posix()}::{name}"
        for path in _TESTS.rglob("*.py")
        for name in _TEST.findall(path.read_text())
    )
