"""Data loss, acted on only when a fresh answer confirms it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from discovery.core.errors import DataLossError
from discovery.core.model import TopicId, TopicName, TopicPartition
from discovery.feed.base import FeedView
from discovery.spark.source.options.parse import SourceOptions
from discovery.spark.source.planning.losses import Loss, LossKind, find_losses, summarize
from discovery.spark.source.planning.offsets import Offsets

_CONFIRM_SECONDS = 5.0
_CONFIRM_AGAIN_SECONDS = 10.0
_READABLE_AGAIN_SECONDS = 1.0
"""How long an answer may take that a cut partition still reaches as far, and the least time between two questions."""
_ANSWERS, _LONGEST_CONFIRM_SECONDS = 4, 60.0
"""How many answers of a slow leader that may take, and for how long planning waits at most."""
_NOTHING_TO_SET = frozenset({LossKind.GONE, LossKind.AGED_OUT, LossKind.CUT_SHRUNK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is known of lost records."""

    unsure: frozenset[TopicPartition] = frozenset()
    """Their loss is not confirmed, or, once cut, that they still reach as far: they stay where they are."""
    resets: Offsets = field(default_factory=dict)
    """Where partitions go whose records are lost, with the loss accepted."""
    ends: Offsets = field(default_factory=dict)
    """Where partitions end now whose loss was accepted."""
    settled: bool = False
    """Nothing is left to confirm."""
    ask_seconds: float | None = None
    """A fresh answer, waited for so long, would settle it."""
    seems_lost: bool = False
    accepted: tuple[str, ...] = ()
    """Each accepted loss, for the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossGuard:
    """Under which topic id each partition is read, and which losses were accepted."""

    topic_ids: Mapping[TopicPartition, TopicId] = field(default_factory=dict)
    without_id: frozenset[TopicName] = frozenset()
    """Topics that were read before anybody had reported their id."""
    restarted: Mapping[TopicPartition, tuple[int, TopicId]] = field(default_factory=dict)
    """Accepted restarts that are not known to stand in Spark's log: from which offset, under which former id."""
    accepted: frozenset[tuple[TopicPartition, LossKind]] = frozenset()
    confirm_after: float = float("-inf")

    def learn(self, start: Offsets, view: FeedView) -> "LossGuard":
        """Remember under which id each partition is read; ids change with the generation alone.

        What the checkpoint does not have yet may be another topic by the time it is first read.
        """
        ids, without_id = dict(self.topic_ids), set(self.without_id)
        for tp, partition in view.partitions.items():
            if partition.topic_id is None:
                if tp not in ids and tp.topic not in view.first_topic_ids:
                    without_id.add(tp.topic)
            elif tp in start:
                ids.setdefault(tp, partition.topic_id)
            else:
                ids[tp] = partition.topic_id
        return replace(self, topic_ids=ids, without_id=frozenset(without_id))

    def named(self, start: Offsets, view: FeedView) -> "LossGuard":
        """Give what was read before its id was known the first one that is: it may be another topic by now."""
        known = self.without_id & view.first_topic_ids.keys()
        first = {tp: view.first_topic_ids[tp.topic] for tp in start if tp.topic in known}
        return (
            replace(self, topic_ids={**first, **self.topic_ids}, without_id=self.without_id - known) if known else self
        )

    def at(self, start: Offsets) -> "LossGuard":
        """Take in what Spark's log holds: a restart from a new topic's beginning that it holds is decided for ever."""
        undone = {tp: former for tp, former in self.restarted.items() if start.get(tp) != former[0]}
        return replace(self, restarted=undone) if len(undone) < len(self.restarted) else self

    def behind(self, start: Offsets) -> "LossGuard":
        """Forget what a new query begins at offset 0: of another topic it misses nothing there."""
        return replace(self, topic_ids={tp: known for tp, known in self.topic_ids.items() if start.get(tp, 0) > 0})

    def undone(self, partitions: Iterable[TopicPartition], now: float) -> "LossGuard":
        """Take back restarts that are not planned now: they are found, and confirmed, again a second later."""
        former = {tp: self.restarted[tp][1] for tp in partitions if tp in self.restarted}
        left = {tp: one for tp, one in self.restarted.items() if tp not in former}
        ids = {**self.topic_ids, **former}
        return replace(self, topic_ids=ids, restarted=left, confirm_after=now + _READABLE_AGAIN_SECONDS)

    def kept_ids(self) -> dict[TopicPartition, TopicId]:
        """Return the ids of what the checkpoint has read, so that a restart of a failed query fails again."""
        return {**self.topic_ids, **{tp: former for tp, (_, former) in self.restarted.items()}}

    def resume(self, start: Offsets, view: FeedView, kept: Mapping[TopicPartition, TopicId]) -> "LossGuard":
        """Take over from earlier runs of this source under which ids it read: a topic may be another one by now."""
        seen = {tp: known for tp in start if (known := view.last_run_topic_ids.get(tp.topic)) is not None}
        saved = {tp: topic_id for tp, topic_id in kept.items() if tp in start}
        return replace(self, topic_ids={**seen, **self.topic_ids, **saved})

    def identifies(self, view: FeedView) -> bool:
        """Tell whether the present id of everything that was read before is known."""
        return all(tp not in view.partitions or view.partitions[tp].topic_id is not None for tp in self.topic_ids)

    def refuse_recreated(self, planned: Offsets, view: FeedView, options: SourceOptions) -> frozenset[TopicPartition]:
        """Refuse to replay a batch over a topic that was recreated since it was planned; return what is, if accepted.

        Partitions that the new topic does not have are of the old one, too.

        Raises:
            DataLossError: names the partitions.
        """
        losses = [loss for loss in _losses(self, planned, view, options, {}) if loss.kind is LossKind.RECREATED]
        if losses and not options.restart_recreated:
            raise DataLossError(summarize(tuple(losses)))
        lost = frozenset(loss.topic_partition for loss in losses)
        now = {tp.topic: view.partitions[tp].topic_id for tp in lost}
        absent = (tp for tp in planned if tp.topic in now and (tp not in view.partitions or view.partitions[tp].gone))
        return lost.union(tp for tp in absent if self.topic_ids.get(tp) != now[tp.topic])

    def gone(self) -> set[TopicPartition]:
        """Return the partitions that do not exist any more, with the loss accepted."""
        return {tp for tp, kind in self.accepted if kind is LossKind.GONE}


