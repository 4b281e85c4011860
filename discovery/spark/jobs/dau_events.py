"""From raw records to groups: what a well-formed event is, and which day it belongs to.

A record is well-formed when it is a JSON object with the texts `event_id`, `user_id` and `ip` and a plausible `ts`.
Anything else keeps its reason and becomes a dead letter, see `letters`.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from discovery.spark.jobs.letters import LETTER, Clock, marked

TEXT_FIELDS = ("event_id", "user_id", "ip")
MAX_TEXT_CHARACTERS = 512
_LAST_MILLISECOND = 253_402_300_799_999
"""The end of year 9999; beyond it `timestamp_millis` raises, which would end the query."""
_ISO_TIMESTAMP = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?$"


def classify(records: DataFrame, clock: Clock) -> DataFrame:
    """Give each Kafka record its fields, or the reason why it is malformed.

    Args:
        records: Columns `value`, `topic`, `partition`, `offset`, as a Kafka source has them; session time zone UTC.
        clock: How far ahead an event may be.

    Returns:
        `topic, partition, offset, value, event_id, user_id, ip, ts, reason`; `reason` is null exactly where the
        event is well-formed.

    Runs: driver (plans only).
    """
    text = F.col("value").cast("string")
    parsed = records.withColumn("text", text).withColumn("json", F.try_parse_json(F.col("text")))
    fields = [_text_field(name).alias(name) for name in TEXT_FIELDS]
    columns = ["topic", "partition", "offset", "value"]
    return parsed.select(*columns, *fields, _timestamp().alias("ts"), _reason(clock).alias("reason"))


def group(classified: DataFrame, clock: Clock, *, time_zone: str = "UTC") -> DataFrame:
    """Count events per (day, user); each malformed record becomes a group of one.

    Args:
        classified: What `classify` returns.
        clock: How late an event may come.
        time_zone: In which days begin.

    Returns:
        `until, user_id, topic, partition, offset, reason, value, bytes, sha256, events, checksum`; rows of users have
        an `until` at the end of their day and null in what a dead letter has.

    Runs: driver (plans only). Use it in update mode.
    """
    timed = marked(classified, clock)
    sound = F.col("reason").isNull()
    keyed = timed.records.select(
        timed.event_time(F.when(sound, _end_of_day(F.col("at"), time_zone)).otherwise(F.col("at")), "until"),
        F.when(sound, F.col("user_id")).alias("user_id"),
        # In the key and not in an aggregate: a binary buffer would turn all groups to sorted aggregation.
        *LETTER,
        F.when(sound, F.crc32(F.col("event_id").cast("binary"))).otherwise(F.lit(0)).alias("crc"),
    )
    return keyed.groupBy("until", "user_id", *LETTER).agg(F.count("*").alias("events"), F.sum("crc").alias("checksum"))


def day_of(until: Column, time_zone: str) -> Column:
    """Return the day that ends there, as ISO text. Runs: driver (plans only)."""
    return F.date_format(F.from_utc_timestamp(until, time_zone) - F.expr("INTERVAL 1 DAY"), "yyyy-MM-dd")


def _end_of_day(moment: Column, time_zone: str) -> Column:
    midnight = F.date_trunc("day", F.from_utc_timestamp(moment, time_zone))
    return F.to_utc_timestamp(midnight + F.expr("INTERVAL 1 DAY"), time_zone)


def _member(name: str) -> Column:
    return F.try_variant_get(F.col("json"), f"$.{name}", "variant")


def _kind(name: str) -> Column:
    """SQL type of a member; null where it is absent, VOID where it is JSON's null."""
    return F.schema_of_variant(_member(name))


def _text_field(name: str) -> Column:
    return F.try_variant_get(F.col("json"), f"$.{name}", "string")


def _timestamp() -> Column:
    """ISO 8601 text (without a zone: UTC) or whole milliseconds since the epoch; null where it is neither."""
    text = _text_field("ts")
    milliseconds = F.try_variant_get(F.col("json"), "$.ts", "bigint")
    return (
        F.when((_kind("ts") == "STRING") & text.rlike(_ISO_TIMESTAMP), F.try_to_timestamp(text))
        .when((_kind("ts") == "BIGINT") & milliseconds.between(0, _LAST_MILLISECOND), F.timestamp_millis(milliseconds))
        .otherwise(F.lit(None).cast("timestamp"))
    )


def _reason(clock: Clock) -> Column:
    """First thing wrong with a record, or null. The order is from the whole to its parts."""
    text = F.col("text")
    reason = (
        F.when(F.col("value").isNull() | (F.length(F.col("value")) == 0), "empty record")
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(F.col("json").isNull(), "not JSON")
        .when(~F.ltrim(text).startswith("{"), "not a JSON object")
    )
    for name in (*TEXT_FIELDS, "ts"):
        reason = reason.when(_kind(name).isNull() | (_kind(name) == "VOID"), f"{name} is missing")
    for name in TEXT_FIELDS:
        length = F.length(F.trim(_text_field(name)))
        reason = (
            reason.when(_kind(name) != "STRING", f"{name} is not a text")
            .when(length == 0, f"{name} is empty")
            .when(length > MAX_TEXT_CHARACTERS, f"{name} is longer than {MAX_TEXT_CHARACTERS} characters")
        )
    moment = _timestamp()
    return reason.when(moment.isNull(), "ts is not a timestamp").otherwise(clock.problem(moment))
