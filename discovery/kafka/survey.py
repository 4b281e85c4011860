"""Gathers what `core.removal` judges, all within one budget; whatever is unanswered becomes a doubt, never a guess."""

import contextlib
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from discovery.core.answers import MetadataAnswer, ProbeOutcome
from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import BrokerAddress, BrokerId, ClusterId, TopicName
from discovery.core.prediction.living import living
from discovery.core.prediction.removal import GROUPS, RemovalFacts
from discovery.kafka.base import Gateway, GatewayFactory, Vetter

_T = TypeVar("_T")

_LEAST_SECONDS = 0.5
_ASKED = 2
"""So many brokers are asked for metadata: one that was cut off answers from an old image."""
_TRIES = 12
"""A new client hears of the other brokers first, and about half of them then ask another one."""
_AT_ONCE = 256
"""Addresses that are looked at side by side: each takes a descriptor, and who reports a list chooses its length."""
_CONNECT_SECONDS, _REQUEST_SECONDS = 2.0, 5.0
"""Most that vetting waits; a quarter of the budget if that is less."""


def survey(
    make: GatewayFactory,
    vetter: Vetter,
    contacts: Collection[BrokerAddress],
    leaving: Collection[BrokerId],
    *,
    timeout_seconds: float,
    lists: Mapping[str, tuple[BrokerAddress, ...]] | None = None,
    trusted: Collection[BrokerAddress] = (),
    cluster_id: ClusterId | None = None,
) -> RemovalFacts:
    """Ask the cluster everything a removal depends on.

    Args:
        make: Builds a gateway.
        vetter: Asks every contact, every broker that the cluster names, and every entry of the lists.
        contacts: Where the cluster is; without a living one everything is in doubt.
        leaving: The brokers in question.
        timeout_seconds: For everything; a question that gets no answer in its part of it becomes a doubt.
        lists: Bootstrap lists by who uses them.
        trusted: Entries of lists that may see our login. Of others it is found out only whether they accept a
            connection, and where: whoever names them could be after the password.
        cluster_id: The right cluster; None: that of most contacts.

    Raises:
        ConfigError: librdkafka refuses an option.

    Runs: a worker thread; blocks <= about twice timeout_seconds.
    """
    known = dict(lists or {})
    deadline = time.monotonic() + timeout_seconds
    sight = _Sight(vetter, timeout_seconds / 4, until=deadline - timeout_seconds / 2)
    sight.look((*contacts, *trusted, *(one for entries in known.values() for one in entries)), {*contacts, *trusted})
    home, doubt = _home(sight.outcomes, contacts) if cluster_id is None else (cluster_id, ())
    if home is None:
        return RemovalFacts(brokers=(), topics=(), lists=known, doubts=("no broker is known to be alive.",))
    named = sight.named_by(home)
    sight.look(sorted(named - sight.asked), named)
    alive, dead = living(sight.outcomes.values(), home)
    step = _Survey(make, home, deadline=deadline, step_seconds=timeout_seconds / 3, doubts=list(doubt))
    facts = _facts(step, _in_order({one: alive[one] for one in sorted(sight.asked & alive.keys())}, leaving), leaving)
    facts = replace(facts, lists=known, alive=alive, dead=dead)
    silent = [str(b.broker_id) for b in facts.brokers if b.broker_id not in {*leaving, *alive.values()}]
    if silent:
        step.doubts.append(f"broker {', '.join(silent)} is listed by the cluster and did not answer at its address.")
    return replace(facts, doubts=tuple(step.doubts))


@dataclass(slots=True)
class _Sight:
    """What became of each address that was looked at."""

    vetter: Vetter
    most_seconds: float
    until: float
    outcomes: dict[BrokerAddress, ProbeOutcome] = field(default_factory=dict)
    asked: set[BrokerAddress] = field(default_factory=set)
    """Those that were asked as Kafka, with our login."""

    def look(self, addresses: Iterable[BrokerAddress], full: Collection[BrokerAddress]) -> None:
        """Look at many at once, and wait for every outcome; those that there is no time for get none."""
        self.asked.update(full)
        waiting = tuple(dict.fromkeys(addresses))
        while waiting:
            some, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            self.vetter.vet(
                some,
                connect_timeout_seconds=min(_CONNECT_SECONDS, self.most_seconds),
                request_timeout_seconds=min(_REQUEST_SECONDS, self.most_seconds),
                full=full,
                on_outcome=self._note,
            )
            if time.monotonic() > self.until:
                return

    def named_by(self, home: ClusterId) -> set[BrokerAddress]:
        """Return all brokers that anybody of this cluster names."""
        of_home = (one for one in self.outcomes.values() if one.cluster_id == home and not one.tcp_only)
        return {broker.address for one in of_home for broker in one.brokers}

    def _note(self, outcome: ProbeOutcome) -> None:
        self.outcomes[outcome.address] = outcome


def _home(
    outcomes: Mapping[BrokerAddress, ProbeOutcome], contacts: Collection[BrokerAddress]
) -> tuple[ClusterId | None, tuple[str, ...]]:
    """Return the cluster of most contacts, and a doubt where another has as many."""
    seen = [outcomes[one] for one in sorted(contacts) if one in outcomes and not outcomes[one].tcp_only]
    counted = Counter(one.cluster_id for one in seen if one.cluster_id is not None).most_common(2)
    if not counted:
        return None, ()
    tied = len(counted) > 1 and counted[0][1] == counted[1][1]
    return counted[0][0], ("the addresses given lead to two clusters; name those of one.",) if tied else ()


