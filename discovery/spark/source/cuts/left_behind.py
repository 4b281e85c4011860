"""Cuts that wait in another ledger than the one a start uses. Pure.

A cut range counts as read in Spark's log until its rewind stands there too, one batch later. A start that does not
know the record, because the source was renamed, has no name any more or keeps another ledger, reads on behind the cut.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from discovery.core.model import TopicPartition
from discovery.spark.source.cuts.ledger import LedgerState, Where
from discovery.spark.source.cuts.rules import Batch, CutRecord, PlannedRange, cut_at

LeftBehind = Mapping[str, str]
"""What a start would lose, by the id of the query whose checkpoint it goes on from."""
RefuseStart = Callable[[Mapping[TopicPartition, int], Mapping[TopicPartition, int] | None], LeftBehind]
"""Takes where a start goes on, and, of a batch that is replayed, where it ends."""
_KIND = {False: "file", True: "kafka"}
_PLACE = {False: "", True: " --cut-ledger kafka --bootstrap HOST:PORT"}


def left_behind(
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int] | None,
    ledgers: Mapping[Where, LedgerState],
    *,
    query: str | None,
) -> tuple[str, ...]:
    """Say, in a sentence each, which records would be lost by a start from these offsets.

    Args:
        first: Where it goes on, as Spark's log has it.
        last: Of a batch that is replayed, where it ends; None: none is.
        ledgers: Those that the start does not use.
        query: Whose checkpoint it is; None: unknown, and any query's record counts.

    Runs: anywhere (pure).
    """
    return tuple(
        f"{cut_at(record)} by query {record.query or 'unknown'} under sourceId {where.source_id}, and a start of it "
        f"without that ledger loses [{record.cut}, {record.end}); start once more with sourceId={where.source_id} and "
        f"cutLedger={_KIND[where.in_kafka]} until the rewind is in the offset log (one batch), or, knowing that it is "
        f"there already{_rewound(record)} or that the sink holds them, give them up: "
        f"kafka-discovery checkpoint adopt DIR --source-id {where.source_id}{_PLACE[where.in_kafka]} --yes"
        for where, state in ledgers.items()
        for tp, record in sorted(state.pending().items())
        if _loses(first.get(tp), (last or {}).get(tp), record) and (query is None or record.query in {None, query})
    )


def _loses(at: int | None, end: int | None, record: CutRecord) -> bool:
    """Tell whether one goes on behind the cut, and not back to it, or replays the batch that was cut."""
    return end != record.cut if at == record.end else end == record.end and at != record.cut


def _rewound(record: CutRecord) -> str:
    where = "" if record.batch is None else f" (offsets/{record.batch + 1})"
    return f"{where} with {record.topic_partition} at {record.cut}"


def of_queries(state: LedgerState) -> LedgerState:
    """Leave out the records of which no query is known.

    Runs: anywhere (pure).
    """
    return replace(state, records={key: r for key, r in state.records.items() if r.query is not None})


def left_behind_of(
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int] | None,
    ledgers: Mapping[Where, LedgerState],
) -> LeftBehind:
    """Say it by the query that would lose records, for its workers to refuse; what is nobody's is left out.

    Runs: anywhere (pure).
    """
    known = {r.query for state in ledgers.values() for r in state.pending().values() if r.query is not None}
    found = {query: left_behind(first, last, ledgers, query=query) for query in known}
    return {query: sentences[0] for query, sentences in found.items() if sentences}


def left_behind_by(
    ranges: Mapping[TopicPartition, PlannedRange], ledgers: Mapping[Where, LedgerState], batch: Batch
) -> tuple[str, ...]:
    """Say, in a sentence each, what a batch loses that was planned without these ledgers.

    It begins where a cut range of its query ends, or it is the batch that was cut, replayed.

    Runs: anywhere (pure).
    """
    first, last = {tp: r.start for tp, r in ranges.items()}, {tp: r.end for tp, r in ranges.items()}
    unknown = any(record.query is None for state in ledgers.values() for record in state.pending().values())
    another = "; where the cut was another query's, give this one a stateDir of its own" if unknown else ""
    return tuple(
        f"{planned_without(sentence, batch.number)}{another}"
        for sentence in left_behind(first, last, ledgers, query=batch.query)
    )


def planned_without(sentence: str, batch: int) -> str:
    """Add what to do about the batch that Spark's log holds already.

    Runs: anywhere (pure).
    """
    return (
        f"{sentence}; remove offsets/{batch} from the checkpoint first where the cut was in an earlier batch: "
        "it was planned without that ledger, and nothing of it was delivered"
    )
