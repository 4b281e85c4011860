"""What is asked of a cluster before a sink writes to it: living brokers, topics, rights, a control record.

Apart from `preflight`, which every batch imports in new processes: this brings Kafka's client and a discovery loop.
"""

import logging
import time
from dataclasses import replace

from discovery.config.clock import SystemClock
from discovery.core.errors import ConfigError, KafkaUnreachableError, SinkRefusedError, StateError
from discovery.core.model import BrokerAddress, ClusterId, TopicName
from discovery.core.plural import counted
from discovery.feed.base import FeedView, Interest, verdicts
from discovery.kafka.topics import TopicAdmin, TopicShape
from discovery.spark.sink.lanes import RETENTION_SECONDS, Refusal, believed_seconds
from discovery.spark.sink.ledger import SinkLedger, commit_marker, fence_lanes, recording, until
from discovery.spark.sink.marker import CLOSED, MAX_LANES, Control, beginning
from discovery.spark.sink.options import SinkOptions
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.renewal import current_control
from discovery.spark.source.feeds import chosen_feed
from discovery.spark.source.options.parse import SourceOptions
from discovery.spark.source.planning.start import is_living
from discovery.spark.source.waiting import Patience

_log = logging.getLogger("kafka_discovery.sink")
_ANSWER_SECONDS = 30.0
_CONFIG_SECONDS = 5.0
_ENOUGH_BROKERS = 3
_MORE_SECONDS = 0.3
"""How long more brokers are waited for, once one lives."""
LEDGER_PARTITIONS = 32
_RIGHTS = "READ, WRITE and DESCRIBE"


def check_cluster(plan: SinkPlan) -> SinkPlan:
    """Find out whether a sink can write, and begin its control record.

    Returns:
        The plan with `max.message.bytes` of the topics that the options name, and how long brokers keep markers.

    Raises:
        ConfigError: an option does not fit the cluster.
        SinkRefusedError: a batch was left between two numbers of lanes, or markers are lost.
        TransactionError: no answer in time.

    Runs: driver, at a query's start and every ten minutes; blocks <= 3 min.
    """
    admin = TopicAdmin(plan.access)
    largest = _check_topics(plan, admin)
    # Whether timeout and id are admitted is found by asking.
    recording(plan).fence(until(_ANSWER_SECONDS))
    checked = replace(plan, largest_bytes=largest, retention_seconds=_retention_seconds(plan, admin))
    _begin_control(checked)
    return checked


def _retention_seconds(plan: SinkPlan, admin: TopicAdmin) -> int:
    kept = admin.offsets_retention_seconds(timeout_seconds=_CONFIG_SECONDS)
    if kept is None:
        _log.info(
            "sinkId %r: brokers do not report offsets.retention.minutes (allow DESCRIBE_CONFIGS on the cluster); taken "
            "as 7 days",
            plan.options.sink_id,
        )  # fmt: skip
    return RETENTION_SECONDS if kept is None else kept


def living_brokers(options: SinkOptions) -> tuple[BrokerAddress, ...]:
    """Return vetted brokers, best first, as the source's readers get them.

    Raises:
        KafkaUnreachableError: none within `startupTimeout`.

    Runs: driver; blocks <= `startupTimeout`, with living brokers under a second.
    """
    try:
        return _living_brokers(options, name=None if options.discovery_url else f"sink.{options.sink_id}")
    except StateError:
        # Another process looks for the same sink and is frozen in it: the saved view is not worth waiting for.
        return _living_brokers(options, name=None)


def _living_brokers(options: SinkOptions, *, name: str | None) -> tuple[BrokerAddress, ...]:
    source = SourceOptions(
        bootstrap=options.bootstrap,
        # No topic: one that the login may not see would look like a cluster that is away.
        interest=Interest(brokers_only=True),
        client=options.client,
        startup_timeout_seconds=options.startup_timeout_seconds,
        state_dir=options.state_dir,
        source_id=name,
        cluster_id=None if options.cluster_id is None else ClusterId(options.cluster_id),
        discovery_url=options.discovery_url,
        discovery_cluster=options.discovery_cluster,
        discovery_files=options.discovery_files,
    )
    feed = chosen_feed(source)
    try:
        feed.start()
        patience = Patience(feed, source, SystemClock())
        view = patience.wait(is_living, options.startup_timeout_seconds, _say)
        if not is_living(view):
            raise KafkaUnreachableError(
                f"startupTimeout: after {options.startup_timeout_seconds:g} s no living broker; {verdicts(view)}"
            )
        view = patience.wait(lambda v: len(v.bootstrap) >= _ENOUGH_BROKERS, _MORE_SECONDS)
    finally:
        feed.stop()
    return view.bootstrap


def _say(view: FeedView) -> None:
    _log.warning("the sink cannot start yet: %s", verdicts(view))


