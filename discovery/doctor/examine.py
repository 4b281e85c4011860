"""Looks at every address of a list, and at those it leads to: all at once, each stage timed, all within limits."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from discovery.config.client.options import ClientOptions
from discovery.config.descriptors import OUT_OF, exhausted
from discovery.core.answers import ProbeOutcome
from discovery.core.errors import ConfigError, GatewayError
from discovery.core.interest import CUT_LEDGER_TOPIC
from discovery.core.model import BrokerAddress, TopicMetadata, TopicPartition, Verdict
from discovery.core.policy import Policy
from discovery.core.prediction.removal import TRANSACTIONS
from discovery.core.verdict import conclude
from discovery.doctor.facts import USABLE, Facts, Seen, Stages, failure_mode_of
from discovery.kafka.base import Gateway
from discovery.kafka.confluent import ConfluentGatewayFactory
from discovery.kafka.settings import QuietLog, client_properties
from discovery.kafka.vetting.probe import Probed, probe
from discovery.kafka.vetting.tcp_check import Reached, Resolver, reach_all, run_reach

_LEDGERS = {CUT_LEDGER_TOPIC, TRANSACTIONS}
_STAGE = {
    Verdict.UNRESOLVABLE: "name",
    Verdict.TLS_FAILED: "TLS",
    Verdict.AUTH_FAILED: "login",
}


def examine(addresses: Collection[BrokerAddress], options: ClientOptions, policy: Policy) -> Facts:
    """Look at a list and at the brokers it leads to.

    Args:
        addresses: The entries, 1..n.
        options: How to connect; its stores are open.
        policy: Its timeouts bound every stage.

    Raises:
        ConfigError: librdkafka refuses an option; or this process is out of descriptors, which says nothing of brokers.

    Runs: the command; blocks <= 2 x (connect + request timeout) + 2 x API timeout, whatever Kafka does.
    """
    look = _Look(options, policy)
    listed = look.at(addresses)
    named = {broker.address for seen in listed for broker in seen.brokers}
    advertised = look.at(sorted(named - set(addresses))) if named else ()
    facts = Facts(listed=_judged(listed), advertised=_judged(advertised))
    living = [seen.address for seen in (*facts.listed, *facts.advertised) if _is_home(seen, facts)]
    if not living:
        return replace(facts, unknown="no broker answered")
    return _with_partitions(facts, living, options, policy)


def _is_home(seen: Seen, facts: Facts) -> bool:
    return seen.verdict is Verdict.ALIVE and seen.cluster_id == facts.cluster_ids[0]


def _judged(all_seen: Collection[Seen]) -> tuple[Seen, ...]:
    """Find those that name themselves while two others of their cluster do not: removed, and not aware of it."""
    judged = []
    for seen in all_seen:
        itself = next((b for b in seen.brokers if b.address == seen.address), None)
        others = [o for o in all_seen if o is not seen and o.answered and o.cluster_id == seen.cluster_id]
        against = [o for o in others if itself is not None and itself.broker_id not in {b.broker_id for b in o.brokers}]
        if against and len(against) == len(others):
            text = f"names itself as broker {itself.broker_id if itself else ''}, which its peers no longer list"
            judged.append(replace(seen, verdict=Verdict.STALE, detail=text))
        else:
            judged.append(seen)
    return tuple(judged)


class _Look:
    """One examination's tools."""

    def __init__(self, options: ClientOptions, policy: Policy) -> None:
        self._options = options
        self._policy = policy
        self._resolver = Resolver()
        self._log = QuietLog()

    def at(self, addresses: Collection[BrokerAddress]) -> tuple[Seen, ...]:
        """Return what became of each, in order."""
        found: dict[BrokerAddress, Seen] = {}
        changed = threading.Condition()

        short = threading.Event()

        def note(seen: Seen) -> None:
            with changed:
                found.setdefault(seen.address, seen)
                changed.notify_all()

        def reached(address: BrokerAddress, result: Reached) -> None:
            if result.ours:
                short.set()
            if result.endpoint is None:
                note(_unreached(address, result))
            else:
                threading.Thread(target=self._ask, args=(address, result, note), daemon=True).start()

        timeout = self._policy.connect_timeout_seconds
        if not run_reach(reach_all(addresses, self._resolver, timeout_seconds=timeout, on_reached=reached)):
            raise ConfigError(f"the brokers were not asked: {OUT_OF}")
        with changed:
            changed.wait_for(lambda: len(found) == len(set(addresses)), self._policy.request_timeout_seconds + 1)
            if short.is_set() or (any(one.verdict not in USABLE for one in found.values()) and exhausted()):
                raise ConfigError(f"the brokers were not asked: {OUT_OF}")
            silent = "accepted a connection, but librdkafka did not come back with a verdict in time"
            return tuple(
                found.get(one) or _seen(one, Probed(failure=Verdict.SILENT, detail=silent), Reached(endpoint=("", 0)))
                for one in addresses
            )

    def _ask(self, address: BrokerAddress, reached: Reached, note: Any) -> None:
        timeout = self._policy.request_timeout_seconds
        properties = client_properties(
            self._options,
            (address,),
            connect_timeout_seconds=self._policy.connect_timeout_seconds,
            request_timeout_seconds=timeout,
        )
        endpoint = reached.endpoint or ("", 0)
        shaken = _handshake_seconds(endpoint, address.host, properties, timeout_seconds=timeout / 2)
        begun = time.monotonic()
        probe(
            properties,
            endpoint,
            timeout_seconds=timeout - (shaken or 0.0),
            log=self._log,
            on_probed=lambda probed: note(_seen(address, probed, reached, tls=shaken, kafka=time.monotonic() - begun)),
        )


