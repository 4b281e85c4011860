"""Data loss, acted on only when a fresh answer confirms it."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from discovery.core.clock import Clock
from discovery.core.errors import DataLossError, KafkaUnreachableError
from discovery.core.model import TopicId, TopicName, TopicPartition
from discovery.feed.base import FeedView, PartitionFeed
from discovery.spark.source.options.parse import SourceOptions
from discovery.spark.source.planning.losses import Loss, LossKind, find_losses, summarize
from discovery.spark.source.planning.offsets import Offsets
from discovery.store.topic_ids import TopicIdStore

_log = logging.getLogger("kafka_discovery.source")
_CONFIRM_SECONDS = 5.0
_CONFIRM_AGAIN_SECONDS = 10.0
_LOOK_SECONDS = 1.0
_NOTHING_TO_SET = frozenset({LossKind.GONE, LossKind.AGED_OUT, LossKind.CUT_SHRUNK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a check found out."""

    view: FeedView
    """The newest one."""
    resets: Offsets
    """Where partitions go whose records are lost, with the loss accepted."""
    settled: bool
    """Nothing is left to confirm."""
    unsure: frozenset[TopicPartition] = frozenset()
    """Their loss is not confirmed, or, once cut, that they still reach as far: they stay where they are."""


class LossGuard:
    """Remembers under which topic id each partition is read and which losses were accepted. One thread."""

    def __init__(
        self, feed: PartitionFeed, options: SourceOptions, clock: Clock, *, ids: TopicIdStore | None = None
    ) -> None:
        """Know nothing yet; `ids` keeps the topic ids of a named source, None: they are forgotten with the process."""
        self._feed = feed
        self._options = options
        self._clock = clock
        self._ids = ids
        self._topic_ids: dict[TopicPartition, TopicId] = {}
        self._without_id: set[TopicName] = set()
        """Topics that were read before anybody had reported their id."""
        self._restarted: dict[TopicPartition, tuple[int, TopicId]] = {}
        """Accepted restarts that are not known to stand in Spark's log: from which offset, under which former id."""
        self._saved: dict[TopicPartition, TopicId] | None = None
        self._restarts = options.restart_recreated
        self._accepted: set[tuple[TopicPartition, LossKind]] = set()
        self._confirm_after = float("-inf")

    def learn(self, start: Offsets, view: FeedView) -> None:
        """Remember under which id each partition is read; ids change with the generation alone.

        What the checkpoint does not have yet may be another topic by the time it is first read.
        """
        for tp, partition in view.partitions.items():
            if partition.topic_id is None:
                if tp in start and tp not in self._topic_ids and tp.topic not in view.first_topic_ids:
                    self._without_id.add(tp.topic)
            elif tp in start:
                self._topic_ids.setdefault(tp, partition.topic_id)
            else:
                self._topic_ids[tp] = partition.topic_id
        self._save()

    def _name(self, start: Offsets, view: FeedView) -> None:
        """Give what was read before its id was known the first one that is: it may be another topic by now."""
        known = self._without_id & view.first_topic_ids.keys()
        if known:
            for tp in start:
                if tp.topic in known:
                    self._topic_ids.setdefault(tp, view.first_topic_ids[tp.topic])
            self._without_id -= known

    def note_stand(self, start: Offsets) -> None:
        """Hear where Spark's log stands: a restart from a new topic's beginning that stands there is decided for ever.

        Runs: driver, once per plan; from memory, but for the plan after such a restart.
        """
        done = [tp for tp, (place, _) in self._restarted.items() if start.get(tp) == place]
        if done:
            for tp in done:
                del self._restarted[tp]
            self._save()

    def _save(self) -> None:
        """Keep the ids of what the checkpoint has read, so that a restart of a failed query fails again."""
        if self._ids is None:
            return
        ids = {**self._topic_ids, **{tp: former for tp, (_, former) in self._restarted.items()}}
        if ids != self._saved and self._ids.save(ids):
            self._saved = ids

    def resume(self, start: Offsets, view: FeedView) -> None:
        """Take over from earlier runs of this source under which ids it read: a topic may be another one by now."""
        kept = self._ids.load() if self._ids is not None else {}
        self._topic_ids |= {tp: topic_id for tp, topic_id in kept.items() if tp in start}
        for tp in start:
            if (known := view.last_run_topic_ids.get(tp.topic)) is not None:
                self._topic_ids.setdefault(tp, known)
        # Kept before it is judged: the saved view, of which it may come, moves on even if this run fails.
        self._save()

    def identifies(self, view: FeedView) -> bool:
        """Tell whether the present id of everything that was read before is known."""
        return all(tp not in view.partitions or view.partitions[tp].topic_id is not None for tp in self._topic_ids)

    def refuse_recreated(self, planned: Offsets, view: FeedView) -> frozenset[TopicPartition]:
        """Refuse to replay a batch over a topic that was recreated since it was planned; return what is, if accepted.

        Partitions that the new topic does not have are of the old one, too.

        Raises:
            DataLossError: names the partitions.
        """
        losses = [loss for loss in self._losses(planned, view) if loss.kind is LossKind.RECREATED]
        if losses and not self._restarts:
            raise DataLossError(summarize(tuple(losses)))
        lost = frozenset(loss.topic_partition for loss in losses)
        now = {tp.topic: view.partitions[tp].topic_id for tp in lost}
        absent = (tp for tp in planned if tp.topic in now and (tp not in view.partitions or view.partitions[tp].gone))
        return lost.union(tp for tp in absent if self._topic_ids.get(tp) != now[tp.topic])

    def gone(self) -> set[TopicPartition]:
        """Return the partitions that do not exist any more, with the loss accepted."""
        return {tp for tp, kind in self._accepted if kind is LossKind.GONE}

    def check(
        self,
        start: Offsets,
        view: FeedView,
        *,
        on_reset: Callable[[TopicPartition, int], None],
        cut_ends: Offsets | None = None,
    ) -> Checked:
        """Compare the query's offsets with what there is; an unconfirmed loss leaves its partition where it is.

        Args:
            start: Where the last batch ended.
            view: The feed's picture.
            on_reset: Hears of partitions whose loss was accepted, with the end they have now.
            cut_ends: Where ranges that were cut had been planned to end; a fresh answer must reach that far.

        Raises:
            DataLossError: confirmed, and `failOnDataLoss` is true.

        Runs: driver; from memory, or <= 5 s at most every 10 s while something seems lost; <= 1 s once a partition
        that was cut can be read again.
        """
        cut_ends = cut_ends or {}
        self._name(start, view)
        seeming = self._losses(start, view, cut_ends)
        unsure = frozenset(cut_ends).union(loss.topic_partition for loss in seeming)
        if not seeming and not _readable(cut_ends, view):
            return Checked(view=view, resets={}, settled=True, unsure=unsure)
        if self._clock.monotonic() < self._confirm_after:
            return Checked(view=view, resets={}, settled=False, unsure=unsure)
        self._confirm_after = self._clock.monotonic() + (_CONFIRM_AGAIN_SECONDS if seeming else _LOOK_SECONDS)
        try:
            view = self._feed.refresh(_CONFIRM_SECONDS if seeming else _LOOK_SECONDS)
        except KafkaUnreachableError as error:
            if seeming:
                _log.warning("records seem lost, but nobody can confirm it now: %s", error)
            return Checked(view=view, resets={}, settled=False, unsure=unsure)
        losses = self._losses(start, view, cut_ends)
        self._confirm_after = float("-inf")
        if fatal := tuple(loss for loss in losses if not self._may_accept(loss)):
            raise DataLossError(summarize(fatal))
        resets = self._accept(losses, view, on_reset)
        unplaced = {
            loss.topic_partition
            for loss in losses
            if loss.kind not in _NOTHING_TO_SET and loss.topic_partition not in resets
        }
        unread = frozenset(cut_ends) - (_readable(cut_ends, view) - unplaced)
        return Checked(view=view, resets=resets, settled=not unplaced, unsure=unread)

    def _losses(self, start: Offsets, view: FeedView, cut_ends: Offsets | None = None) -> tuple[Loss, ...]:
        interest = self._options.interest
        found = find_losses(
            start,
            view,
            isolation=interest.isolation,
            topic_ids=self._topic_ids,
            followed={tp.topic: interest.wants_topic(tp.topic) for tp in start if tp not in view.partitions},
            cut_ends=cut_ends,
        )
        return tuple(loss for loss in found if (loss.topic_partition, loss.kind) not in self._accepted)

    def _may_accept(self, loss: Loss) -> bool:
        if loss.kind is LossKind.RECREATED:
            return self._restarts
        return not self._options.fail_on_data_loss

    def _accept(
        self, losses: tuple[Loss, ...], view: FeedView, on_reset: Callable[[TopicPartition, int], None]
    ) -> Offsets:
        """Go on behind lost records; returns where partitions are set to."""
        resets: Offsets = {}
        for loss in losses:
            option = "onTopicRecreated=restart" if loss.kind is LossKind.RECREATED else "failOnDataLoss=false"
            _log.warning("data loss accepted (%s): %s", option, loss.text)
            tp, known = loss.topic_partition, view.partitions.get(loss.topic_partition)
            if loss.kind is LossKind.CUT_SHRUNK:
                # It stands at its cut and reads on there; what came since the truncation is not skipped.
                on_reset(tp, (known and known.end_offset(self._options.interest.isolation)) or 0)
            elif loss.kind in _NOTHING_TO_SET:
                # Nothing to set: a range that begins too early is cut by the worker, which knows the newest start.
                self._accepted.add((tp, loss.kind))
            elif known is not None and (place := self._after(loss, view)) is not None:
                resets[tp] = place
                if loss.kind is LossKind.RECREATED:
                    self._restarted[tp] = (place, self._topic_ids[tp])
                if known.topic_id is not None:
                    self._topic_ids[tp] = known.topic_id
                on_reset(tp, known.end_offset(self._options.interest.isolation) or place)
        return resets

    def _after(self, loss: Loss, view: FeedView) -> int | None:
        """A recreated topic is read from its beginning; a truncated one, as the native source does, from its end."""
        partition = view.partitions[loss.topic_partition]
        if loss.kind is LossKind.RECREATED:
            return partition.start_offset
        return partition.end_offset(self._options.interest.isolation)


def _readable(partitions: Iterable[TopicPartition], view: FeedView) -> frozenset[TopicPartition]:
    known = {tp: view.partitions[tp] for tp in partitions if tp in view.partitions}
    return frozenset(tp for tp, p in known.items() if not p.gone and p.parked_reason is None)


def refuse_rewinds(
    first: Offsets, last: Offsets, *, is_cut: Callable[[TopicPartition, int, int], bool] | None = None
) -> None:
    """Refuse a plan that goes back, unless a cut is the reason.

    Raises:
        DataLossError: names the partitions.

    Runs: anywhere (pure).
    """
    losses = tuple(
        Loss(
            kind=LossKind.SHRUNK,
            topic_partition=tp,
            text=f"the checkpoint plans {tp} back from offset {first[tp]} to {until}: "
            "the topic was truncated or recreated, or sourceId is not the one under which it was cut",
        )
        for tp, until in last.items()
        if until < first.get(tp, until) and not (is_cut is not None and is_cut(tp, first[tp], until))
    )
    if losses:
        raise DataLossError(summarize(losses))
