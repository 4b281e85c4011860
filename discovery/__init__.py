"""Keeps Spark streams running while Kafka brokers come and go."""

__version__ = "0.1.0"
