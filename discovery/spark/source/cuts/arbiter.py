"""The worker's end of the coordinator: asks where ranges end, again and again until it is answered."""

import logging
import socket
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import tenacity
from pyspark import TaskContext

from discovery.core.errors import ArbiterError, StateError, WireError
from discovery.core.model import TopicPartition
from discovery.spark.fetch import FetchRange
from discovery.spark.source.cuts.left_behind import LeftBehind, planned_without
from discovery.spark.source.cuts.wire import (
    MAGIC,
    pack_ends,
    receive_frame,
    send_frame,
    unpack_ends,
)

_log = logging.getLogger("kafka_discovery.source")
_ANSWERS = 4
"""How many of a slow leader's answers are waited for: a new client needs three, one after another."""
_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 15.0
_REPEAT_SECONDS = 10.0
_DEADLINE_SECONDS = 40.0
"""Longer than a ledger in Kafka may be busy with one write: who has asked for it hears nothing meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a task needs to ask; travels with its ranges. `repr` hides the token."""

    host: str | None
    """None: where Spark's driver says it is."""
    port: int
    token: bytes = field(repr=False)
    plan: int
    cut_after_seconds: float
    undecided: frozenset[TopicPartition]
    """Partitions whose end was open when the task was planned; all others end as planned."""
    slow: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Partitions that wait a multiple of that time, since they were cut for nothing before."""
    split: frozenset[TopicPartition] = frozenset()
    """Partitions that several tasks read, a piece each."""
    introduce: bool = False
    """Ask although nothing is open: the driver must hear from a worker whose batch this is."""


def for_ranges(ticket: Ticket | None, ranges: Collection[FetchRange]) -> Ticket | None:
    """Return the ticket of one task, with its own partitions alone; None where it has nothing to ask.

    Runs: anywhere (pure).
    """
    if ticket is None:
        return None
    own = ticket.undecided.intersection(r.topic_partition for r in ranges)
    if not own and not ticket.introduce:
        return None
    wait_seconds = ticket.cut_after_seconds * max((ticket.slow.get(tp, 1) for tp in own), default=1)
    slowest = max((r.answer_seconds for r in ranges if r.topic_partition in own), default=0.0)
    wait_seconds = max(wait_seconds, _ANSWERS * slowest)
    return replace(ticket, undecided=own, split=ticket.split & own, cut_after_seconds=wait_seconds, slow={})


class _UnansweredError(Exception):
    """This attempt to ask failed; the next one may not."""


class _NotYetError(Exception):
    """The driver answers, and cannot settle it now: its ledger is out of order."""


class TcpArbiter:
    """`discovery.spark.fetch.Arbiter` over TCP: one connection per question. One thread."""

    def __init__(self, ticket: Ticket, *, deadline_seconds: float = _DEADLINE_SECONDS) -> None:
        """Remember whom to ask; connects to nobody."""
        self.cut_after_seconds = ticket.cut_after_seconds
        self._ticket = ticket
        self._deadline_seconds = deadline_seconds
        self._host = ticket.host or driver_host()
        self._heard_at = 0.0
        self._say_after = 0.0

    def known(self, ranges: Collection[FetchRange]) -> Mapping[FetchRange, int]:
        """See `Arbiter.known`.

        A first attempt asks too: a second action on the same batch is a first attempt as well.
        """
        ends = {r: r.end_offset for r in ranges if r.topic_partition not in self._ticket.undecided}
        open_ = [r for r in ranges if r not in ends]
        if open_ or self._ticket.introduce:
            answered = self._ask("known", {r: r.end_offset for r in open_})
            ends |= {r: answered[r.topic_partition] for r in open_ if r.topic_partition in answered}
        return ends

    def decide(self, proposed: Mapping[FetchRange, int]) -> Mapping[FetchRange, int]:
        """See `Arbiter.decide`. Asks again until it is answered: asking twice changes nothing.

        A driver that is silent for 40 s is given up. One whose ledger cannot be written is waited for, as a leader
        would be: to fail would end the query for an outage of its ledger.
        """
        answered = self._ask("decide", proposed)
        return {r: answered[r.topic_partition] for r in proposed if r.topic_partition in answered}

    def _ask(self, what: str, proposed: Mapping[FetchRange, int]) -> dict[TopicPartition, int]:
        self._heard_at = time.monotonic()
        retry = tenacity.Retrying(
            stop=lambda _: time.monotonic() - self._heard_at >= self._deadline_seconds,
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=1.0),
            retry=tenacity.retry_if_exception_type((_UnansweredError, _NotYetError)),
            before_sleep=self._note,
            reraise=True,
        )
        try:
            ranges = {r.topic_partition: end for r, end in proposed.items()}
            starts = {r.topic_partition: r.start_offset for r in proposed if r.topic_partition in self._ticket.split}
            question = {"do": what, "plan": self._ticket.plan, "ranges": pack_ends(ranges), "starts": pack_ends(starts)}
            return retry(self._once, {**question, **own_batch(), **own_engine()})
        except _UnansweredError as error:
            raise ArbiterError(
                f"the driver did not say within {self._deadline_seconds:g} s where the ranges end: {error}; "
                f"workers ask it at {self._host}:{self._ticket.port}: let them through, or set coordinatorHost and "
                "coordinatorPort to what they can reach"
            ) from error

    def _note(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if not isinstance(error, _NotYetError):
            return
        if self._heard_at >= self._say_after:
            self._say_after = self._heard_at + _REPEAT_SECONDS
            _log.warning("where ranges end cannot be settled yet: %s; the task waits", error)

    def _once(self, question: dict[str, Any]) -> dict[TopicPartition, int]:
        try:
            answer = self._exchange(question)
            self._heard_at = time.monotonic()
            if "ends" in answer:
                return unpack_ends(answer["ends"])
        except (OSError, WireError) as error:
            raise _UnansweredError(str(error) or type(error).__name__) from error
        if "refused" in answer:
            raise ArbiterError(str(answer["refused"]))
        raise _NotYetError(str(answer.get("failed")))

    def _exchange(self, question: dict[str, Any]) -> dict[str, Any]:
        with socket.create_connection((self._host, self._ticket.port), _CONNECT_SECONDS) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            connection.sendall(MAGIC + self._ticket.token)
            send_frame(connection, question)
            return receive_frame(connection)


def own_batch() -> dict[str, Any]:
    """Return whose batch this task is of, as far as Spark tells.

    Runs: worker, in a task. Source: as `driver_host`.
    """
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    number = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return {"query": query, "batch": int(number)} if query and number else {}


def refuse_left_behind(sentences: LeftBehind) -> None:
    """Refuse a batch whose query would read on behind a cut in a ledger that its start did not use.

    Raises:
        StateError: names the cut, and the ways on.

    Runs: worker, first thing in a task; from memory.
    """
    batch = own_batch()
    if batch and (sentence := sentences.get(batch["query"])) is not None:
        raise StateError(planned_without(sentence, batch["batch"]))


def own_engine() -> dict[str, str]:
    """Return why this worker reads with the plain engine, if it should not.

    Runs: worker, in a task.
    """
    from discovery.spark.fetch.engine import fallbacks  # noqa: PLC0415 - loads the client, which the driver need not

    return {"plain_engine": fallbacks[0]} if fallbacks else {}


def driver_host() -> str:
    """Return where Spark's driver says it is.

    Raises:
        ArbiterError: Spark does not say it to this task; names the option that does.

    Runs: worker, in a task. Source: Spark hands the driver's configuration to a task as local properties (measured
    on 4.2.0, not documented).
    """
    context = TaskContext.get()
    host = context.getLocalProperty("spark.driver.host") if context is not None else None
    if not host:
        raise ArbiterError("coordinatorHost: Spark does not say where the driver is; name its host in this option")
    return host.removeprefix("[").removesuffix("]")
