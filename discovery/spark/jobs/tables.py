"""Results of a batch as tables or as records of a topic, and whether they follow on what the output holds."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from discovery.core.errors import ConfigError
from discovery.spark.jobs import letters


class Results(NamedTuple):
    """What a job makes of each row of a batch whose `reason`, if there is that column, is null."""

    name: str
    """Of the table."""
    columns: Mapping[str, Column]
    """Texts, whole numbers or bytes: what every output has."""
    key: tuple[str, ...]
    """A row replaces an earlier one of its key."""
    dead_letters: str = "dead_letters"
    """Of their table. Jobs may share a database and no table: each replaces rows, and empties what it has staged."""


class Table(NamedTuple):
    """Rows of one batch for one table; a row replaces an earlier one of its key."""

    name: str
    rows: DataFrame
    key: tuple[str, ...]


Shape = Callable[[DataFrame], Sequence[Table]]
"""Turns a batch into tables; plans only."""


def tables_of(batch: DataFrame, results: Results) -> list[Table]:
    """Part the rows of a batch: results, and dead letters where a job has them. Runs: driver (plans only)."""
    columns = [column.alias(name) for name, column in results.columns.items()]
    if "reason" not in batch.columns:
        return [Table(results.name, batch.select(*columns), results.key)]
    dead = batch.where("reason IS NOT NULL").select(*letters.LETTER)
    return [
        Table(results.name, batch.where("reason IS NULL").select(*columns), results.key),
        Table(results.dead_letters, dead, letters.LETTER[:3]),
    ]


def records_of(batch: DataFrame, results: Results, *, topic: str, letter: Mapping[str, Column]) -> DataFrame:
    """Turn the rows of a batch into records.

    Args:
        batch: With `letters.LETTER`; a null `reason` is a result.
        results: The others.
        topic: Of results.
        letter: A dead letter, see `letters.shaped`.

    Returns:
        `key, value, topic`: a result as JSON under its key's parts, joined by `|`, the last of a key being its total;
        and dead letters.

    Runs: driver (plans only); one pass over the batch.
    """
    found = {
        "key": F.concat_ws("|", *[results.columns[name] for name in results.key]),
        "value": F.to_json(F.struct(*[column.alias(name) for name, column in results.columns.items()])),
        "topic": F.lit(topic),
    }
    is_result = F.col("reason").isNull()
    return batch.select(*[F.when(is_result, found[name]).otherwise(letter[name]).alias(name) for name in found])


class Held(NamedTuple):
    """What an output says of itself."""

    query_id: str
    last_batch_id: int


def refuse_strangers(output: str, checkpoint: str, held: Held | None, *, query_id: str, batch_id: int) -> None:
    """Refuse a checkpoint of which the output lacks batches, or has later ones.

    The last batch may come again: Spark replays it, or plans it again after a crash, and totals replace each other.

    Args:
        output: Names it.
        checkpoint: Names it.
        held: None: the output is empty.
        query_id: Spark's, of the checkpoint.
        batch_id: The batch to be written.

    Raises:
        ConfigError: they do not belong together; names both.

    Runs: driver, once per micro-batch (pure).
    """
    if held is not None and held.query_id != query_id:
        # Totals restart with a new checkpoint: they would overwrite complete ones.
        raise ConfigError(
            f"--output: {output} holds the results of another checkpoint (query {held.query_id}, {checkpoint} is"
            f" {query_id}); name the checkpoint it belongs to, or another output"
        )
    last = -1 if held is None else held.last_batch_id
    if batch_id not in {last, last + 1} or batch_id < 0:
        holds = "is empty" if held is None else f"ends with batch {last}"
        raise ConfigError(
            f"--output: {output} {holds}, and checkpoint {checkpoint} goes on with batch {batch_id}; restore the one "
            "that belongs to the other, or name a new output and a new checkpoint"
        )
