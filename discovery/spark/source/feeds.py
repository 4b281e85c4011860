"""Which feed a reader follows."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol

from discovery.config.client.opened_stores import fresh
from discovery.config.client.timeouts import raised
from discovery.config.clock import SystemClock
from discovery.config.logs import configure_logging
from discovery.core.errors import ConfigError, StateError
from discovery.core.interest import CUT_LEDGER_TOPIC
from discovery.core.model import TopicId, TopicName, TopicPartition
from discovery.core.policy import Policy
from discovery.feed.base import PartitionFeed, SourceFeed
from discovery.spark.source.cuts.coordinator import RangeCoordinator
from discovery.spark.source.cuts.ledger import Ledger, LedgerState, Where
from discovery.spark.source.cuts.left_behind import LeftBehind, RefuseStart, left_behind, left_behind_of, of_queries
from discovery.spark.source.cuts.planned import Cuts
from discovery.spark.source.cuts.server import CoordinatorServer
from discovery.spark.source.options.cuts import CutOptions
from discovery.spark.source.options.parse import SourceOptions
from discovery.spark.source.planning.start import is_living
from discovery.spark.source.waiting import Patience
from discovery.store.locations import default_state_dir
from discovery.store.topic_ids import TopicIdStore

if TYPE_CHECKING:
    from discovery.spark.source.cuts.ledger_kafka import KafkaLedger

_log = logging.getLogger("kafka_discovery.source")
_LOOK_SECONDS = 10.0
"""How long a start looks for another ledger in Kafka: the leader of its topic may have died a moment ago."""
_IDLE_SECONDS = 10.0
"""How often addresses are checked between the plans of a query with a slow trigger."""


class FeedFactory(Protocol):
    """Makes the feed of one reader; does no I/O. Picklable, since readers are."""

    def __call__(self, options: SourceOptions) -> SourceFeed:
        """Build it, unstarted."""
        ...


def chosen_feed(options: SourceOptions) -> SourceFeed:
    """Build the feed that the options ask for: one that follows a service, or an embedded loop.

    Raises:
        ConfigError: the service's address is none, or a file with its token or certificates cannot be read.

    Runs: Spark's driver-side source runner; reads those files, no other I/O.
    """
    return embedded_feed(options) if options.discovery_url is None else service_feed(options, options.discovery_url)


def service_feed(options: SourceOptions, url: str) -> SourceFeed:
    """Build a feed that follows a service, with an embedded loop in reserve. See `chosen_feed`."""
    from discovery.feed.leading import Limits  # noqa: PLC0415 - as below
    from discovery.feed.service_client import ServiceClient  # noqa: PLC0415 - as below
    from discovery.feed.sidecar import SidecarFeed  # noqa: PLC0415

    configure_logging(as_json=False)
    return SidecarFeed(
        ServiceClient.of(url, cluster=options.discovery_cluster, files=options.discovery_files),
        bootstrap=options.bootstrap,
        interest=options.interest,
        embedded_loop=lambda bootstrap: embedded_feed(replace(options, bootstrap=bootstrap)),
        consumer_id=options.source_id,
        cluster_id=options.cluster_id,
        limits=Limits(age_seconds=options.discovery_max_age_seconds),
    )


def embedded_feed(options: SourceOptions) -> SourceFeed:
    """Build a feed that runs its discovery loop in this process.

    Runs: Spark's driver-side source runner; no I/O.
    """
    # Workers import this module with the reader and never run a loop; without these they start 0.2 s sooner.
    from discovery.feed.bootstrap_file import BootstrapFile  # noqa: PLC0415
    from discovery.feed.embedded import EmbeddedFeed  # noqa: PLC0415

    configure_logging(as_json=False)
    return EmbeddedFeed(
        bootstrap=options.bootstrap,
        bootstrap_file=BootstrapFile(options.bootstrap_file) if options.bootstrap_file is not None else None,
        interest=options.interest,
        client_options=options.client,
        policy=raised(
            Policy(idle_interval_seconds=_IDLE_SECONDS, leader_silence_seconds=options.park_after_seconds),
            options.client,
        ),
        state_dir=options.state_dir or default_state_dir(),
        source_id=options.source_id,
        cluster_id=options.cluster_id,
        list_outvotes=options.begins and options.source_id is None,
        log_context={"source": options.source_id} if options.source_id else None,
    )


def kept_ids(options: SourceOptions) -> TopicIdStore | None:
    """Return where the topic ids of a named source are kept; None without a name.

    Runs: Spark's driver-side source runner; no I/O.
    """
    return TopicIdStore(options.state_dir or default_state_dir(), options.source_id) if options.source_id else None


def opened_cuts(options: SourceOptions, feed: PartitionFeed) -> Cuts | None:
    """Open the ledger of a named source and listen for its workers; None where nothing is ever cut.

    Raises:
        StateError: the ledger is another's or damaged, or the port cannot be had.

    Runs: Spark's driver-side source runner, once; blocks up to 15 s for the last holder to end. A ledger in Kafka
    waits up to `startupTimeout` for a living broker first, then as long for the leader of its topic.
    """
    if options.cuts is None or options.source_id is None:
        return None
    ledger = _ledger(options, options.source_id, options.cuts, feed)
    coordinator = RangeCoordinator(
        ledger,
        # A policy that ends the query at a recreated topic has no use for what is asked here.
        topic_id_of=partial(current_topic_id, feed) if options.restart_recreated else lambda _: None,
        others=partial(_others, options, feed, ledger),
    )
    server = CoordinatorServer(coordinator, host=options.cuts.host, port=options.cuts.port)
    cuts = Cuts(coordinator, server, options.cuts)
    cuts.open()
    return cuts


def no_cut_left_behind(
    options: SourceOptions,
    feed: PartitionFeed,
    *,
    look: Callable[[SourceOptions, PartitionFeed], Mapping[Where, LedgerState]] | None = None,
) -> RefuseStart:
    """Return what refuses to go on from offsets at which a cut waits in a ledger that this start does not use.

    A source without a name looks at all ledger files. Of two named queries one may stand where a cut range of the other
    ends, so a named one looks at the ledger of its own name alone that the other `cutLedger` would use; the rest, in
    files and in Kafka, it sees once a worker has said which query it is (`opened_cuts`). Files that a living process
    holds are another query's: a checkpoint has one driver. A source without a name cannot tell who holds a ledger in
    Kafka: what it finds there is returned, for the workers of that query to refuse.

    Args:
        options: The user's.
        feed: Knows the living brokers.
        look: Reads the ledgers in Kafka; the default asks Kafka.

    Runs: Spark's driver-side source runner; the check reads files, and asks Kafka for up to 10 s where the ledger is a
    file or there is none.
    """

    @cache
    def in_kafka() -> Mapping[Where, LedgerState]:
        return {} if options.cuts is not None and options.cuts.in_kafka else (look or _look_in_kafka)(options, feed)

    @cache
    def certain() -> Mapping[Where, LedgerState]:
        if options.source_id is None or options.cuts is None:
            return _other_files(options)
        if options.cuts.in_kafka:
            return _other_files(options, of=options.source_id)
        own = Where(options.source_id, in_kafka=True)
        return {where: state for where, state in in_kafka().items() if where == own}

    def check(first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int] | None) -> LeftBehind:
        for sentence in left_behind(first, last, certain(), query=None):
            advice = "; where this is another query, give it a stateDir of its own" if options.source_id is None else ""
            raise StateError(f"{sentence}{advice}")
        return {} if options.source_id is not None else left_behind_of(first, last, in_kafka())

    return check


def _others(options: SourceOptions, feed: PartitionFeed, ledger: Ledger) -> Mapping[Where, LedgerState]:
    """Read the ledgers that a named source does not use and no living process of this machine holds.

    In Kafka what is nobody's is left out: its holder may live on another machine.

    Raises:
        StateError: its own ledger is in Kafka, whose topic cannot be read.

    Runs: a thread of the coordinator's server; blocks <= 30 s for a topic without a leader, <= 10 s where its own
    ledger is a file.
    """
    from discovery.spark.source.cuts.ledger_kafka import KafkaLedger  # noqa: PLC0415 - as in `embedded_feed`

    in_kafka = (
        ledger.look_all(held=False) if isinstance(ledger, KafkaLedger) else _look_in_kafka(options, feed, held=False)
    )
    own = Where(options.source_id or "", in_kafka=True)
    return {**_other_files(options), **{where: of_queries(state) for where, state in in_kafka.items() if where != own}}


def _other_files(options: SourceOptions, *, of: str | None = None) -> Mapping[Where, LedgerState]:
    """Read the ledger files that this source does not use and no living process holds; `of` one sourceId alone."""
    from discovery.spark.source.cuts.ledger_file import FileLedger, other_ledgers  # noqa: PLC0415 - as above

    state_dir = options.state_dir or default_state_dir()
    in_file = options.source_id is not None and options.cuts is not None and not options.cuts.in_kafka
    found = other_ledgers(state_dir, besides=[options.source_id] if options.source_id and in_file else [], held=False)
    return (
        found if of is None else {w: s for w, s in found.items() if w.source_id == FileLedger(state_dir, of).path.stem}
    )


def _look_in_kafka(options: SourceOptions, feed: PartitionFeed, *, held: bool = True) -> Mapping[Where, LedgerState]:
    """Look for the ledgers that sources keep in Kafka; a topic out of reach is logged, no more."""
    try:
        return _kafka_ledger(options, options.source_id or "", CUT_LEDGER_TOPIC, feed, _LOOK_SECONDS).look_all(
            held=held
        )
    except (StateError, ConfigError) as error:
        _log.warning(
            "whether a cut of %s waits in a ledger in Kafka (topic %s) is not known: %s; if its cutLedger was kafka "
            "before, stop this query and start it again when that topic can be read",
            "this query" if options.source_id is None else f"sourceId {options.source_id}", CUT_LEDGER_TOPIC, error,
        )  # fmt: skip
        return {}


def current_topic_id(feed: PartitionFeed, topic: TopicName) -> TopicId | None:
    """Return a topic's id of this moment by its first partition, which every topic has; None is unknown.

    Runs: any thread of Spark's driver-side source runner; from memory.
    """
    first = feed.view().partitions.get(TopicPartition(topic, 0))
    return None if first is None else first.topic_id


def _ledger(options: SourceOptions, source_id: str, cuts: CutOptions, feed: PartitionFeed) -> Ledger:
    if not cuts.in_kafka:
        from discovery.spark.source.cuts.ledger_file import FileLedger  # noqa: PLC0415 - as in `embedded_feed`

        return FileLedger(options.state_dir or default_state_dir(), source_id)
    Patience(feed, options, SystemClock()).wait(is_living, options.startup_timeout_seconds)
    # As patient as any start: the topic's leader may be among the dead.
    return _kafka_ledger(options, source_id, cuts.topic, feed, options.startup_timeout_seconds)


def _kafka_ledger(
    options: SourceOptions, source_id: str, topic: TopicName, feed: PartitionFeed, open_timeout_seconds: float
) -> "KafkaLedger":
    from discovery.spark.source.cuts.ledger_kafka import KafkaLedger  # noqa: PLC0415 - as in `embedded_feed`

    return KafkaLedger(
        topic,
        source_id,
        properties=lambda: fresh(options.client).connection,
        brokers=lambda: feed.view().bootstrap or options.bootstrap,
        open_timeout_seconds=open_timeout_seconds,
    )
