"""The data source, and the sink, behind the name `kafka-discovery`.

Spark imports this module in two short-lived processes before a query starts, and in every application that asks for any
data source at all, and for a sink in two more that plan and confirm batches: readers, with Arrow and the Kafka client
behind them, and even the options of one side, are imported where they are needed.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark import __version__ as spark_version
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from discovery.core.errors import ConfigError
from discovery.spark.source.border import crossing, one_line

if TYPE_CHECKING:
    from discovery.spark.sink.plan import SinkPlan
    from discovery.spark.source.options.parse import SourceOptions

_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_SOURCE_MARKS = frozenset({"subscribe", "subscribepattern", "assign"})
_SINK_MARKS = frozenset({"topic", "sinkid", "writeid", "lanes", "onmismatch", "onbadrecord", "checkpointlocation"})
_BATCH_MARKS = frozenset({"endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"})
"""Only a batch read has an end: on an older Spark they say what `load()` is for."""
_OLDEST_SPARK = (4, 2)
"""Before it a streaming source is not asked with limits, nor where a query stands after a restart."""
_OLDEST_BATCH = (4, 0)
_FIXED = "schema: the columns of kafka-discovery are fixed; remove .schema(...)"
_HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)


class DefaultSource(DataSource):
    """Options, columns and checkpoints of Spark's own `kafka` source, over brokers that come and go."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options; no I/O.

        Runs: a short-lived Python process, at `load()`.
        """
        super().__init__(dict(options))
        check_spark(spark_version, options)
        self._sink = _is_sink(options)
        self._source = None if self._sink else _parse(options)

    @property
    def _parsed(self) -> "SourceOptions":
        """The options of a source; where they are a sink's, reading with them names the first that does not fit."""
        from discovery.spark.source.options.parse import parse_options  # noqa: PLC0415 - see the module

        return self._source or parse_options(self.options)

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return "kafka-discovery"

    def schema(self) -> StructType:
        """Return the native source's columns, every one nullable as there; a sink's are checked by its writer."""
        if self._sink:
            return StructType([*_COLUMNS[:4], _HEADERS])
        return StructType([*_COLUMNS, *([_HEADERS] if self._parsed.include_headers else [])])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of one batch read; no I/O."""
        with crossing():
            from discovery.spark.source.batch import KafkaDiscoveryReader  # noqa: PLC0415 - see the module
            from discovery.spark.source.options.parse import check_batch  # noqa: PLC0415 - see the module

            if schema != self.schema():
                raise ConfigError(_FIXED)
            check_batch(self._parsed)
            return KafkaDiscoveryReader(self._parsed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Make the reader of a streaming query; no I/O."""
        from discovery.spark.source.options.parse import check_stream  # noqa: PLC0415 - see the module

        check_spark(spark_version, {})
        refusal = None if schema == self.schema() else _FIXED
        try:
            check_stream(self._parsed)
        except ConfigError as error:
            refusal = str(error)
        from discovery.spark.source.reader import KafkaDiscoveryStreamReader  # noqa: PLC0415 - see the module

        return KafkaDiscoveryStreamReader(self._parsed, refusal=refusal)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, FBT001, N802 - Spark's
        """Make the writer of one micro-batch, or of its commit.

        Runs: driver, in a short-lived process, at least twice per batch; blocks for Kafka every half minute.
        """
        with crossing():
            from discovery.spark.sink.spark_writers import KafkaDiscoveryStreamWriter  # noqa: PLC0415 - see the module

            return KafkaDiscoveryStreamWriter(_plan(self.options, schema, batch=False))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        """Make the writer of a batch write.

        Runs: driver, in a short-lived process, once per write; blocks for Kafka.
        """
        with crossing():
            from discovery.spark.sink.spark_writers import (  # noqa: PLC0415 - see the module
                KafkaDiscoveryBatchWriter,
                KafkaDiscoveryOffsetWriter,
            )

            if overwrite:
                raise ConfigError('mode: a topic cannot be overwritten; write with mode("append")')
            plan = _plan(self.options, schema, batch=True)
            by_offset = plan.options.source_topic is not None
            return KafkaDiscoveryOffsetWriter(plan) if by_offset else KafkaDiscoveryBatchWriter(plan)


def check_spark(version: str, options: Mapping[str, str]) -> None:
    """Refuse a Spark that lacks what is asked for: source and sink need 4.2, a batch read that says its end needs 4.0.

    Args:
        version: Of PySpark, like `4.2.0`.
        options: As Spark hands them over; it does not say whether they are a stream's.

    Raises:
        ConfigError: it is too old.

    Runs: anywhere.
    """
    found = tuple(int(part) for part in version.split(".")[:2])
    reads = found >= _OLDEST_BATCH
    if found >= _OLDEST_SPARK or (reads and _BATCH_MARKS & {name.lower() for name in options}):
        return
    batch = '; spark.read works here once it says its end: option("endingOffsets", "latest")' if reads else ""
    raise one_line(
        ConfigError(
            f"format: kafka-discovery needs Spark 4.2 or newer, this is {version}; on an older one keep"
            ' format("kafka") and start the job by `kafka-discovery run`, or give it the address of'
            f" `kafka-discovery endpoint`{batch}"
        )
    )


def _plan(options: Mapping[str, str], schema: StructType, *, batch: bool) -> "SinkPlan":
    from discovery.spark.sink.columns import check_columns  # noqa: PLC0415 - see the module
    from discovery.spark.sink.options import parse_options as parse_sink_options  # noqa: PLC0415 - see the module
    from discovery.spark.sink.preflight import prepare  # noqa: PLC0415 - see the module

    parsed = parse_sink_options(options, batch=batch)
    columns = {field.name: field.dataType.simpleString() for field in schema.fields}
    check_columns(columns, has_topic=parsed.topic is not None, lanes=parsed.lanes)
    return prepare(parsed)


def _is_sink(options: Mapping[str, str]) -> bool:
    """Spark does not say what the options are for when it makes a data source."""
    names = {name.lower() for name in options}
    return not names & _SOURCE_MARKS and bool(names & _SINK_MARKS)


def _parse(options: Mapping[str, str]) -> "SourceOptions":
    from discovery.spark.source.options.parse import parse_options  # noqa: PLC0415 - see the module

    try:
        return parse_options(options)
    except ConfigError as error:
        raise one_line(error) from None
