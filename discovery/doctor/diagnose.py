"""From what was seen to what is said: one sentence per finding, the gravest first. Pure.

Every sentence has a code; docs/reference/doctor.md names the test that brings it about with real brokers and clients.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from discovery.core.model import BrokerAddress, Verdict
from discovery.core.plural import counted
from discovery.core.prediction.clients import Client, ClientVersion, configured, contradictions
from discovery.core.prediction.forecast import FailureMode, Forecast, Limits, Listed, forecast
from discovery.doctor.facts import Facts, Seen
from discovery.doctor.inputs import Described, loopback_entries

_SHOWN = 5
_THIN = 2
_NEVER = 1e-6
_BETWEEN_SECONDS = 1.0
_MODERN = ClientVersion(3, 9)
_LITTLE = 0.25
"""Cores: Spark allows 10 s for what takes a Python process a second of processor time, beside a driver that starts."""
_WORTH_PROBABILITY, _WORTH_SECONDS = 0.005, 0.5


class Weight(IntEnum):
    """How grave a finding is."""

    FINE = 0
    NOTE = 1
    WARN = 2
    GRAVE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing worth saying."""

    code: str
    weight: Weight
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change and what a start would be like with it."""

    code: str
    sentence: str
    after: Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything the doctor has to say."""

    facts: Facts
    described: Described
    start: Forecast
    findings: tuple[Finding, ...]
    """The gravest first."""
    advice: tuple[Advice, ...]
    """What helps most first."""

    @property
    def weight(self) -> Weight:
        """How grave it is altogether."""
        return max((finding.weight for finding in self.findings), default=Weight.FINE)


def diagnose(facts: Facts, described: Described) -> Diagnosis:
    """Draw the conclusions.

    Runs: anywhere (pure).
    """
    start = forecast(facts.counts, described.client.limits)
    found = [*_list(facts), *_cluster(facts, described), *_start(facts, described.client, start)]
    found += [*_tries(described, start), *_settings(facts, described)]
    found.sort(key=lambda finding: -finding.weight)
    return Diagnosis(
        facts=facts,
        described=described,
        start=start,
        findings=tuple(found),
        advice=_advice(facts, described, start),
    )


def _list(facts: Facts) -> Iterator[Finding]:
    living = [seen for seen in facts.listed if seen.failure_mode is None]
    names = [seen for seen in facts.listed if seen.failure_mode is FailureMode.UNRESOLVABLE]
    rejected = [seen for seen in facts.listed if seen.failure_mode is FailureMode.AUTH_REJECTED]
    total = len(facts.listed)
    if len(living) == total:
        whole = f"All {total} addresses of the list are alive."
        text = "The one address of the list is alive." if total == 1 else whole
        yield Finding(code="all-alive", weight=Weight.FINE, sentence=text)
    elif len(names) == total:
        text = "No name of the list resolves: the client refuses to start at once (No resolvable bootstrap urls)."
        yield Finding(code="no-name", weight=Weight.GRAVE, sentence=text)
    elif not living:
        who = "The one address of the list is dead" if total == 1 else f"None of the {total} addresses is alive"
        text = f"{who}: no start can succeed until the list is changed."
        yield Finding(code="none-alive", weight=Weight.GRAVE, sentence=text)
    else:
        dead = [seen for seen in facts.listed if seen.failure_mode is not None]
        text = f"{len(dead)} of {total} addresses of the list {'is' if len(dead) == 1 else 'are'} dead: {_names(dead)}."
        yield Finding(code="some-dead", weight=Weight.WARN, sentence=text)
    if names and len(names) < total:
        text = f"{_names(names)}: the name does not resolve, so the client drops the entry for as long as it lives."
        yield Finding(code="name-gone", weight=Weight.WARN, sentence=text)
    if rejected:
        text = f"{_names(rejected)} refuses login or certificate: a client that comes there first fails at once."
        yield Finding(code="auth-rejected", weight=Weight.GRAVE, sentence=text)
    if len(living) == 1 and total >= 1:
        text = f"The list hangs by one living address ({living[0].address}): when it goes, every start fails."
        yield Finding(code="thin", weight=Weight.WARN, sentence=text)


