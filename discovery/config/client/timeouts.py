"""How long clients wait for one answer: the user's options, and what a slow broker needs. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from discovery.config.client.options import ClientOptions
from discovery.core.policy import Policy

SETUP, ANSWER, FIRST_ANSWER = (
    "socket.connection.setup.timeout.ms",
    "socket.timeout.ms",
    "api.version.request.timeout.ms",
)
LONGEST_MILLISECONDS = 300_000
"""librdkafka refuses more for `socket.timeout.ms` and `api.version.request.timeout.ms`."""
_UNANSWERED = "socket.max.fails"
"""By default librdkafka closes a connection with the answer that is waited for after one shorter question in vain."""
_QUESTION_SECONDS = 3.0
"""How long a waiting task gives such a question."""
_MOST_SECONDS = 10.0
"""A job often brings a minute and more along for the JVM client; a frozen broker must not hold up discovery as long."""


def raised(policy: Policy, options: ClientOptions) -> Policy:
    """Return a policy that waits as long as the user's options say, 10 s at most, and never less than before.

    Only a user knows that every broker of a cluster is slow: nothing is learned of one that never answers in time.
    """
    connect, request = (min(int(options.librdkafka.get(name, "0")) / 1_000, _MOST_SECONDS) for name in (SETUP, ANSWER))
    connect = max(connect, policy.connect_timeout_seconds)
    request = max(request, policy.request_timeout_seconds, connect)
    api = max(policy.api_timeout_seconds, 2 * request)
    return replace(
        policy,
        connect_timeout_seconds=connect,
        request_timeout_seconds=request,
        api_timeout_seconds=api,
        staleness_seconds=max(policy.staleness_seconds, 2 * api),
    )


def patient(given: Mapping[str, str], deadline_seconds: float) -> dict[str, str]:
    """Return the limits of a client that reads from a slow leader: the deadline, or what the user gave if that is more.

    Args:
        given: The user's librdkafka options, checked.
        deadline_seconds: How long one answer may take.
    """
    deadline = min(round(deadline_seconds * 1_000), LONGEST_MILLISECONDS)
    limits = {name: str(max(deadline, int(given.get(name, "0")))) for name in (SETUP, ANSWER, FIRST_ANSWER)}
    return {**limits, _UNANSWERED: str(1 + ceil(deadline / 1_000 / _QUESTION_SECONDS))}
