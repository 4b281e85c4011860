"""Asking Kafka again while it may still succeed: one loop, one deadline, and what passes by itself."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import tenacity
from confluent_kafka import KafkaError, KafkaException

_AGAIN_SECONDS = 0.05
_ANSWER_SECONDS = 5.0
_LEAST_SECONDS = 0.001
GRACE_SECONDS = 0.5
"""How much longer than the request we wait for its future: the answer travels over two threads, and a client must not
be let go with requests on their way."""
SHORT_WAITS: Mapping[str, Any] = {
    "topic.metadata.refresh.interval.ms": 1_000,
    # The first of a transaction's requests often meets one that is just ending; grows to a second by itself.
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 5_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "enable.metrics.push": False,
    "log.connection.close": False,
    "allow.auto.create.topics": False,
}
"""Properties of clients that are asked through `retried`: none waits longer than one of its tries."""
_PASSING = frozenset(
    {
        KafkaError._TIMED_OUT,  # noqa: SLF001 - confluent-kafka's public names
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._DESTROY_BROKER,  # noqa: SLF001 - of the one that was asked: another one leads
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.NETWORK_EXCEPTION,
    }
)


class OutOfTimeError(Exception):
    """The time is up; `last` is what the last try failed of, None where there was no time for one."""

    def __init__(self, last: KafkaError | None) -> None:
        self.last = last
        super().__init__(last.str() if last is not None else "no time was left")


class _Tried(NamedTuple):
    """What came of one try. A value: an exception that is kept keeps its frames, and with them the client it is of."""

    answer: Any = None
    failure: KafkaError | None = None
    again: bool = False


def may_pass(error: KafkaError) -> bool:
    """Tell whether the same call may succeed later.

    Runs: anywhere (pure).
    """
    if error.fatal() or error.txn_requires_abort():
        return False
    return bool(error.retriable()) or error.code() in _PASSING


def checked(found: Sequence[Any]) -> Sequence[Any]:
    """Return committed offsets; a partition that is refused must not count as one without an offset.

    Raises:
        KafkaException: the first partition's error.

    Runs: anywhere (pure).
    """
    for tp in found:
        if tp.error is not None:
            raise KafkaException(tp.error)
    return found


def outcome_of(future: "Future[Any]", seconds: float) -> Any:
    """Wait for the answer to a request that librdkafka gives up after so many seconds.

    Raises:
        KafkaException: it failed.
        TimeoutError: the answer is late itself.

    Runs: anywhere; blocks <= seconds + 0.5.
    """
    return future.result(seconds + GRACE_SECONDS)


def retried(
    act: Callable[[float], Any],
    deadline: float,
    *,
    passes: Callable[[KafkaError], bool] = may_pass,
    answer_seconds: float = _ANSWER_SECONDS,
) -> Any:
    """Do it again while it may still succeed.

    Args:
        act: Takes the seconds it may block.
        deadline: `time.monotonic` after which nothing is tried any more.
        passes: Whether an error may pass by itself.
        answer_seconds: Most that one try may block.

    Raises:
        KafkaException: it cannot succeed.
        OutOfTimeError: the time is up.

    Runs: anywhere; blocks until `deadline` at most, and 0.5 s for a future that is late itself.
    """
    last: KafkaError | None = None

    def once() -> _Tried:
        nonlocal last
        if (left := deadline - time.monotonic()) <= 0:  # also where a busy machine overslept
            return _Tried(failure=last, again=True)
        try:
            return _Tried(act(max(_LEAST_SECONDS, min(left, answer_seconds))))
        except TimeoutError:  # of a future: the client's own timer was late
            last = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - public
            return _Tried(failure=last, again=True)
        except KafkaException as exc:
            last = exc.args[0]
            exc.__traceback__ = None  # a future keeps its exception, whose frames would keep the future's client
            return _Tried(failure=last, again=passes(last))

    tried: _Tried = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda tried: tried.again),
        wait=tenacity.wait_fixed(_AGAIN_SECONDS),
        stop=tenacity.stop_before_delay(deadline - time.monotonic()),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )(once)
    if tried.again:
        raise OutOfTimeError(tried.failure)
    if tried.failure is not None:
        raise KafkaException(tried.failure)
    return tried.answer