def _in_order(
    alive: Mapping[BrokerAddress, BrokerId | None], leaving: Collection[BrokerId]
) -> dict[BrokerAddress, BrokerId | None]:
    """Return whom to ask, one address a broker: first those that stay, last those of which nobody knows who answers."""
    one_each = {one if broker is None else broker: one for one, broker in alive.items()}.values()
    return {one: alive[one] for one in sorted(one_each, key=lambda one: (alive[one] is None, alive[one] in leaving))}


@dataclass(slots=True)
class _Survey:
    make: GatewayFactory
    home: ClusterId
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

    def metadata(
        self, alive: Mapping[BrokerAddress, BrokerId | None]
    ) -> Generator[tuple[Gateway, MetadataAnswer], None, None]:
        """Ask brokers, each through a client that begins with it alone, and yield at most one answer of each.

        A client that has heard of the other brokers may ask one of them; it says which. What failed is a doubt once
        nobody is left to ask, and none where enough others answered before.
        """
        failed: list[str] = []
        seen: set[BrokerId | BrokerAddress] = set()
        waiting = deque(alive)
        for _ in range(_TRIES):
            if not waiting or time.monotonic() > self.deadline:
                break
            address = waiting.popleft()
            gateway = self.make((address,))
            try:
                answer = gateway.fetch_metadata(None, timeout_seconds=self.timeout())
                if answer.cluster_id == self.home:
                    waiting.append(address)
                    who = next((one for one in (answer.answered_by, alive[address]) if one is not None), address)
                    if who not in seen:
                        seen.add(who)
                        yield gateway, answer
            except GatewayError as error:
                failed.append(f"{address}: {error.detail}.")
            finally:
                threading.Thread(target=gateway.close, name="survey-close", daemon=True).start()
        self.doubts += failed


def _facts(
    step: _Survey, alive: Mapping[BrokerAddress, BrokerId | None], leaving: Collection[BrokerId]
) -> RemovalFacts:
    with contextlib.closing(step.metadata(alive)) as answers:
        for gateway, answer in answers:
            facts = _first(step, gateway, answer, leaving)
            step.doubts += _second(answer, next(answers, None))
            return facts
    step.doubts.append("no broker answered for all topics.")
    return RemovalFacts(brokers=(), topics=())


def _first(step: _Survey, gateway: Gateway, answer: MetadataAnswer, leaving: Collection[BrokerId]) -> RemovalFacts:
    names = tuple(topic.name for topic in answer.topics)
    minima: Mapping[TopicName, int] = {}
    nobody: tuple[str, ...] = ()
    if names:
        minima = step.ask("min.insync.replicas", lambda t: gateway.min_in_sync(names, timeout_seconds=t), minima)
    groups = step.ask("consumer groups", lambda t: gateway.groups(timeout_seconds=t), nobody)
    voters = _voters(step, gateway, {b.broker_id for b in answer.brokers}, leaving)
    _check_sight(step, gateway)
    return RemovalFacts(brokers=answer.brokers, topics=answer.topics, min_in_sync=minima, voters=voters, groups=groups)


def _second(answer: MetadataAnswer, other: tuple[Gateway, MetadataAnswer] | None) -> list[str]:
    """Compare with a second broker: two that differ mean that one is cut off, or that the cluster is changing."""
    if len(answer.brokers) < _ASKED:
        return []
    if other is None:
        return ["a second broker was to confirm what the first one answered, and none did."]
    if (other[1].brokers, other[1].topics) != (answer.brokers, answer.topics):
        return ["two brokers answer differently: the cluster is changing, or one is cut off; ask again."]
    return []


def _voters(
    step: _Survey, gateway: Gateway, listed: Collection[BrokerId], leaving: Collection[BrokerId]
) -> frozenset[BrokerId]:
    nothing: Mapping[BrokerId, frozenset[BrokerId]] = {}
    before = len(step.doubts)
    answered = step.ask("process.roles", lambda t: gateway.voters(listed, timeout_seconds=t), nothing)
    silent = sorted((set(listed) & set(leaving)) - set(answered))
    if silent and len(step.doubts) == before:
        step.doubts.append(f"broker {', '.join(map(str, silent))} did not say whether it is also a controller.")
    return frozenset[BrokerId]().union(*answered.values())


def _check_sight(step: _Survey, gateway: Gateway) -> None:
    """Notice whether topics are hidden from us: a list of all leaves out, silently, what may not be described.

    Asked by name, a topic that may not be described is forbidden, whether it exists or not.
    """
    for name in (GROUPS, TopicName(f"{secrets.token_hex(12)}-is-no-topic")):
        try:
            gateway.fetch_metadata([name], timeout_seconds=step.timeout())
        except GatewayError as error:
            hidden = "topics are hidden from this login; grant Describe on all topics"
            step.doubts.append(f"{hidden if error.kind is FailureKind.AUTH else f'topics: {error.detail}'}.")
            return
