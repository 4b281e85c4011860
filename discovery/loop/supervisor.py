"""The thread that keeps the cycle turning, whatever happens in it."""

import queue
import threading

import tenacity

from discovery.config.logs import event_log
from discovery.core.errors import BUG_PHRASE
from discovery.loop.cycle import Barrier, Cycle, Item

BUG = f"{BUG_PHRASE}: please report the traceback; the last good view is still served"
THREAD_NAME = "kafka-discovery loop"
_LONGER = tenacity.wait_random_exponential(multiplier=0.1, max=5.0)
_GOOD_TURNS = 100
_log = event_log("discovery.loop")


class Supervisor:
    """Runs a `Cycle` on a daemon thread until `stop`. Thread-safe."""

    def __init__(self, cycle: Cycle) -> None:
        """Start nothing yet."""
        self._cycle = cycle
        self._stop = threading.Event()
        self._starting = threading.Lock()
        self._good_turns = 0
        """Since the last exception."""
        self._thread: threading.Thread | None = None
        self.bugs = 0

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Ask the thread to end and wait for it, at most `timeout_seconds`."""
        self._stop.set()
        self._cycle.inbox.put(Barrier(threading.Event()))
        with self._starting:  # a thread that is being started cannot be waited for
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_seconds)

    def note_bug(self, where: str, error: Exception) -> None:
        """Log an exception nobody expected, with its traceback and the fixed phrase, and count it."""
        self.bugs += 1
        _log.error("bug", sentence=BUG, where=where, exc_info=error)

    def _run(self) -> None:
        """Turn until stopped; after an unexpected exception rest, longer each time, and go on."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Exception),
            wait=self._rest,
            sleep=tenacity.sleep_using_event(self._stop),
            stop=tenacity.stop_when_event_set(self._stop),
            before_sleep=self._before_sleep,
            retry_error_callback=lambda _state: None,
        )
        retrying(self._turns)

    def _rest(self, retry_state: tenacity.RetryCallState) -> float:
        """Rest longer after each exception in a row; after many good turns another one is the first again."""
        if self._good_turns >= _GOOD_TURNS:
            retry_state.attempt_number = 1
        self._good_turns = 0
        return _LONGER(retry_state)

    def _before_sleep(self, retry_state: tenacity.RetryCallState) -> None:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        if isinstance(error, Exception):
            self.note_bug("loop", error)

    def _turns(self) -> None:
        first: Item | None = None
        while not self._stop.is_set():
            idle_seconds = self._cycle.turn(first)
            self._good_turns += 1
            first = self._next(idle_seconds)
            if first is not None and (calm_seconds := self._cycle.calm_seconds):
                self._stop.wait(calm_seconds)  # answers that come together are taken in by one turn

    def _next(self, seconds: float) -> Item | None:
        try:
            return self._cycle.inbox.get(timeout=seconds) if seconds > 0 else None
        except queue.Empty:
            return None
