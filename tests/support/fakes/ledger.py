"""A ledger whose disk a test fills."""

from collections.abc import Sequence

from discovery.core.errors import LedgerFencedError, StateError
from discovery.spark.source.cuts.ledger import Entry
from discovery.spark.source.cuts.ledger_file import FileLedger


class FullDisk(FileLedger):
    """A ledger whose disk is full on demand."""

    full = False
    taken = False

    def append(self, entries: Sequence[Entry]) -> None:
        if self.taken:
            raise LedgerFencedError("in use")
        if self.full:
            raise StateError("no space left")
        super().append(entries)
