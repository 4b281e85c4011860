"""The data source behind the name `kafka-discovery`.

Spark imports this module in two short-lived processes before a query starts, and in every application that asks for any
data source at all: readers, with Arrow and the Kafka client behind them, are imported where one is made.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
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
from spark_jobs.source.border import crossing, one_line
from spark_jobs.source.options import SourceOptions, check_batch, check_stream, parse_options

_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
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
        self._parsed = _parse(options)

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return "kafka-discovery"

    def schema(self) -> StructType:
        """Return the native source's columns, every one nullable as there."""
        return StructType([*_COLUMNS, *([_HEADERS] if self._parsed.include_headers else [])])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of one batch read; no I/O."""
        with crossing():
            from spark_jobs.source.batch import KafkaDiscoveryReader  # noqa: PLC0415 - see the module

            if schema != self.schema():
                raise ConfigError(_FIXED)
            check_batch(self._parsed)
            return KafkaDiscoveryReader(self._parsed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Make the reader of a streaming query; no I/O."""
        refusal = None if schema == self.schema() else _FIXED
        try:
            check_stream(self._parsed)
        except ConfigError as error:
            refusal = str(error)
        from spark_jobs.source.reader import KafkaDiscoveryStreamReader  # noqa: PLC0415 - see the module

        return KafkaDiscoveryStreamReader(self._parsed, refusal=refusal)


def _parse(options: Mapping[str, str]) -> SourceOptions:
    try:
        return parse_options(options)
    except ConfigError as error:
        raise one_line(error) from None
