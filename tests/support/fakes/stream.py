"""A scripted consumer and a scripted arbiter for the task of the data plane."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa

from discovery.core.errors import GatewayError
from discovery.core.model import BrokerAddress, TopicPartition
from discovery.spark.fetch import FetchRange
from discovery.spark.fetch.client import Piece
from discovery.spark.fetch.evidence import Check
from tests.support.fakes.clock import FakeClock

_BATCH = pa.record_batch({"row": [0]})


class ScriptedStream:
    """See `Stream`. Plays pieces in turn; when none is left, a poll takes its whole time and brings nothing."""

    def __init__(self, clock: FakeClock) -> None:
        self.brokers: tuple[BrokerAddress, ...] = ()
        self.positions: dict[TopicPartition, int] = {}
        self.failure: GatewayError | None = None
        self.all_down = False
        self.stood_still = False
        self.awaited: frozenset[TopicPartition] = frozenset()
        self.script: deque[Piece | Callable[[], None]] = deque()
        self.log: list[str] = []
        self.marks: dict[TopicPartition, tuple[int, int]] = {}
        self.refusals: dict[TopicPartition, int] = {}
        self.there: bool | None = None
        self.leads: dict[TopicPartition, BrokerAddress | None] = {}
        self.waited_seconds = 0.0
        """The longest that one question was allowed to take."""
        self._clock = clock

    def rows(self, tp: TopicPartition, upto: int, *, end: int | None = None) -> None:
        """Script a batch whose last row stands before `upto`; `end`: where the stream stands after it."""
        self.script.append(Piece(batch=_BATCH, delivered={tp: upto}, reached={tp: end or upto}, heard=True))

    def gap(self, tp: TopicPartition, upto: int, *, caught_up: bool = False) -> None:
        """Script a move without rows."""
        ended = frozenset([tp]) if caught_up else frozenset()
        self.script.append(Piece(reached={tp: upto}, caught_up=ended, heard=True))

    def refuse(self, tp: TopicPartition) -> None:
        """Script what `refusals` holds for a partition; it is raised once each time the stream is assigned."""
        if tp in self.refusals:
            self.script.appendleft(Piece(refused={tp: self.refusals[tp]}, heard=True))

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self.positions = dict(starts)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.log.append(f"seek {tp} to {offset}")
        self.refuse(tp)
        self.positions[tp] = offset

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self.log.append(f"unassign {tp}")
            del self.positions[tp]

    def read(self, ends: Mapping[TopicPartition, int], missing_rows: int | None, timeout_seconds: float) -> Piece:
        while self.script:
            step = self.script.popleft()
            if isinstance(step, Piece):
                self.positions.update({tp: at for tp, at in step.reached.items() if tp in self.positions})
                return step
            step()
        self._clock.advance(timeout_seconds)
        return Piece()

    def watermarks(self, tp: TopicPartition, timeout_seconds: float) -> tuple[int, int] | None:
        self.waited_seconds = max(self.waited_seconds, timeout_seconds)
        return self.marks.get(tp)

    def exists(self, tp: TopicPartition, timeout_seconds: float) -> bool | None:
        self.waited_seconds = max(self.waited_seconds, timeout_seconds)
        return self.there

    def leaders(
        self, partitions: Collection[TopicPartition], timeout_seconds: float
    ) -> Mapping[TopicPartition, BrokerAddress | None]:
        self.waited_seconds = max(self.waited_seconds, timeout_seconds)
        return {tp: at for tp, at in self.leads.items() if tp in partitions}

    def rebuild(self, brokers: Sequence[BrokerAddress]) -> None:
        self.log.append(f"rebuild on {len(brokers)}")
        self.brokers = tuple(brokers)


class ScriptedChecks:
    """TCP checks whose answers are scripted, by address: what is not scripted does not answer."""

    def __init__(self) -> None:
        self.refuses: dict[BrokerAddress, bool] = {}
        self.begun: list[BrokerAddress] = []

    def begin(self, address: BrokerAddress) -> Check:
        self.begun.append(address)
        answer = self.refuses.get(address)
        return lambda: answer


class ScriptedArbiter:
    """See `Arbiter`. Agrees to what is proposed, unless given another end."""

    def __init__(
        self, *, cuts: Mapping[FetchRange, int] | None = None, ends: Mapping[FetchRange, int] | None = None
    ) -> None:
        self.cut_after_seconds = 1.0
        self.cuts = dict(cuts or {})
        self.ends = dict(ends or {})
        self.asked: list[tuple[FetchRange, ...]] = []
        self.proposed: list[dict[FetchRange, int]] = []
        self.on_decide: Callable[[], None] = lambda: None

    def known(self, ranges: Collection[FetchRange]) -> Mapping[FetchRange, int]:
        self.asked.append(tuple(ranges))
        return {r: self.cuts[r] for r in ranges if r in self.cuts}

    def decide(self, proposed: Mapping[FetchRange, int]) -> Mapping[FetchRange, int]:
        self.proposed.append(dict(proposed))
        self.on_decide()
        return {r: self.ends.get(r, end) for r, end in proposed.items()}
