"""The ledger file on a disk that refuses in the middle of a change."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from discovery.core.errors import StateError
from discovery.spark.source.cuts.ledger import Incarnation, LedgerState
from discovery.spark.source.cuts.ledger_file import FileLedger

FIRST, SECOND = Incarnation(number=1), Incarnation(number=2)


@contextmanager
def refused_folders() -> Iterator[None]:
    """Sync files but no folders: what was renamed is in its place, and an error comes all the same."""
    sync = os.fsync

    def refuse(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").resolve().is_dir():
            raise OSError(errno.EIO, "input/output error")
        sync(handle)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        yield


def held_then(tmp_path: Path, ledger: FileLedger) -> LedgerState:
    ledger.close()
    return FileLedger(tmp_path, "s").open()


def test_given_a_folder_that_cannot_be_synced_when_made_shorter_then_later_entries_are_kept(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path, "s")
    ledger.open()
    ledger.append([FIRST])
    state = LedgerState(incarnation=FIRST)
    with refused_folders(), pytest.raises(StateError, match="input/output error"):
        ledger.forget(state, state)
    ledger.append([SECOND])
    assert held_then(tmp_path, ledger).incarnation == SECOND


def test_given_a_folder_that_cannot_be_synced_when_begun_then_the_next_append_begins_it(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path, "s")
    ledger.open()
    with refused_folders(), pytest.raises(StateError, match="input/output error"):
        ledger.append([FIRST])
    ledger.append([SECOND])
    assert held_then(tmp_path, ledger).incarnation == SECOND