def _check_topics(plan: SinkPlan, admin: TopicAdmin) -> dict[TopicName, int]:
    options = plan.options
    wanted = {"topic": options.topic or options.named_topic, "deadLetterTopic": options.dead_letter_topic}
    for option, topic in wanted.items():
        if topic is None:
            continue
        if admin.shape(topic, timeout_seconds=_ANSWER_SECONDS) is None:
            raise ConfigError(f"{option}: topic {topic} does not exist; create it, or correct the name")
        if not admin.may_write(topic, timeout_seconds=_CONFIG_SECONDS):
            raise ConfigError(f"{option}: this login may not write to topic {topic}; allow WRITE on it")
    shape = admin.shape(options.marker_topic, timeout_seconds=_ANSWER_SECONDS, rights=_RIGHTS)
    if shape is None:
        partitions = min(MAX_LANES, max(LEDGER_PARTITIONS, options.lanes))
        admin.create(options.marker_topic, partitions=partitions, timeout_seconds=_ANSWER_SECONDS)
    else:
        _check_ledger(options, shape, admin, brokers=len(plan.brokers))
    if not admin.may_write(options.marker_topic, timeout_seconds=_CONFIG_SECONDS):
        raise ConfigError(
            f"markerTopic: this login may not write to topic {options.marker_topic}; allow {_RIGHTS} on it"
        )
    named = [topic for topic in wanted.values() if topic is not None]
    return dict(admin.largest_records(named, timeout_seconds=_ANSWER_SECONDS))


def _check_ledger(options: SinkOptions, shape: TopicShape, admin: TopicAdmin, *, brokers: int) -> None:
    policy = admin.cleanup_policy(options.marker_topic, timeout_seconds=_CONFIG_SECONDS)
    if policy not in {None, "compact"}:
        raise ConfigError(
            f"markerTopic: topic {options.marker_topic} has cleanup.policy={policy}, so brokers would delete markers; "
            "set it to compact, or name another topic"
        )
    if shape.partitions < options.lanes:
        raise ConfigError(
            f"lanes: {options.lanes} are more than the {counted(shape.partitions, 'partition')} of "
            f"{options.marker_topic}; add partitions to it, or use fewer lanes"
        )
    if shape.replicas < _ENOUGH_BROKERS <= brokers:
        _log.warning(
            "topic %s has %d replicas: one broker's loss may stop the sink; give it 3",
            options.marker_topic, shape.replicas,
        )  # fmt: skip


def _begin_control(plan: SinkPlan) -> None:
    """Write the first control record of a sink, or that of a new number of lanes."""
    options, ledger = plan.options, SinkLedger(plan)
    control = current_control(plan, ledger)
    if control is None:
        markers = ledger.markers(range(options.lanes), timeout_seconds=_ANSWER_SECONDS)
        if markers:
            raise _lost(plan, "there are markers and no control record")
        ledger.write_control(_first(options), timeout_seconds=_ANSWER_SECONDS)
    elif control.lanes != options.lanes:
        _change_lanes(plan, ledger, control)


def _first(options: SinkOptions) -> Control:
    return Control(
        query_id="",
        batch_id=-1,
        lanes=options.lanes,
        generation=1,
        wall_seconds=int(time.time()),
        is_recorded=options.is_recorded,
        source=options.source_topic,
        target=None if options.source_topic is None else options.topic,
    )


def _change_lanes(plan: SinkPlan, ledger: SinkLedger, control: Control) -> None:
    """Begin a generation with another number of lanes, where the last batch is complete in all of them.

    A worker of the last run may still be at it, in a lane that this run does not have. So: close the record, so that
    no attempt is let in any more; fence every lane, so that none that was let in can commit; look; leave a marker of
    the new generation in each lane, for whoever a late word of an earlier driver lets in; open it again. A driver that
    dies in between leaves it closed, and the next start does the same from the beginning.
    """
    known, wanted = control.known_lanes, plan.options.lanes
    _refuse_forgotten(plan, control)
    ledger.write_control(replace(control, lanes=CLOSED + known), timeout_seconds=_ANSWER_SECONDS)
    fences = fence_lanes(plan, known)
    markers = ledger.markers(range(known), timeout_seconds=_ANSWER_SECONDS)
    current = [marker for marker in markers.values() if marker.generation >= control.generation]
    last = max((marker.generation for marker in current), default=control.generation)
    if any(marker.generation > control.generation and marker.batch_id != control.batch_id for marker in current):
        raise _lost(plan, f"a marker is of generation {last}, the control record of {control.generation}")
    begun = max((marker.batch_id for marker in current), default=-1)
    opened = replace(control, lanes=known)
    if begun <= control.batch_id and (wanted != known or last > control.generation):
        opened = replace(opened, lanes=wanted, generation=last + 1, wall_seconds=int(time.time()), lane_walls=())
        if plan.options.source_topic is None:
            for lane, fence in enumerate(fences):
                commit_marker(ledger, fence, lane, beginning(opened))  # fails where another start has fenced us since
    ledger.write_control(opened, timeout_seconds=_ANSWER_SECONDS)
    if opened.lanes != wanted:
        raise SinkRefusedError(
            f"sinkId {plan.options.sink_id!r}: {Refusal.LANE_COUNT_CHANGED.value}: batch {begun} was begun with "
            f"{counted(known, 'lane')} and is not complete; start once with lanes={known}, then change it"
        )


def _refuse_forgotten(plan: SinkPlan, control: Control) -> None:
    """What no record tells, and offsets perhaps no longer."""
    if control.is_recorded or time.time() - control.wall_seconds < believed_seconds(plan.retention_seconds):
        return
    raise _lost(plan, "the control record is as old as brokers keep markers")


def _lost(plan: SinkPlan, why: str) -> SinkRefusedError:
    return SinkRefusedError(
        f"sinkId {plan.options.sink_id!r}: {Refusal.LEDGER_LOST.value}: {why}; find out what of the last batch is in "
        "the topic, then run `kafka-discovery sink takeover`"
    )
