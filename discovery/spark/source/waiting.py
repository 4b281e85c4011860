"""How a query waits for Kafka at its start: patiently, aloud, and not for ever."""

import logging
from collections.abc import Callable
from typing import TypeVar

import tenacity

from discovery.core.clock import Clock
from discovery.core.errors import ConfigError, KafkaUnreachableError
from discovery.feed.base import FeedView, PartitionFeed, verdicts
from discovery.spark.source.options.parse import SourceOptions
from discovery.spark.source.planning.start import explain, is_confirmed, is_living, is_usable, moved

_log = logging.getLogger("kafka_discovery.source")
_SETTLE_SECONDS = 1.0
"""How long a start waits for leaders that have not reported their offsets, once others have."""
_SAY_AGAIN_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_T = TypeVar("_T")


class Patience:
    """Waits for views of one feed on behalf of one query. One thread."""

    def __init__(self, feed: PartitionFeed, options: SourceOptions, clock: Clock) -> None:
        """Begin to count `startupTimeout` now."""
        self.lived = False
        """A living broker was seen in this run: from now on no outage ends the query."""
        self._feed = feed
        self._options = options
        self._clock = clock
        self._began = self._say_after = clock.monotonic()

    def current(self) -> FeedView:
        """Return the view of this moment.

        Raises:
            KafkaUnreachableError: waiting will not help, and this run has not read anything yet.

        Runs: driver; from memory.
        """
        view = self._feed.view()
        if view.fatal is not None and not self.lived:
            raise KafkaUnreachableError(f"{view.fatal}; {verdicts(view)}")
        return view

    def usable_view(self, is_enough: Callable[[FeedView], bool]) -> FeedView:
        """Wait until the feed can start a query, then a little longer for what is still on its way.

        Raises:
            KafkaUnreachableError: nobody answered within `startupTimeout`; carries a verdict per address.
            ConfigError: brokers live, but the topics do not exist.

        Runs: driver; blocks <= `startupTimeout` + 1 s.
        """
        interest = self._options.interest
        view = self.wait(lambda v: is_usable(v, interest), self._options.startup_timeout_seconds, self._say)
        if not is_usable(view, interest):
            raise self._no_start(view)
        if not self.lived:
            view = self.wait(is_confirmed, _SETTLE_SECONDS)
            if view.left_cluster is not None:
                _log.warning("%s; as nothing was read yet, it begins there", moved(view))
        self.lived = True
        return self.wait(is_enough, _SETTLE_SECONDS)

    def require_live_broker(self, view: FeedView) -> None:
        """After a restart nothing is planned before a broker answers; that may take `startupTimeout` at most.

        Raises:
            KafkaUnreachableError: it took longer.
        """
        waited = self._clock.monotonic() - self._began
        if self.lived or (is_living(view) and (is_confirmed(view) or waited >= _SETTLE_SECONDS)):
            self.lived = True
        elif waited >= self._options.startup_timeout_seconds and not is_living(view):
            raise self._no_start(view)

    def wait(
        self,
        condition: Callable[[FeedView], bool],
        timeout_seconds: float,
        say: Callable[[FeedView], None] = lambda _: None,
    ) -> FeedView:
        """Return the first view that meets the condition, else the last one; `say` hears of it every 10 s.

        Runs: driver; blocks <= timeout_seconds.
        """
        now = self._clock.monotonic()
        deadline, say_at = now + timeout_seconds, now + min(_SAY_AGAIN_SECONDS, timeout_seconds / 2)
        view = self.current()
        while not condition(view) and now < deadline:
            if now >= say_at:
                say(view)
                say_at = now + _SAY_AGAIN_SECONDS
            self._feed.wait(view.version, min(deadline, say_at) - now)
            view, now = self.current(), self._clock.monotonic()
        return view

    def ask(self, question: Callable[[float], _T], wait_seconds: float) -> _T:
        """Ask Kafka until it answers; `question` gets the seconds that one try may take.

        Raises:
            KafkaUnreachableError: nobody answered within `wait_seconds`; carries a verdict per address.

        Runs: driver; blocks <= wait_seconds.
        """
        deadline = self._clock.monotonic() + wait_seconds
        retry = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(KafkaUnreachableError),
            stop=lambda _: self._clock.monotonic() >= deadline,
            wait=lambda _: min(1.0, max(deadline - self._clock.monotonic(), 0.0)),
            sleep=self._pause,
            after=self._say_unanswered,
            reraise=True,
        )
        return retry(lambda: question(max(min(_ANSWER_SECONDS, deadline - self._clock.monotonic()), 0.1)))

    def _pause(self, seconds: float) -> None:
        self.wait(lambda _: False, seconds)

    def _say_unanswered(self, state: tenacity.RetryCallState) -> None:
        if state.outcome is not None and (now := self._clock.monotonic()) >= self._say_after:
            self._say_after = now + _SAY_AGAIN_SECONDS
            _log.warning("the query cannot start yet: %s", state.outcome.exception())

    def _no_start(self, view: FeedView) -> KafkaUnreachableError | ConfigError:
        waited = self._options.startup_timeout_seconds
        text = f"startupTimeout: after {waited:g} s {explain(view, self._options.interest)}"
        return ConfigError(text) if is_living(view) else KafkaUnreachableError(text)

    def _say(self, view: FeedView) -> None:
        _log.warning("the query cannot start yet: %s", explain(view, self._options.interest))
