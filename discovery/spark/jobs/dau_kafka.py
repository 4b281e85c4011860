"""Daily active users as records of a topic: totals and dead letters of a batch in the same transactions."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from discovery.spark.jobs import letters
from discovery.spark.jobs.dau_events import day_of
from discovery.spark.jobs.dau_options import KafkaOutput
from discovery.spark.sink import exactly_once


def sink_of(bootstrap_servers: str, output: KafkaOutput) -> dict[str, str]:
    """Return the options of the sink. Runs: anywhere (pure)."""
    named = {"kafka.bootstrap.servers": bootstrap_servers, "sinkId": output.sink_id, "lanes": str(output.lanes)}
    return named | dict(output.sink_options)


def kafka_writer(
    bootstrap_servers: str, output: KafkaOutput, *, time_zone: str = "UTC"
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch`.

    Raises:
        ConfigError: an option of the sink is wrong.

    Runs: driver, once.
    """
    options = sink_of(bootstrap_servers, output)
    return exactly_once(options, "key", transform=lambda batch: shaped(batch, output, time_zone))


def shaped(groups: DataFrame, output: KafkaOutput, time_zone: str) -> DataFrame:
    """Turn the groups of `dau_events.group` into records.

    Args:
        groups: Totals of users whose count changed, and malformed records, one each.
        output: Where they go.
        time_zone: In which days begin.

    Returns:
        `key, value, topic`: `{"day", "user_id", "events", "checksum"}` under `DAY|USER`, the last of a key being its
        total; and dead letters, see `letters.shaped`.

    Runs: driver (plans only).
    """
    day = day_of(F.col("until"), time_zone)
    total = {
        "key": F.concat_ws("|", day, "user_id"),
        "value": F.to_json(F.struct(day.alias("day"), "user_id", "events", "checksum")),
        "topic": F.lit(output.topic),
    }
    is_user, letter = F.col("reason").isNull(), letters.shaped(output.dead_letter_topic)
    return groups.select(*[F.when(is_user, total[name]).otherwise(letter[name]).alias(name) for name in total])
