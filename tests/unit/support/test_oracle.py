"""A load whose client learns of a record from the answer to a later request knows no offset of it."""

from typing import Any
from unittest.mock import Mock

import pytest

from tests.support.spark.oracle import Load, Row


def acknowledged(offset: int | None, value: str) -> Any:
    """Return the client's report on one record."""
    said = {"topic": "t", "partition": 0, "offset": offset, "value": value.encode()}
    return Mock(**{f"{name}.return_value": answer for name, answer in said.items()})


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    load = Load("127.0.0.1:1", "t", [0])
    load._note(None, acknowledged(None, "x#1"))
    load._note(None, acknowledged(8, "x#2"))
    monkeypatch.setattr(load, "_thread", Mock())
    return load


def test_given_an_acknowledgement_without_an_offset_when_stopped_then_the_log_says_where_it_first_stands(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [Row("t", 0, at, value) for at, value in ((6, "x#0"), (7, "x#1"), (8, "x#2"), (9, "x#1"))]
    monkeypatch.setattr(load, "_log", lambda _: held)
    assert load.acknowledged == [held[2]]
    load.stop()
    assert load.lacking(held[1:2]) == [held[2]]
    assert load.lacking(held) == []


def test_given_an_acknowledgement_without_an_offset_when_it_stands_nowhere_then_it_was_lost(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_log", lambda _: [])
    with pytest.raises(AssertionError, match="1 records were acknowledged and stand nowhere, such as"):
        load.stop()
