"""Daily active users as records of a topic: totals and dead letters of a batch in the same transactions."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from discovery.spark.jobs.dau_options import KafkaOutput
from discovery.spark.sink import exactly_once

_DAY = "INTERVAL 1 DAY"


def sink_of(bootstrap_servers: str, output: KafkaOutput) -> dict[str, str]:
    """Return the options of the sink. Runs: anywhere (pure)."""
    named = {"kafka.bootstrap.servers": bootstrap_servers, "sinkId": output.sink_id, "lanes": str(output.lanes)}
    return named | dict(output.sink_options)


def kafka_writer(bootstrap_servers: str, output: KafkaOutput) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch`.

    Raises:
        ConfigError: an option of the sink is wrong.

    Runs: driver, once.
    """
    options = sink_of(bootstrap_servers, output)
    return exactly_once(options, "key", transform=lambda batch: shaped(batch, output))


def shaped(groups: DataFrame, output: KafkaOutput) -> DataFrame:
    """Turn the groups of `dau_events.group` into records.

    Args:
        groups: Totals of users whose count changed, and malformed records, one each.
        output: Where they go.

    Returns:
        `key, value, topic`: `{"day", "user_id", "events", "checksum"}` under `DAY|USER`, the last of a key being its
        total; `{"topic", "partition", "offset", "reason", "value"}` (the value in base64) under its position.

    Runs: driver (plans only).
    """
    is_user = F.col("reason").isNull()
    day = F.date_format(F.col("until") - F.expr(_DAY), "yyyy-MM-dd")
    total = F.struct(day.alias("day"), "user_id", "events", "checksum")
    letter = F.struct("topic", "partition", "offset", "reason", F.base64("value").alias("value"))
    position = F.concat_ws("-", "topic", "partition", "offset")
    return groups.select(
        F.when(is_user, F.concat_ws("|", day, "user_id")).otherwise(position).alias("key"),
        F.when(is_user, F.to_json(total)).otherwise(F.to_json(letter)).alias("value"),
        F.when(is_user, F.lit(output.topic)).otherwise(F.lit(output.dead_letter_topic)).alias("topic"),
    )
