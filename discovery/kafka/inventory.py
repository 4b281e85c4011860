"""What brokers tell of themselves, topics and groups: configurations, and who is a controller too."""

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import ConfigResource as RawConfigResource  # type: ignore[attr-defined]

from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import BrokerId, TopicName
from discovery.kafka.patience import GRACE_SECONDS, outcome_of
from discovery.kafka.translate import gateway_error

MIN_IN_SYNC, ROLES, VOTERS = "min.insync.replicas", "process.roles", "controller.quorum.voters"
_AT_ONCE = 500


def min_in_sync(client: AdminClient, topics: Collection[TopicName], *, timeout_seconds: float) -> dict[TopicName, int]:
    """Return `min.insync.replicas` of every topic that tells; the others are absent.

    Raises:
        KafkaException: nothing was answered at all.

    Runs: a worker thread; blocks <= timeout_seconds + 0.5.
    """
    answered = topic_option(client, MIN_IN_SYNC, topics, timeout_seconds=timeout_seconds, needs_one=True)
    return {topic: int(value) for topic, value in answered.items()}


def voters(
    client: AdminClient, brokers: Collection[BrokerId], *, timeout_seconds: float
) -> dict[BrokerId, frozenset[BrokerId]]:
    """Return which voters of the metadata quorum every broker knows: itself, and those of a static quorum.

    One that does not answer, or names none of KRaft's roles, is absent: it may be a controller.

    Raises:
        KafkaException: nothing was answered at all.
        ValueError: a broker answers with a list of voters that cannot be read.

    Runs: a worker thread; blocks <= timeout_seconds + 0.5.
    """
    answered = _broker_options(
        client, (ROLES, VOTERS), brokers, timeout_seconds=timeout_seconds, needs_one=bool(brokers)
    )
    return {
        broker: frozenset([broker] if "controller" in roles else [])
        | {BrokerId(int(one.partition("@")[0])) for one in values[VOTERS].split(",") if one.strip()}
        for broker, values in answered.items()
        if (roles := {one.strip() for one in values[ROLES].split(",")}) & {"broker", "controller"}
    }


def topic_option(
    client: AdminClient, option: str, topics: Collection[TopicName], *, timeout_seconds: float, needs_one: bool
) -> dict[TopicName, str]:
    """Return one configuration of every topic that tells it; the others are absent.

    Raises:
        KafkaException: `needs_one`, and nothing was answered at all.

    Runs: driver, or a worker thread; blocks <= timeout_seconds + 0.5.
    """
    deadline = time.monotonic() + timeout_seconds
    found: dict[TopicName, str] = {}
    names = sorted(topics)
    for begin in range(0, len(names), _AT_ONCE):
        some = [RawConfigResource(RawConfigResource.Type.TOPIC, name) for name in names[begin : begin + _AT_ONCE]]
        left = max(0.1, deadline - time.monotonic())
        asked = client.describe_configs(some, request_timeout=left).items()
        answered = _answers(asked, left, needs_one=needs_one and not found)
        values = {r.name: c[option].value for r, c in answered if option in c}
        found |= {TopicName(name): str(value) for name, value in values.items() if value is not None}
    return found


def broker_option(
    client: AdminClient, option: str, brokers: Collection[BrokerId], *, timeout_seconds: float, needs_one: bool
) -> dict[BrokerId, str]:
    """Return one configuration of every broker that answers, "" where it has none; each is asked itself, all at once.

    Raises:
        KafkaException: `needs_one`, and nothing was answered at all.

    Runs: driver, or a worker thread; blocks <= timeout_seconds + 0.5.
    """
    answered = _broker_options(client, (option,), brokers, timeout_seconds=timeout_seconds, needs_one=needs_one)
    return {broker: values[option] for broker, values in answered.items()}


def _broker_options(
    client: AdminClient, options: Collection[str], brokers: Collection[BrokerId], *, timeout_seconds: float,
    needs_one: bool,
) -> dict[BrokerId, dict[str, str]]:  # fmt: skip
    asked = [
        pair
        for broker in brokers
        for pair in client.describe_configs(
            [RawConfigResource(RawConfigResource.Type.BROKER, str(broker))], request_timeout=timeout_seconds
        ).items()
    ]
    answered = _answers(asked, timeout_seconds, needs_one=needs_one)
    return {BrokerId(int(r.name)): {o: str(c[o].value or "") if o in c else "" for o in options} for r, c in answered}


def groups(client: AdminClient, *, timeout_seconds: float) -> tuple[str, ...]:
    """Return the names of all consumer groups.

    Raises:
        GatewayError: not every broker reported its groups.
        KafkaException: likewise.

    Runs: a worker thread; blocks <= timeout_seconds + 0.5.
    """
    answered = outcome_of(client.list_consumer_groups(request_timeout=timeout_seconds), timeout_seconds)
    if answered.errors:
        raise gateway_error(answered.errors[0], "groups")
    return tuple(sorted(one.group_id for one in answered.valid))


def _answers(futures: Iterable[tuple[Any, Any]], timeout_seconds: float, *, needs_one: bool) -> list[tuple[Any, Any]]:
    deadline = time.monotonic() + timeout_seconds + GRACE_SECONDS
    answered: list[tuple[Any, Mapping[str, Any]]] = []
    failed: list[KafkaError] = []
    for resource, future in futures:
        try:
            answered.append((resource, future.result(timeout=max(0.0, deadline - time.monotonic()))))
        except KafkaException as exc:
            failed.append(exc.args[0])
            exc.__traceback__ = None  # its future keeps it, and its frames would keep the future
        except TimeoutError:
            failed.append(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - public
    if needs_one and failed and not answered:
        raise _telling(failed[0])
    return answered


def _telling(error: KafkaError) -> Exception:
    """Name a missing permission as one, in the words of who can grant it."""
    if error.code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
        return GatewayError(FailureKind.AUTH, "configurations may not be described; grant DescribeConfigs")
    return KafkaException(error)
