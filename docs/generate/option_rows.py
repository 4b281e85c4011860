"""Options as the reference pages of source and sink show them, each with the tests that hold it."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One option as a user reads it."""

    name: str
    default: str
    meaning: str
    tested_by: tuple[str, ...]
    """`file::test` below `tests/`; a unit test checks that they exist."""
    native: str = ""
    """`same`, `new`, or in which way Spark's own differs; empty where nothing is compared."""


def check_rows(rows: Iterable[Row], known: Collection[str]) -> None:
    """Make sure that each option has its row.

    Raises:
        LookupError: the code knows an option that has no row, or the other way round.

    Runs: anywhere (pure).
    """
    if odd := {row.name for row in rows} ^ set(known):
        raise LookupError(f"options and their rows differ: {', '.join(sorted(odd))}")


def tests_table(rows: Iterable[Row]) -> Sequence[str]:
    """Return the end of a page: which test holds which option.

    Runs: anywhere (pure).
    """
    tests = [f"| `{row.name}` | {'<br>'.join(f'`{test}`' for test in row.tested_by)} |" for row in rows]
    return ["## Tested by", "", "| option | tests |", "|---|---|", *tests, ""]