def _cluster(facts: Facts, described: Described) -> Iterator[Finding]:
    if len(facts.cluster_ids) > 1:
        foreign = [s for s in facts.listed if s.cluster_id is not None and s.cluster_id != facts.cluster_ids[0]]
        text = (
            f"The list leads to {len(facts.cluster_ids)} clusters: {_names(foreign)} belongs to "
            f"{', '.join(facts.cluster_ids[1:])}, the others to {facts.cluster_ids[0]}. A JVM client never checks and "
            "reads from whichever it meets first."
        )
        yield Finding(code="two-clusters", weight=Weight.GRAVE, sentence=text)
    stale = [seen for seen in facts.listed if seen.verdict is Verdict.STALE]
    if stale:
        text = f"{_names(stale)} answers, but its peers no longer list it: a removed broker that does not know it."
        yield Finding(code="stale", weight=Weight.WARN, sentence=text)
    hidden = [seen for seen in facts.advertised if seen.failure_mode is not None]
    named = {b.address for seen in facts.listed for b in seen.brokers}
    hidden += [seen for seen in facts.listed if seen.failure_mode is not None and seen.address in named]
    if hidden:
        text = (
            f"The cluster names {_names(hidden)}, which cannot be reached from here: partitions led there can be "
            "neither read nor written, whatever the list says."
        )
        yield Finding(code="advertised-dead", weight=Weight.GRAVE, sentence=text)
    if facts.leaderless is None:
        text = f"Partitions could not be looked at: {facts.unknown}."
        yield Finding(code="partitions-unknown", weight=Weight.WARN, sentence=text)
    elif facts.leaderless:
        shown = ", ".join(map(str, facts.leaderless[:_SHOWN])) + ("…" if len(facts.leaderless) > _SHOWN else "")
        seconds = described.client.limits.api_seconds
        has = "has" if len(facts.leaderless) == 1 else "have"
        text = (
            f"{len(facts.leaderless)} of {counted(facts.partitions, 'partition')} {has} no leader ({shown}): a "
            f"reader of one stands still for {seconds:g} s and then dies, and so does every restart."
        )
        yield Finding(code="leaderless", weight=Weight.GRAVE, sentence=text)
    yield from _ledgers(facts)


def _ledgers(facts: Facts) -> Iterator[Finding]:
    if facts.ledgers_unknown:
        text = f"How many dead brokers stop cuts with cutLedger=kafka is not known: {facts.ledgers_unknown}."
        yield Finding(code="cuts-unknown", weight=Weight.NOTE, sentence=text)
    if facts.ledger_deaths:
        deaths = min(facts.ledger_deaths.values())
        topics = " and ".join(sorted(name for name, one in facts.ledger_deaths.items() if one == deaths))
        text = (
            f"Sources with cutLedger=kafka cut nothing once {counted(deaths, 'broker')} with a replica of {topics} "
            f"{'is' if deaths == 1 else 'are'} dead (replicas less min.insync.replicas): then their batches wait."
        )
        yield Finding(code="cuts-stop", weight=Weight.WARN if deaths == 1 else Weight.NOTE, sentence=text)


def _start(facts: Facts, client: Client, start: Forecast) -> Iterator[Finding]:
    if start.failure >= 1 or not any(seen.failure_mode is not None for seen in facts.listed):
        return
    if start.failure > _NEVER:
        text = (
            f"With {client.version} {percent(start.failure)} of all starts fail, after "
            f"{start.failed_after_seconds:.0f} s; the others take {start.delay_seconds:.0f} s longer on average."
        )
        weight = Weight.GRAVE if start.failure > 0.01 else Weight.WARN  # noqa: PLR2004 - one start in a hundred
        yield Finding(code="may-fail", weight=weight, sentence=text)
    elif start.delay_seconds >= _WORTH_SECONDS:
        worst = max(one.seconds for one in start.starts)
        text = (
            f"With {client.version} no start fails, but each client pays {start.delay_seconds:.0f} s on average and "
            f"about {worst:.0f} s at worst: the driver, and every consumer of every executor again."
        )
        yield Finding(code="slow", weight=Weight.WARN, sentence=text)
    else:
        text = f"With {client.version} the dead addresses cost a start less than {_WORTH_SECONDS:g} s."
        yield Finding(code="harmless", weight=Weight.NOTE, sentence=text)
    holes = facts.counts.of(FailureMode.BLACK_HOLE)
    if holes and not client.version.has_setup_timeout:
        text = (
            f"{client.version} has no timeout for connections: a black hole holds it for "
            f"{client.limits.connect_seconds:.0f} s, and no other address is tried meanwhile."
        )
        yield Finding(code="old-client", weight=Weight.GRAVE, sentence=text)


def _tries(described: Described, start: Forecast) -> Iterator[Finding]:
    tries = described.tries
    if tries == 1 or start.failure <= _NEVER:
        return
    seconds = tries * start.failed_after_seconds + (tries - 1) * _BETWEEN_SECONDS
    share = percent(start.failure**tries)
    text = (
        f"Spark's own source makes up to {tries} such starts, each with a new client, before a query dies: "
        f"{share} of its queries do, after {seconds:.0f} s."
    )
    yield Finding(code="spark-tries", weight=Weight.NOTE, sentence=text)


