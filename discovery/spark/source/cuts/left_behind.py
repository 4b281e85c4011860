"""Cuts that wait in another ledger than the one a start uses. Pure.

A cut range counts as read in Spark's log until its rewind stands there too, one batch later. A start that does not
know the record, because the source was renamed, has no name any more or keeps another ledger, reads on behind the cut.
"""

from collections.abc import Mapping

from discovery.core.model import TopicPartition
from discovery.spark.source.cuts.ledger import LedgerState, Where
from discovery.spark.source.cuts.rules import Batch, PlannedRange, cut_at

LeftBehind = Mapping[str | None, str]
"""What a start would lose, by the id of the query whose checkpoint it goes on from; None: any query's."""
_KIND = {False: "file", True: "kafka"}
_PLACE = {False: "", True: " --cut-ledger kafka --bootstrap HOST:PORT"}


def left_behind(
    offsets: Mapping[TopicPartition, int],
    ledgers: Mapping[Where, LedgerState],
    *,
    query: str | None,
) -> tuple[str, ...]:
    """Say, in a sentence each, which records would be lost by a start from these offsets.

    Args:
        offsets: Where a batch ends, as Spark's log has it.
        ledgers: Those that the start does not use.
        query: Whose checkpoint it is; None: unknown, and any query's record counts.

    Runs: anywhere (pure).
    """
    return tuple(
        f"{cut_at(record)} by query {record.query or 'unknown'} under sourceId {where.source_id}, and a start of it "
        f"without that ledger loses [{record.cut}, {record.end}); start once more with sourceId={where.source_id} and "
        f"cutLedger={_KIND[where.in_kafka]} until the rewind is in the offset log (one batch), or, knowing that the "
        "sink holds them, give them up: "
        f"kafka-discovery checkpoint adopt DIR --source-id {where.source_id}{_PLACE[where.in_kafka]} --yes"
        for where, state in ledgers.items()
        for tp, record in sorted(state.pending().items())
        if offsets.get(tp) == record.end and (query is None or record.query in {None, query})
    )


def left_behind_of(offsets: Mapping[TopicPartition, int], ledgers: Mapping[Where, LedgerState]) -> LeftBehind:
    """Say the same by the query that would lose records, for its workers to refuse: see `left_behind`.

    Runs: anywhere (pure).
    """
    queries = {record.query for state in ledgers.values() for record in state.pending().values()}
    found = {query: left_behind(offsets, ledgers, query=query or "") for query in queries}
    return {query: sentences[0] for query, sentences in found.items() if sentences}


def left_behind_by(
    ranges: Mapping[TopicPartition, PlannedRange], ledgers: Mapping[Where, LedgerState], batch: Batch
) -> tuple[str, ...]:
    """Say, in a sentence each, what a batch loses that was planned without these ledgers.

    It begins where a cut range of its query ends, or it is the batch that was cut, replayed.

    Runs: anywhere (pure).
    """
    cut = {(tp, r.start, r.end) for state in ledgers.values() for tp, r in state.pending().items()}
    offsets = {tp: r.end if (tp, r.start, r.end) in cut else r.start for tp, r in ranges.items()}
    unknown = any(record.query is None for state in ledgers.values() for record in state.pending().values())
    sentences = left_behind(offsets, ledgers, query=batch.query)
    return tuple(planned_without(sentence, batch.number, is_known=not unknown) for sentence in sentences)


def planned_without(sentence: str, batch: int, *, is_known: bool) -> str:
    """Say what to do about a batch that Spark's log holds and that was planned without a ledger.

    Args:
        sentence: What it loses.
        batch: Its number.
        is_known: The cut is of the query whose batch it is.

    Runs: anywhere (pure).
    """
    another = "" if is_known else "; where the cut was another query's, give this one a stateDir of its own"
    return (
        f"{sentence}; remove offsets/{batch} from the checkpoint first where the cut was in an earlier batch: "
        f"it was planned without that ledger, and nothing of it was delivered{another}"
    )
