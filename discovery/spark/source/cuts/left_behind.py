"""Cuts that wait in another ledger than the one a start uses. Pure.

A cut range counts as read in Spark's log until its rewind stands there too, one batch later. A start that does not
know the record, because the source was renamed, has no name any more or keeps another ledger, reads on behind the cut.
"""

from collections.abc import Mapping

from discovery.core.model import TopicPartition
from discovery.spark.source.cuts.ledger import LedgerState
from discovery.spark.source.cuts.rules import Batch, PlannedRange, cut_at


def left_behind(
    offsets: Mapping[TopicPartition, int],
    ledgers: Mapping[str, LedgerState],
    *,
    query: str | None,
    in_kafka: bool = False,
) -> tuple[str, ...]:
    """Say, in a sentence each, which records would be lost by a start from these offsets.

    Args:
        offsets: Where a batch ends, as Spark's log has it.
        ledgers: Those that the start does not use, by sourceId.
        query: Whose checkpoint it is; None: unknown, and any query's record counts.
        in_kafka: They are in a topic, not in files.

    Runs: anywhere (pure).
    """
    kind, option = ("kafka", " --cut-ledger kafka --bootstrap HOST:PORT") if in_kafka else ("file", "")
    return tuple(
        f"{cut_at(record)} by query {record.query or 'unknown'} under sourceId {name} with cutLedger={kind}, and a "
        f"start of it without that ledger loses [{record.cut}, {record.end}); start once more with sourceId={name} and "
        f"cutLedger={kind} until the rewind is in the offset log (one batch), or, knowing that the sink holds them, "
        f"give them up: kafka-discovery checkpoint adopt DIR --source-id {name}{option} --yes"
        for name, state in ledgers.items()
        for tp, record in sorted(state.pending().items())
        if offsets.get(tp) == record.end and (query is None or record.query in {None, query})
    )


def left_behind_by(
    ranges: Mapping[TopicPartition, PlannedRange], ledgers: Mapping[str, LedgerState], batch: Batch
) -> tuple[str, ...]:
    """Say, in a sentence each, what a batch loses that was planned without these ledgers.

    It begins where a cut range of its query ends, or it is the batch that was cut, replayed.

    Runs: anywhere (pure).
    """
    cut = {(tp, r.start, r.end) for state in ledgers.values() for tp, r in state.pending().items()}
    offsets = {tp: r.end if (tp, r.start, r.end) in cut else r.start for tp, r in ranges.items()}
    return tuple(
        f"{sentence}; remove offsets/{batch.number} from the checkpoint first where the cut was in an earlier batch: "
        "it was planned without that ledger, and nothing of it was delivered"
        for sentence in left_behind(offsets, ledgers, query=batch.query)
    )
