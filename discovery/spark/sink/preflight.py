"""Before a batch is written: living brokers, an existing topic, a marker topic, a control record.

Spark asks for a writer in two processes of its own for every batch, so what was found is kept in a small file on the
driver's host: the brokers for half a minute, the rest for ten. A failed batch forgets it. Older brokers are used on
while a thread looks for others, which takes half a second that no batch should wait for; after two minutes one does.
"""

import hashlib
import json
import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from discovery.core.errors import DiscoveryError
from discovery.core.model import BrokerAddress, TopicName
from discovery.spark.sink.options import SinkOptions
from discovery.spark.sink.plan import SinkPlan
from discovery.store.files import write_atomically
from discovery.store.locations import default_state_dir

_looking = threading.Lock()
_log = logging.getLogger("kafka_discovery.sink")
_BROKERS_SECONDS = 30.0
_OLDEST_BROKERS_SECONDS = 150.0
_CHECKED_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an earlier preflight found."""

    key: str
    brokers: tuple[BrokerAddress, ...]
    brokers_wall: float
    checked_wall: float
    largest_bytes: dict[TopicName, int]
    retention_seconds: int


def prepare(options: SinkOptions) -> SinkPlan:
    """Return what workers need, checked no longer ago than it may be.

    Raises:
        KafkaUnreachableError: no living broker within `startupTimeout`; a verdict per address.
        ConfigError: an option does not fit the cluster.
        SinkRefusedError: a batch was left between two numbers of lanes, or markers are lost.

    Runs: driver, once per batch; reads a file, and every half minute blocks for Kafka: <= `startupTimeout` + 2 min.
    """
    options = options.opened()
    found, now = _load(options), time.time()
    if found is None or not 0 <= now - found.checked_wall < _CHECKED_SECONDS:
        found = _check(options, now)
        _save(options, found)
    elif not 0 <= now - found.brokers_wall < _OLDEST_BROKERS_SECONDS:
        found = _looked_again(options, found)
    elif now - found.brokers_wall >= _BROKERS_SECONDS:
        _look_again_meanwhile(options, found)
    return SinkPlan(
        options=options,
        brokers=found.brokers,
        largest_bytes=found.largest_bytes,
        retention_seconds=found.retention_seconds,
    )


def forget(options: SinkOptions) -> None:
    """Make the next preflight a full one.

    Runs: driver, after a failed batch; deletes a small file.
    """
    with suppress(OSError):
        _file(options).unlink()


def _looked_again(options: SinkOptions, found: Found) -> Found:
    from discovery.spark.sink.checks import living_brokers  # noqa: PLC0415 - as below

    fresh = replace(found, brokers=living_brokers(options), brokers_wall=time.time())
    # Unless a failed batch has forgotten it meanwhile: then the next one looks at everything again.
    if _load(options) == found:
        _save(options, fresh)
    return fresh


def _look_again_meanwhile(options: SinkOptions, found: Found) -> None:
    """Begin to look for living brokers, once at a time; where the process ends before, the next one begins again."""
    if not _looking.acquire(blocking=False):
        return

    def look() -> None:
        try:
            _looked_again(options, found)
        except DiscoveryError as error:
            _log.warning("sinkId %r: %s; the brokers that are known are used on", options.sink_id, error)
        finally:
            _looking.release()

    threading.Thread(target=look, name="sink-brokers", daemon=True).start()


def _check(options: SinkOptions, now: float) -> Found:
    # Most batches need neither Kafka's client nor a discovery loop to be planned.
    from discovery.spark.sink.checks import check_cluster, living_brokers  # noqa: PLC0415

    # A refusal must not be hidden, at the next start, by what an earlier one had found.
    forget(options)
    brokers = living_brokers(options)
    checked = check_cluster(SinkPlan(options=options, brokers=brokers))
    return Found(
        key=_key(options),
        brokers=brokers,
        brokers_wall=now,
        checked_wall=now,
        largest_bytes=dict(checked.largest_bytes),
        retention_seconds=checked.retention_seconds,
    )


def _key(options: SinkOptions) -> str:
    telling = (
        options.bootstrap, options.sink_id, options.source_topic, options.topic, options.named_topic,
        options.lanes, options.dead_letter_topic, options.transaction_timeout_seconds, options.marker_topic,
        options.discovery_url, options.discovery_cluster, options.cluster_id, sorted(options.client.connection),
    )  # fmt: skip
    return hashlib.sha256(repr(telling).encode()).hexdigest()


def _file(options: SinkOptions) -> Path:
    return (options.state_dir or default_state_dir()) / "sinks" / f"{options.sink_id}.json"


def _load(options: SinkOptions) -> Found | None:
    """Return what is kept; None where there is nothing, or nothing that fits."""
    try:
        raw = json.loads(_file(options).read_bytes())
        found = Found(
            key=raw["key"],
            brokers=tuple(BrokerAddress(host, port) for host, port in raw["brokers"]),
            brokers_wall=float(raw["brokers_wall"]),
            checked_wall=float(raw["checked_wall"]),
            largest_bytes={TopicName(topic): int(most) for topic, most in raw["largest_bytes"].items()},
            retention_seconds=int(raw["retention_seconds"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if found.key == _key(options) and found.brokers else None


def _save(options: SinkOptions, found: Found) -> None:
    """Keep it; a disk that refuses costs time, not correctness."""
    content = {
        "key": found.key,
        "brokers": [(b.host, b.port) for b in found.brokers],
        "brokers_wall": found.brokers_wall,
        "checked_wall": found.checked_wall,
        "largest_bytes": found.largest_bytes,
        "retention_seconds": found.retention_seconds,
    }
    try:
        write_atomically(_file(options), json.dumps(content).encode())
    except OSError as error:
        _log.warning("stateDir: what the sink found cannot be kept, so it asks before every batch: %s", error)
