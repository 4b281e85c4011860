"""Cuts that wait in another ledger than the one a start uses. Pure.

A cut range counts as read in Spark's log until its rewind stands there too, one batch later. A start that does not
know the record, because the source was renamed, has no name any more or keeps another ledger, reads on behind the cut.
"""

from collections.abc import Mapping

from discovery.core.model import TopicPartition
from discovery.spark.source.cuts.ledger import LedgerState
from discovery.spark.source.cuts.rules import cut_at


def left_behind(
    offsets: Mapping[TopicPartition, int], ledgers: Mapping[str, LedgerState], *, query: str | None
) -> tuple[str, ...]:
    """Say, in a sentence each, which records would be lost by a start from these offsets.

    Args:
        offsets: Where a batch ends, as Spark's log has it.
        ledgers: Those that the start does not use, by sourceId.
        query: Whose checkpoint it is; None: unknown, and any query's record counts.

    Runs: anywhere (pure).
    """
    return tuple(
        f"{cut_at(record)} by query {record.query or 'unknown'} under sourceId {name}, and a start of it without that "
        f"ledger loses [{record.cut}, {record.end}); start once more with sourceId={name} until the rewind is in the "
        "offset log (one batch), or, knowing that the sink holds them, give them up: "
        f"kafka-discovery checkpoint adopt DIR --source-id {name} --yes"
        for name, state in ledgers.items()
        for tp, record in sorted(state.pending().items())
        if offsets.get(tp) == record.end and (query is None or record.query in {None, query})
    )