def _settings(facts: Facts, described: Described) -> Iterator[Finding]:
    for one in contradictions(described.client, entries=len(facts.listed)):
        weight = Weight.GRAVE if one.fatal else Weight.WARN
        yield Finding(code=one.code, weight=weight, sentence=one.sentence)
    local = loopback_entries(described.addresses)
    if local and described.remote_executors:
        text = (
            f"{', '.join(map(str, local))} means the machine itself, and executors run on other machines, "
            "where it leads nowhere. List addresses that every host can reach, or run one endpoint per host."
        )
        yield Finding(code="loopback", weight=Weight.GRAVE, sentence=text)
    if facts.processor is not None and facts.processor.share < _LITTLE:
        text = (
            f"A process gets {facts.processor.share:.2g} of a core here ({facts.processor}). A driver that runs here"
            " may fail to start a Python source: Spark waits 10 s for about a second of processor time. Give it half"
            " a core or more, and set PYSPARK_PYTHON to kafka-discovery-python, which needs less of that time."
        )
        yield Finding(code="little-processor", weight=Weight.WARN, sentence=text)


def _advice(facts: Facts, described: Described, now: Forecast) -> tuple[Advice, ...]:
    """Try every change on the model and keep those that help, the best first."""
    mixed = len(facts.cluster_ids) > 1
    changes = _changes(facts, described)
    options = [one for one in changes if _gain(now, one.after) > 0 or (mixed and one.code == "new-list")]
    return tuple(sorted(options, key=lambda one: (one.after.failure, one.after.mean_seconds)))


def _gain(now: Forecast, after: Forecast) -> float:
    better = now.failure - after.failure
    if abs(better) > _WORTH_PROBABILITY:
        return better
    faster = now.mean_seconds - after.mean_seconds
    return faster if faster > _WORTH_SECONDS else 0.0


def _changes(facts: Facts, described: Described) -> Iterator[Advice]:
    client, counts = described.client, facts.counts
    limits, version = client.limits, client.version
    living = [
        seen for seen in (*facts.listed, *facts.advertised) if seen.failure_mode is None and _is_right(seen, facts)
    ]
    dead = [seen for seen in facts.listed if seen.failure_mode is not None]
    if living and (dead or len(facts.cluster_ids) > 1 or len(facts.listed) < _THIN <= len(living)):
        text = f"Make the list {','.join(str(seen.address) for seen in living)}"
        yield Advice(code="new-list", sentence=text, after=forecast(Listed(living=len(living)), limits))
    if not version.has_setup_timeout:
        newer = configured(_MODERN, client.given, kind=client.kind, system_seconds=limits.system_seconds).limits
        text = f"Upgrade {version} to {_MODERN} or later"
        yield Advice(code="upgrade", sentence=text, after=forecast(counts, newer))
    elif limits.setup_seconds is not None and limits.setup_seconds > 2:  # noqa: PLR2004 - what the advice would set
        quick = replace(limits, setup_seconds=2.0)
        text = "Set socket.connection.setup.timeout.ms to 2000"
        yield Advice(code="quick-setup", sentence=text, after=forecast(counts, quick))
    if client.has_api_timeout and counts.of(FailureMode.SILENT) and limits.request_seconds > limits.api_seconds / 6:
        text = f"Set request.timeout.ms to {limits.api_seconds * 1000 / 6:.0f}"
        patient = replace(limits, request_seconds=limits.api_seconds / 6)
        yield Advice(code="quick-request", sentence=text, after=forecast(counts, patient))
    more = client.patient(limits.api_seconds * 3)
    text = f"Set {client.api_option} to {more.api_seconds * 1000:.0f}"
    yield Advice(code="patient-api", sentence=text, after=forecast(counts, more))


def _is_right(seen: Seen, facts: Facts) -> bool:
    return seen.verdict is Verdict.ALIVE and bool(facts.cluster_ids) and seen.cluster_id == facts.cluster_ids[0]


def curve(limits: Limits, listed: Listed, mode: FailureMode) -> tuple[Forecast, ...]:
    """Return the forecast for 0, 1 … all entries dead in one way; those dead in other ways stay as they are.

    Runs: anywhere (pure).
    """
    others = {other: count for other, count in listed.dead.items() if other is not mode}
    entries = listed.living + listed.of(mode)
    return tuple(
        forecast(Listed(living=entries - dead, dead={**others, mode: dead}), limits) for dead in range(entries + 1)
    )


def percent(share: float) -> str:
    """Write a probability for a reader.

    Runs: anywhere (pure).
    """
    if 0 < share < 0.001:  # noqa: PLR2004 - less than one in a thousand
        return "under 0.1 %"
    if share > 0.995 and share < 1:  # noqa: PLR2004
        return "over 99 %"
    return f"{share:.0%}".replace("%", " %") if share >= 0.1 or share == 0 else f"{share * 100:.1f} %"  # noqa: PLR2004


def _names(seen: Sequence[Seen]) -> str:
    addresses: list[BrokerAddress] = [one.address for one in seen]
    return ", ".join(map(str, addresses[:_SHOWN])) + (
        f" and {len(addresses) - _SHOWN} more" if len(addresses) > _SHOWN else ""
    )
