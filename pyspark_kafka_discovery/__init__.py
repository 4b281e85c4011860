"""Registers `format("kafka-discovery")`: Spark imports every installed `pyspark_*` module and takes its DefaultSource."""