def _unreached(address: BrokerAddress, result: Reached) -> Seen:
    return _seen(address, Probed(failure=result.failure, detail=result.detail), result)


def _seen(
    address: BrokerAddress, probed: Probed, reached: Reached, *, tls: float | None = None, kafka: float | None = None
) -> Seen:
    outcome = ProbeOutcome(
        address=address,
        failure=probed.failure,
        cluster_id=probed.cluster_id,
        brokers=probed.brokers,
        detail=probed.detail,
    )
    verdict, detail = conclude(outcome, pin=None, snapshot=None)
    connected = reached.endpoint is not None
    return Seen(
        address=address,
        verdict=verdict,
        detail=detail,
        failure_mode=failure_mode_of(verdict, connected=connected, no_route=reached.no_route),
        stage="" if verdict in USABLE else _STAGE.get(verdict, "Kafka" if connected else "connection"),
        stages=Stages(lookup=reached.lookup_seconds, connect=reached.connect_seconds, tls=tls, kafka=kafka),
        cluster_id=probed.cluster_id,
        brokers=probed.brokers,
    )


def _handshake_seconds(
    endpoint: tuple[str, int], host: str, properties: Mapping[str, Any], *, timeout_seconds: float
) -> float | None:
    """Time one TLS handshake; whether the certificate is believed is librdkafka's to say."""
    if "SSL" not in str(properties.get("security.protocol", "")).upper().replace("SASL", ""):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    begun = time.monotonic()
    with (
        contextlib.suppress(OSError, ValueError),
        socket.create_connection(endpoint, timeout=timeout_seconds) as connection,
        context.wrap_socket(connection, server_hostname=host),
    ):
        return time.monotonic() - begun
    return None


def _with_partitions(facts: Facts, living: Collection[BrokerAddress], options: ClientOptions, policy: Policy) -> Facts:
    """Ask the cluster for all partitions, and note which have no leader."""
    gateway = ConfluentGatewayFactory(options, policy)(tuple(living))
    try:
        answer = gateway.fetch_metadata(None, timeout_seconds=policy.request_timeout_seconds)
        facts = with_ledgers(facts, answer.topics, gateway, policy)
    except GatewayError as error:
        return replace(facts, unknown=error.detail)
    finally:
        # The end of a client waits for its name lookups.
        threading.Thread(target=gateway.close, name="doctor-close", daemon=True).start()
    every = [(t.name, p) for t in answer.topics for p in t.partitions]
    leaderless = tuple(TopicPartition(name, p.partition) for name, p in every if p.leader_id is None)
    return replace(facts, leaderless=leaderless, partitions=len(every))


def with_ledgers(facts: Facts, topics: Iterable[TopicMetadata], gateway: Gateway, policy: Policy) -> Facts:
    """Note how many dead brokers stop cuts, where sources keep them in Kafka under the usual name.

    Runs: the command; blocks <= request timeout + 1 s.
    """
    replicas = {
        t.name: min(len(p.replicas) for p in t.partitions) for t in topics if t.name in _LEDGERS and t.partitions
    }
    if CUT_LEDGER_TOPIC not in replicas:
        return facts
    try:
        least = gateway.min_in_sync(list(replicas), timeout_seconds=policy.request_timeout_seconds)
    except GatewayError as error:
        return replace(facts, ledgers_unknown=error.detail)
    return replace(facts, ledger_deaths={name: max(replicas[name] - least[name] + 1, 1) for name in least})
