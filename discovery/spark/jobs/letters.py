"""Records that are no events: what is kept of each, and how they pass a query that has a watermark and state.

Both jobs count in one query and one transaction, so a dead letter is a group of its own in the same aggregation. It
keeps the beginning of its value, with the true size and hash: the state holds it for a while.

The watermark follows sound events alone, and those are not ahead of the batch's own time by more than `clock_skew`: one
producer with a broken clock must not have everybody's events dropped as late. A dead letter's time is one that the
watermark cannot have passed, and that it does pass about an hour later, when the state lets go of the letter.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

HEAD_BYTES = 10_000
LETTER = ("topic", "partition", "offset", "reason", "value", "bytes", "sha256")
_LINE_BYTES, _LINE_CHARACTERS = 57, 80
"""Of base64 as Spark writes it: 76 characters, and an end that takes four in JSON."""
EARLIEST_EVENT = "2000-01-01 00:00:00"
_CLOCKS_DIFFER = "INTERVAL 1 HOUR"
"""Between the drivers of one checkpoint, and of one driver that is set back."""
_WATERMARK_KEY = "spark.watermarkDelayMs"
"""The column metadata by which Spark knows an event-time column. `window()` sets it too, but drops null times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What a query believes of event times."""

    allowed_lateness_seconds: float
    """How far behind the newest event one may be."""
    skew_seconds: float
    """How far ahead of the batch's own time an event may be."""

    def problem(self, moment: Column) -> Column:
        """Return what is wrong with the time of an event; null: nothing, or there is no time."""
        return F.when(moment < F.lit(EARLIEST_EVENT).cast("timestamp"), "ts lies before the year 2000").when(
            moment > F.current_timestamp() + _interval(self.skew_seconds),
            f"ts lies more than {self.skew_seconds:g} s ahead",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Records with a watermark and an event time each."""

    records: DataFrame
    """Every column that was there, `LETTER` (null for sound events), and `at`: the event time, or a dead letter's."""
    delay_milliseconds: int

    def event_time(self, column: Column, name: str) -> Column:
        """Name a column that the watermark lets go of. Runs: driver (plans only)."""
        return column.alias(name, metadata={_WATERMARK_KEY: self.delay_milliseconds})


def marked(classified: DataFrame, clock: Clock) -> Marked:
    """Give sound events a watermark, and the others a time that it has not passed.

    Args:
        classified: `topic, partition, offset, value, reason, ts` and more; a null `reason` is a sound event.
        clock: Lateness and skew.

    Runs: driver (plans only).
    """
    sound = F.col("reason").isNull()
    counted = classified.observe("records", F.count(F.lit(1)).alias("all"), F.count_if(~sound).alias("malformed"))
    late = _interval(clock.allowed_lateness_seconds)
    kept_until = F.current_timestamp() + _interval(clock.skew_seconds) - late + F.expr(_CLOCKS_DIFFER)
    # The epoch never moves a watermark.
    timed = counted.withColumns(
        {
            "at": F.when(sound, F.col("ts")).otherwise(kept_until),
            "ts": F.when(sound, F.col("ts")).otherwise(F.timestamp_seconds(F.lit(0))),
        }
    ).withWatermark("ts", f"{int(clock.allowed_lateness_seconds * 1_000)} milliseconds")
    value = F.col("value")
    letter = {name: F.col(name) for name in LETTER[:4]} | {
        "value": F.substring(value, 1, HEAD_BYTES),
        "bytes": F.length(value),
        "sha256": F.sha2(value, 256),
    }
    delay = int(timed.schema["ts"].metadata[_WATERMARK_KEY])
    records = timed.withColumns({name: F.when(~sound, column) for name, column in letter.items()})
    return Marked(records=records, delay_milliseconds=delay)


def shaped(topic: str, *, room_bytes: int) -> dict[str, Column]:
    """Return a dead letter as a record: its position as the key, in base64 as much of the value as there is room for.

    Args:
        topic: Of dead letters.
        room_bytes: The most that key and value may have together. Below about a kilobyte the rest of a letter, which is
            never cut, may be larger.

    Runs: driver (plans only).
    """
    key = F.concat_ws("-", "topic", "partition", "offset")
    room = F.lit(room_bytes) - F.octet_length(key) - F.octet_length(_json(F.lit("")))
    fitting = F.greatest(F.floor(room / _LINE_CHARACTERS) * _LINE_BYTES, F.lit(0)).cast("int")
    head = F.substring(F.col("value"), F.lit(1), fitting)
    return {"key": key, "value": _json(F.base64(head)), "topic": F.lit(topic)}


def _json(value: Column) -> Column:
    content = {name: F.col(name) for name in LETTER} | {"value": value}
    return F.to_json(F.struct(*[column.alias(name) for name, column in content.items()]))


def _interval(seconds: float) -> Column:
    return F.make_dt_interval(secs=F.lit(seconds))
