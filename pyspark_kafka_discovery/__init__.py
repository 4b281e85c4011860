"""Registers `format("kafka-discovery")`: Spark imports installed `pyspark_*` modules and takes their DefaultSource."""

from pathlib import Path

import discovery

if discovery.__file__ is None or Path(discovery.__file__).parent.parent != Path(__file__).parent.parent:
    raise ImportError(
        f"kafka-discovery: {discovery.__file__ or list(discovery.__path__)} hides its package `discovery`, which lies"
        f" in {Path(__file__).parent.parent}; rename yours, or take its folder off the path"
    )

from pyspark_kafka_discovery.source import DefaultSource

__all__ = ["DefaultSource"]
