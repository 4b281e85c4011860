"""What a query calls: `with_lanes` before any of the writers, `exactly_once` for `foreachBatch`."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from discovery.core.errors import ConfigError
from discovery.spark.sink.columns import LANE
from discovery.spark.sink.marker import MAX_LANES

_SPECULATION = "spark.speculation"


def with_lanes(df: DataFrame, by: Column | str | Sequence[Column | str] | None = None, *, lanes: int = 1) -> DataFrame:
    """Send each row to the lane its key belongs to: the last thing before `writeStream`.

    A Python sink cannot ask Spark for a distribution, so the query does. Rows of one key stay in one lane, in any
    replay: that is why `by` must not hold what changes between executions (a random number, the time of the run).

    Args:
        df: What will be written.
        by: Columns or names; may be left out with one lane.
        lanes: As many as the option `lanes` of the sink; each is one task and one transaction per batch.

    Returns:
        The frame with a column `__lane`, which the sink checks and does not write.

    Raises:
        ConfigError: no key, too many lanes, or speculative execution, under which lanes would fence each other.

    Runs: driver; plans only.
    """
    if not 1 <= lanes <= MAX_LANES:
        raise ConfigError(f"lanes: {lanes} is not within 1..{MAX_LANES}")
    keys = [by] if isinstance(by, Column | str) else list(by or ())
    if lanes > 1 and not keys:
        raise ConfigError(f"by: {lanes} lanes need the columns that say which row goes where, like by='key'")
    if str(df.sparkSession.conf.get(_SPECULATION, "false")).lower() == "true":
        raise ConfigError(f"{_SPECULATION}=true: attempts of one lane would fence each other; set it to false")
    # Without the cast Spark refuses the id: DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE.
    lane = F.pmod(F.xxhash64(*keys), F.lit(lanes)).cast("int") if lanes > 1 else F.lit(0)
    return df.withColumn(LANE, lane).repartitionById(lanes, LANE)
