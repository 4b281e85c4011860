"""The consumers that a worker process keeps from task to task."""

from collections.abc import Mapping, Sequence

from discovery.config.clock import SystemClock
from discovery.core.clock import Clock
from discovery.core.model import BrokerAddress, TopicId, TopicName
from discovery.spark.fetch.client import ClientFactory
from discovery.spark.fetch.consumers import CachedConsumer
from discovery.spark.fetch.ranges import FetchSettings

_CACHE_SIZE = 4
"""Worker processes serve several queries; each keeps its consumer while it is used."""
_IDLE_SECONDS = 60.0
"""Spark ends a worker that is idle for so long; a query that uses it less often gets no more from us."""

_Key = tuple[object, ...]
_cache: dict[_Key, tuple[CachedConsumer, float]] = {}
"""Least recently used first, each with the moment it was given back."""


def take(
    settings: FetchSettings,
    brokers: Sequence[BrokerAddress],
    make_client: ClientFactory,
    topic_ids: Mapping[TopicName, TopicId],
) -> CachedConsumer:
    """Take a consumer out of this process's cache, or build one; the broker list is not part of the key.

    A cached one whose brokers were all down starts over with the new list: where each was fenced for a moment,
    librdkafka may be left with none at all (#5301). So does one that read a topic under another id: librdkafka takes
    the metadata of a recreated topic, whose leader epochs begin at 0, for outdated and ignores it; and one whose last
    task was cut after silence, a minute after it was built, then more seldom. The others give up what they fetched
    ahead: the bound of the memory is the worker's.

    Raises:
        ConfigError: librdkafka refuses an option.

    Runs: worker; blocks for milliseconds where another one had fetched ahead.
    """
    found = _cache.pop(_key(settings), None)
    for other, _ in _cache.values():
        other.make_room()
    cached = found[0] if found is not None else CachedConsumer(settings, brokers, make_client)
    cached.present_brokers = tuple(brokers)
    if cached.failure or cached.all_down or cached.is_doubtful() or cached.knew_otherwise(topic_ids):
        cached.positions.clear()
        cached.topic_ids.clear()
        cached.rebuild(brokers)
    cached.topic_ids |= topic_ids
    return cached


def give_back(cached: CachedConsumer, clock: Clock | None = None) -> None:
    """Put a consumer back for the next task; those beyond the limit, or not used for a minute, are closed.

    Runs: worker; does not block.
    """
    cached.keep_backlog()
    now = (clock or SystemClock()).monotonic()
    twin = _cache.pop(_key(cached.settings), None)
    if twin is not None:
        twin[0].close()
    _cache[_key(cached.settings)] = (cached, now)
    surplus = len(_cache) - _CACHE_SIZE
    for number, (key, (other, rested_at)) in enumerate(list(_cache.items())):
        if number < surplus or now - rested_at > _IDLE_SECONDS:
            other.close()
            del _cache[key]


def close_all() -> None:
    """Close every cached consumer of this process.

    Runs: tests; does not block.
    """
    while _cache:
        _cache.popitem()[1][0].close()


def _key(settings: FetchSettings) -> _Key:
    options = tuple(sorted(settings.client_options.items()))
    sizes = (settings.batch_rows, settings.max_memory_bytes)
    return (settings.engine, settings.include_headers, settings.rack_variable, *sizes, options)
