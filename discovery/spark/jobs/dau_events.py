"""From raw records to groups: what a well-formed event is, and what happens to the others.

A record is well-formed when it is a JSON object with the texts `event_id`, `user_id` and `ip` and a plausible
`ts`. Anything else keeps its reason and becomes a group of its own, so that one query and one transaction carry
both results.

The watermark follows well-formed events only: a producer with a broken clock must not push it ahead and have
honest events dropped as late. A malformed record gets a key that the watermark cannot have passed (two days
after the batch's own time, while a believable `ts` is at most one day ahead), so that it is never dropped as late
and still leaves the state in the end.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

TEXT_FIELDS = ("event_id", "user_id", "ip")
MAX_TEXT_CHARACTERS = 512
EARLIEST_EVENT = "2000-01-01 00:00:00"
MAX_AHEAD = "INTERVAL 1 DAY"
_KEEP_MALFORMED = "INTERVAL 2 DAYS"
_LAST_MILLISECOND = 253_402_300_799_999
"""The end of year 9999; beyond it `timestamp_millis` raises, which would end the query."""
_ISO_TIMESTAMP = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?$"
_WATERMARK_KEY = "spark.watermarkDelayMs"
"""The column metadata by which Spark knows an event-time column. `window()` sets it too, but drops null times."""


def classify(records: DataFrame) -> DataFrame:
    """Give each Kafka record its fields, or the reason why it is malformed.

    Args:
        records: Columns `value`, `topic`, `partition`, `offset`, as a Kafka source has them; session time zone UTC.

    Returns:
        `topic, partition, offset, value, event_id, user_id, ip, ts, reason`; `reason` is null exactly where the
        event is well-formed.

    Runs: driver (plans only).
    """
    text = F.col("value").cast("string")
    parsed = records.withColumn("text", text).withColumn("json", F.try_parse_json(F.col("text")))
    fields = [_text_field(name).alias(name) for name in TEXT_FIELDS]
    columns = ["topic", "partition", "offset", "value"]
    return parsed.select(*columns, *fields, _timestamp().alias("ts"), _reason().alias("reason"))


def group(classified: DataFrame, *, allowed_lateness: str) -> DataFrame:
    """Count events per (day, user); each malformed record becomes a group of one.

    Args:
        classified: What `classify` returns.
        allowed_lateness: How far behind the newest event one may be, as Spark writes intervals (`1 day`).

    Returns:
        `until, user_id, topic, partition, offset, reason, value, events, checksum`; rows of users have a null
        `reason`, an `until` at the end of their day (UTC), and null positions.

    Runs: driver (plans only). Use it in update mode.
    """
    well_formed = F.col("reason").isNull()
    # Malformed records say nothing about event time: the epoch never moves a watermark.
    clocked = classified.withColumn("ts", F.when(well_formed, F.col("ts")).otherwise(F.timestamp_seconds(F.lit(0))))
    marked = clocked.withWatermark("ts", allowed_lateness)
    until = F.when(well_formed, _end_of_day(F.col("ts"))).otherwise(
        _end_of_day(F.current_timestamp()) + F.expr(_KEEP_MALFORMED)
    )
    keyed = marked.select(
        until.alias("until", metadata={_WATERMARK_KEY: watermark_delay_milliseconds(marked)}),
        F.when(well_formed, F.col("user_id")).alias("user_id"),
        *[F.when(~well_formed, F.col(name)).alias(name) for name in ("topic", "partition", "offset")],
        "reason",
        # In the key and not in an aggregate: a binary buffer would turn all groups to sorted aggregation.
        F.when(~well_formed, F.col("value")).alias("value"),
        F.when(well_formed, F.crc32(F.col("event_id").cast("binary"))).otherwise(F.lit(0)).alias("crc"),
    )
    keys = ("until", "user_id", "topic", "partition", "offset", "reason", "value")
    return keyed.groupBy(*keys).agg(F.count("*").alias("events"), F.sum("crc").alias("checksum"))


def watermark_delay_milliseconds(marked: DataFrame) -> int:
    """Read back how Spark understood the lateness, so that no interval is parsed twice."""
    metadata = marked.schema["ts"].metadata
    return int(metadata[_WATERMARK_KEY])


def _end_of_day(moment: Column) -> Column:
    return F.date_trunc("day", moment) + F.expr("INTERVAL 1 DAY")


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


def _reason() -> Column:
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
    return (
        reason.when(moment.isNull(), "ts is not a timestamp")
        .when(moment < F.lit(EARLIEST_EVENT).cast("timestamp"), "ts lies before the year 2000")
        .when(moment > F.current_timestamp() + F.expr(MAX_AHEAD), "ts lies more than a day ahead")
        .otherwise(F.lit(None).cast("string"))
    )
