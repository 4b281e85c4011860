"""The consumers that a worker process keeps from task to task."""

from collections.abc import Sequence

from discovery.core.model import BrokerAddress
from discovery.fetch.client import ClientFactory
from discovery.fetch.consumers import CachedConsumer
from discovery.fetch.ranges import FetchSettings

_CACHE_SIZE = 4
"""Worker processes serve several queries; each keeps its consumer while it is used."""

_Key = tuple[object, ...]
_cache: dict[_Key, CachedConsumer] = {}


def take(settings: FetchSettings, brokers: Sequence[BrokerAddress], make_client: ClientFactory) -> CachedConsumer:
    """Take a consumer out of this process's cache, or build one; the broker list is not part of the key.

    A cached one whose brokers were all down gets the new list.

    Raises:
        ConfigError: librdkafka refuses an option.

    Runs: worker; does not block.
    """
    cached = _cache.pop(_key(settings), None)
    if cached is None:
        return CachedConsumer(settings, brokers, make_client)
    if cached.failure or (cached.all_down and cached.brokers != tuple(brokers)):
        cached.positions.clear()
        cached.rebuild(brokers)
    return cached


def give_back(cached: CachedConsumer) -> None:
    """Put a consumer back for the next task; the least recently used one beyond the limit is closed.

    Runs: worker; does not block.
    """
    cached.rest()
    twin = _cache.pop(_key(cached.settings), None)
    if twin is not None:
        twin.close()
    _cache[_key(cached.settings)] = cached
    while len(_cache) > _CACHE_SIZE:
        _cache.pop(next(iter(_cache))).close()


def close_all() -> None:
    """Close every cached consumer of this process.

    Runs: tests and worker exit; does not block.
    """
    while _cache:
        _cache.popitem()[1].close()


def _key(settings: FetchSettings) -> _Key:
    options = tuple(sorted(settings.client_options.items()))
    return (settings.engine, settings.include_headers, settings.batch_rows, settings.max_memory_bytes, options)