def judge(
    guard: LossGuard,
    start: Offsets,
    view: FeedView,
    options: SourceOptions,
    *,
    now: float,
    cut_ends: Offsets,
    is_fresh: bool = False,
) -> tuple[LossGuard, Judgement]:
    """Compare the query's offsets with what there is; an unconfirmed loss leaves its partition where it is.

    Args:
        guard: What is known of earlier pictures.
        start: Where the last batch ended.
        view: The feed's picture.
        options: Which losses may be accepted.
        now: Monotonic seconds.
        cut_ends: Where ranges that were cut had been planned to end; a fresh answer must reach that far.
        is_fresh: The picture is the answer that was asked for.

    Raises:
        DataLossError: confirmed, and `failOnDataLoss` is true.
    """
    guard = guard.named(start, view)
    losses = _losses(guard, start, view, options, cut_ends)
    if is_fresh:
        return _confirmed(replace(guard, confirm_after=float("-inf")), losses, view, options, cut_ends)
    unsure = frozenset(cut_ends).union(loss.topic_partition for loss in losses)
    if not losses and not _readable(cut_ends, view):
        return guard, Judgement(unsure=unsure, settled=True)
    if now < guard.confirm_after:
        return guard, Judgement(unsure=unsure, seems_lost=bool(losses))
    again, ask = (_CONFIRM_AGAIN_SECONDS, _CONFIRM_SECONDS) if losses else (_READABLE_AGAIN_SECONDS,) * 2
    slowest = max((p.answer_seconds for tp in unsure if (p := view.partitions.get(tp)) is not None), default=0.0)
    ask = max(ask, min(_ANSWERS * slowest, _LONGEST_CONFIRM_SECONDS))
    found = Judgement(unsure=unsure, ask_seconds=ask, seems_lost=bool(losses))
    return replace(guard, confirm_after=now + again), found


