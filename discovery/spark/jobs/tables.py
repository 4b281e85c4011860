"""Results as tables: what is written of a batch, and whether it follows on what the output holds."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame

from discovery.core.errors import ConfigError


class Table(NamedTuple):
    """Rows of one batch for one table; a row replaces an earlier one of its key."""

    name: str
    rows: DataFrame
    key: tuple[str, ...]


Shape = Callable[[DataFrame], Sequence[Table]]
"""Turns a batch into tables; plans only."""


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
