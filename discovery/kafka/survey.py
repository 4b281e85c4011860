"""Gathers what `core.removal` judges, all within one budget; whatever is unanswered becomes a doubt, never a guess."""

import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from discovery.core.answers import MetadataAnswer
from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import BrokerAddress, BrokerId, TopicName
from discovery.core.prediction.removal import GROUPS, RemovalFacts
from discovery.kafka.base import Gateway, GatewayFactory

_T = TypeVar("_T")

_LEAST_SECONDS = 0.5
_ASKED = 2
"""So many brokers are asked for metadata: one that was cut off answers from an old image."""


@dataclass(slots=True)
class _Survey:
    gateway: Gateway
    deadline: float
    step_seconds: float
    doubts: list[str]

    def ask(self, what: str, question: Callable[[float], _T], otherwise: _T) -> _T:
        """Return the answer, or note a doubt."""
        try:
            return question(self.timeout())
        except GatewayError as error:
            self.doubts.append(f"{what}: {error.detail}.")
            return otherwise

    def timeout(self) -> float:
        """Return how long the next question may take."""
        return max(_LEAST_SECONDS, min(self.step_seconds, self.deadline - time.monotonic()))


def survey(
    make: GatewayFactory,
    living: Sequence[BrokerAddress],
    leaving: Collection[BrokerId],
    *,
    timeout_seconds: float,
    lists: Mapping[str, tuple[BrokerAddress, ...]] | None = None,
    dead: Collection[BrokerAddress] = (),
) -> RemovalFacts:
    """Ask the cluster everything a removal depends on.

    Args:
        make: Builds a gateway.
        living: Addresses that answer; without any everything is in doubt.
        leaving: The brokers in question.
        timeout_seconds: For everything; a question that gets no answer in its part of it becomes a doubt.
        lists: Bootstrap lists by who uses them.
        dead: Addresses known to be no use.

    Raises:
        ConfigError: librdkafka refuses an option.

    Runs: a worker thread; blocks <= about twice timeout_seconds.
    """
    known: dict[str, Any] = {"lists": dict(lists or {}), "dead": frozenset(dead)}
    if not living:
        return RemovalFacts(brokers=(), topics=(), doubts=("no broker is known to be alive.",), **known)
    deadline = time.monotonic() + timeout_seconds
    gateway = make(tuple(living))
    step = _Survey(gateway=gateway, deadline=deadline, step_seconds=timeout_seconds / 3, doubts=[])
    try:
        facts = _facts(step, leaving)
        facts = replace(facts, doubts=(*facts.doubts, *_second_opinion(make, living, facts, step)))
    finally:
        threading.Thread(target=gateway.close, name="survey-close", daemon=True).start()
    return replace(facts, **known)


def _facts(step: _Survey, leaving: Collection[BrokerId]) -> RemovalFacts:
    try:
        answer = step.gateway.fetch_metadata(None, timeout_seconds=step.timeout())
    except GatewayError as error:
        return RemovalFacts(brokers=(), topics=(), doubts=(f"the cluster answered nothing: {error.detail}.",))
    names = tuple(topic.name for topic in answer.topics)
    gateway = step.gateway
    minima: Mapping[TopicName, int] = {}
    nobody: tuple[str, ...] = ()
    if names:
        minima = step.ask("min.insync.replicas", lambda t: gateway.min_in_sync(names, timeout_seconds=t), minima)
    groups = step.ask("consumer groups", lambda t: gateway.groups(timeout_seconds=t), nobody)
    voters = _voters(step, {b.broker_id for b in answer.brokers}, leaving)
    _check_sight(step)
    return RemovalFacts(
        brokers=answer.brokers,
        topics=answer.topics,
        min_in_sync=minima,
        voters=voters,
        groups=groups,
        doubts=tuple(step.doubts),
    )


def _voters(step: _Survey, listed: Collection[BrokerId], leaving: Collection[BrokerId]) -> frozenset[BrokerId]:
    nothing: Mapping[BrokerId, frozenset[BrokerId]] = {}
    gateway, before = step.gateway, len(step.doubts)
    answered = step.ask("process.roles", lambda t: gateway.voters(listed, timeout_seconds=t), nothing)
    silent = sorted((set(listed) & set(leaving)) - set(answered))
    if silent and len(step.doubts) == before:
        step.doubts.append(f"broker {', '.join(map(str, silent))} did not say whether it is also a controller.")
    return frozenset[BrokerId]().union(*answered.values())


def _check_sight(step: _Survey) -> None:
    """Notice whether topics are hidden from us: a list of all leaves out, silently, what may not be described.

    Asked by name, a topic that may not be described is forbidden, whether it exists or not.
    """
    for name in (GROUPS, TopicName(f"{secrets.token_hex(12)}-is-no-topic")):
        try:
            step.gateway.fetch_metadata([name], timeout_seconds=step.timeout())
        except GatewayError as error:
            hidden = "topics are hidden from this login; grant Describe on all topics"
            step.doubts.append(f"{hidden if error.kind is FailureKind.AUTH else f'topics: {error.detail}'}.")
            return


def _second_opinion(
    make: GatewayFactory,
    living: Sequence[BrokerAddress],
    facts: RemovalFacts,
    step: _Survey,
) -> list[str]:
    """Ask a second broker; two that differ mean that one is cut off, or that the cluster is changing."""
    if len(facts.brokers) < _ASKED:
        return []
    other = make((living[-1],))
    try:
        answer: MetadataAnswer = other.fetch_metadata(None, timeout_seconds=step.timeout())
    except GatewayError as error:
        return [f"a second broker ({living[-1]}) was asked to confirm and did not: {error.detail}."]
    finally:
        threading.Thread(target=other.close, name="survey-close", daemon=True).start()
    if answer.brokers != facts.brokers or answer.topics != facts.topics:
        return ["two brokers answer differently: the cluster is changing, or one is cut off; ask again."]
    return []
