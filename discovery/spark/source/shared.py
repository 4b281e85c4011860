"""What the reader of a stream and that of a batch share; imports nothing of Spark's streams, which are new in 4.2."""

import logging
import uuid
from dataclasses import replace

from discovery.config.client import timeouts
from discovery.config.client.opened_stores import fresh, open_stores
from discovery.core.errors import StateError
from discovery.core.policy import Policy
from discovery.feed.base import SourceFeed
from discovery.spark.fetch import FetchSettings
from discovery.spark.fetch.engine import not_installed
from discovery.spark.source.feeds import FeedFactory
from discovery.spark.source.options.parse import SourceOptions

_log = logging.getLogger("kafka_discovery.source")
_RUN = uuid.uuid4().hex[:12]
"""Names this query's readers at the brokers; one per source runner, so that workers keep their consumers."""


def with_open_stores(options: SourceOptions) -> SourceOptions:
    """Read the key and trust stores that the options name; what they held travels with the tasks.

    Raises:
        ConfigError: one cannot be opened.

    Runs: driver, not at `load()`, since a JVM may start for it; blocks for milliseconds, 1-2 s for a JKS store.
    """
    return replace(options, client=open_stores(options.client))


def started_feed(factory: FeedFactory, options: SourceOptions) -> SourceFeed:
    """Make a feed and begin following.

    Raises:
        StateError: the state is held by another process, or cannot be written; names option and remedy.

    Runs: driver; blocks <= 15 s for a named source's last holder.
    """
    feed = factory(options)
    try:
        feed.start()
    except OSError as error:
        raise StateError(f"stateDir: the state cannot be kept: {error}; name a folder you may write") from error
    return feed


def say_notes(options: SourceOptions) -> None:
    """Tell what a user should know about options that were accepted.

    Runs: driver, once per query.
    """
    for note in options.notes:
        _log.warning("%s", note)
    if options.fetch_engine == "auto" and (missing := not_installed()):
        _log.warning(
            "reading with the plain engine, several times slower: %s is not installed; pip install"
            " 'kafka-discovery[spark]' on driver and executors",
            missing,
        )
    for name, reason in options.client.without_effect.items():
        _log.warning("kafka.%s has no effect here: %s", name, reason)


def reads_plainly(options: SourceOptions) -> bool:
    """Tell whether the plain engine reads: it was asked for, or the fast one is not installed on the driver.

    Decided on the driver, so that not each worker finds out and logs it; `fetchEngine=native` stays an error of theirs.

    Runs: driver; looks for files.
    """
    return options.fetch_engine == "python" or (options.fetch_engine == "auto" and not_installed() is not None)


def fetch_settings(options: SourceOptions, *, patient: bool = False) -> FetchSettings:
    """Return how the workers of this process's query read, with the keys and authorities of this moment.

    Args:
        options: Of the query.
        patient: For leaders known to be slow: a client gives an answer as long as the loop gives one on offsets.

    Runs: driver, once per batch; see `fresh`.
    """
    isolation = {"isolation.level": options.interest.isolation.value}
    deadline = options.client.api_timeout_seconds or Policy().offsets_deadline_seconds
    return FetchSettings(
        client_options={
            "group.id": f"{options.group_id_prefix}-{_RUN}",
            **fresh(options.client).librdkafka,
            **isolation,
            **(timeouts.patient(options.client.librdkafka, deadline) if patient else {}),
        },
        include_headers=options.include_headers,
        fail_on_data_loss=options.fail_on_data_loss,
        rack_variable=options.rack_variable,
        engine="python" if reads_plainly(options) else options.fetch_engine,
        max_memory_bytes=options.fetch_max_memory_bytes,
        # A named source's tasks ask the driver instead, which knows who waits and ends their ranges.
        stall_seconds=options.stall_timeout_seconds if options.cuts is None else None,
    )
