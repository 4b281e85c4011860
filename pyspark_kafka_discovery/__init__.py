"""Registers `format("kafka-discovery")`: Spark imports installed `pyspark_*` modules and takes their DefaultSource."""

from pyspark_kafka_discovery.source import DefaultSource

__all__ = ["DefaultSource"]