def _losses(
    guard: LossGuard, start: Offsets, view: FeedView, options: SourceOptions, cut_ends: Offsets
) -> tuple[Loss, ...]:
    interest = options.interest
    found = find_losses(
        start,
        view,
        isolation=interest.isolation,
        topic_ids=guard.topic_ids,
        followed={tp.topic: interest.wants_topic(tp.topic) for tp in start if tp not in view.partitions},
        cut_ends=cut_ends,
    )
    return tuple(loss for loss in found if (loss.topic_partition, loss.kind) not in guard.accepted)


def _confirmed(
    guard: LossGuard, losses: tuple[Loss, ...], view: FeedView, options: SourceOptions, cut_ends: Offsets
) -> tuple[LossGuard, Judgement]:
    """Go on behind lost records, or refuse to."""
    recreated = LossKind.RECREATED
    may_accept = dict.fromkeys(LossKind, not options.fail_on_data_loss) | {recreated: options.restart_recreated}
    if fatal := tuple(loss for loss in losses if not may_accept[loss.kind]):
        raise DataLossError(summarize(fatal))
    ends = {tp: p.end_offset(options.interest.isolation) for tp, p in view.partitions.items()} if losses else {}
    settable = {loss.topic_partition: loss.kind for loss in losses if loss.kind not in _NOTHING_TO_SET}
    # A recreated topic is read from its beginning; a truncated one, as the native source does, from its end.
    places = {tp: view.partitions[tp].start_offset if k is recreated else ends[tp] for tp, k in settable.items()}
    resets = {tp: place for tp, place in places.items() if place is not None}
    # A cut one stands at its cut and reads on there; what came since the truncation is not skipped.
    shrunk = [loss.topic_partition for loss in losses if loss.kind is LossKind.CUT_SHRUNK]
    new_ids = {tp: known for tp in resets if (known := view.partitions[tp].topic_id) is not None}
    began = {tp: (at, guard.topic_ids[tp]) for tp, at in resets.items() if settable[tp] is recreated}
    # Nothing to set for the others: what begins too early is cut by the worker, which knows the newest start.
    left = {(x.topic_partition, x.kind) for x in losses if x.kind in {LossKind.GONE, LossKind.AGED_OUT}}
    guard = replace(
        guard,
        topic_ids={**guard.topic_ids, **new_ids},
        restarted={**guard.restarted, **began},
        accepted=guard.accepted | left,
    )
    unplaced = settable.keys() - resets.keys()
    return guard, Judgement(
        unsure=frozenset(cut_ends) - (_readable(cut_ends, view) - unplaced),
        resets=resets,
        ends={tp: ends[tp] or at for tp, at in resets.items()} | {tp: ends.get(tp) or 0 for tp in shrunk},
        settled=not unplaced,
        accepted=tuple(f"({_option(loss)}): {loss.text}" for loss in losses),
    )


def _option(loss: Loss) -> str:
    return "onTopicRecreated=restart" if loss.kind is LossKind.RECREATED else "failOnDataLoss=false"


def _readable(partitions: Iterable[TopicPartition], view: FeedView) -> frozenset[TopicPartition]:
    known = {tp: view.partitions[tp] for tp in partitions if tp in view.partitions}
    return frozenset(tp for tp, p in known.items() if not p.gone and p.parked_reason is None)
