"""The data plane behind one function: `fetch(ranges, ...)` yields Arrow batches in Spark's Kafka columns."""

from discovery.spark.fetch.api import Arbiter, FetchRange, FetchSettings, fetch

__all__ = ["Arbiter", "FetchRange", "FetchSettings", "fetch"]
