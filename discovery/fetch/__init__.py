"""The data plane behind one function: `fetch(ranges, ...)` yields Arrow batches in Spark's Kafka columns."""

from discovery.fetch.api import FetchRange, FetchSettings, fetch

__all__ = ["FetchRange", "FetchSettings", "fetch"]
