"""In a process of our own the lines of the HTTP server and of asyncio look like ours."""

import io
import json
import logging
import subprocess
import sys
import threading

from discovery.config.logs import FoldingHandler

_SCRIPT = """
import logging
from discovery.config.logs import configure_logging, event_log
configure_logging(as_json=True, owns_process=True)
event_log("discovery.service").info("ours", cluster="main")
logging.getLogger("uvicorn.error").info("left out")
logging.getLogger("uvicorn.error").warning("theirs %d", 1)
logging.getLogger("asyncio").error("slow")
"""


def test_given_a_process_of_our_own_when_others_log_then_every_line_has_one_form() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("ours", "info"), ("theirs 1", "warning"), ("slow", "error"),
    ]  # fmt: skip
    assert all("timestamp" in line for line in lines)
    assert [line["component"] for line in lines] == ["service", "uvicorn.error", "asyncio"]


def test_given_a_loop_and_its_turn_when_bound_then_every_line_says_so_and_the_block_gives_it_back() -> None:
    script = (
        _SCRIPT
        + """
from discovery.config.logs import bind, bound
with bound(cluster="orders"):
    bind(cycle=7)
    event_log("discovery.loop").info("inside")
event_log("discovery.loop").info("outside")
"""
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    inside, outside = [json.loads(line) for line in done.stderr.splitlines()][-2:]
    assert (inside["cluster"], inside["cycle"], inside["component"]) == ("orders", 7, "loop")
    assert not {"cluster", "cycle"} & outside.keys()


def test_given_a_host_with_structlog_of_its_own_when_we_log_then_its_configuration_is_neither_used_nor_changed() -> (
    None
):
    script = (
        "import structlog; structlog.configure(processors=[structlog.processors.JSONRenderer()])\n"
        + _SCRIPT
        + "structlog.get_logger().info('the host', a=1)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(done.stderr.splitlines()[0])["component"] == "service"
    assert done.stdout == '{"a": 1, "event": "the host"}\n'


class Log:
    """A folding handler, its clock and its timers: they go off when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.out = io.StringIO()
        self.armed: list[threading.Timer] = []
        log = self

        class ByHand(threading.Timer):
            def start(self) -> None:
                log.armed.append(self)

            def cancel(self) -> None:
                log.armed.remove(self)

            def is_alive(self) -> bool:
                return self in log.armed

        self.handler = FoldingHandler(self.out, clock=lambda: self.now, timer=ByHand)

    def __call__(self, event: str, *arguments: object, **facts: object) -> None:
        record = logging.LogRecord("x", logging.INFO, "", 0, event, arguments, None)
        if facts:
            record.event, record.facts = event, facts
            record.msg = f"{event} {facts}"
        self.handler.handle(record)

    def go_off(self) -> None:
        """Let the one timer that is armed go off when it is due."""
        (timer,) = self.armed
        self.now += timer.interval
        self.armed.clear()
        timer.function()

    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()


def test_given_lines_that_repeat_when_logged_then_they_are_one_line_and_one_more_with_their_number() -> None:
    log = Log()
    for turn in range(5):
        log("refused", status=401, cycle=turn)
    for _ in range(3):
        log("slow: %s", "task")
    log.now = 11.0
    log("refused", status=401)
    log("refused", status=401)
    log.handler.close()
    first, theirs, folded, their_fold, again, last = log.lines()
    assert ("401" in first, theirs) == (True, "slow: task")
    assert (folded.endswith("repeated=4"), their_fold) == (True, "slow: task repeated=2")
    assert "repeated" not in again
    assert last.endswith("repeated=1")


def test_given_a_state_that_returns_when_logged_then_every_change_is_a_line_of_its_own() -> None:
    log = Log()
    for status in (401, 403, 403, 401):
        log("refused", status=status)
    log("slow: %s", "a")
    log("slow: %s", "b")
    log("slow: %s", "a")
    assert log.lines() == [
        "refused {'status': 401}", "refused {'status': 403}", "refused {'status': 403} repeated=1",
        "refused {'status': 401}", "slow: a", "slow: b", "slow: a",
    ]  # fmt: skip


def test_given_a_message_that_is_no_text_when_logged_then_it_is_written() -> None:
    log = Log()
    log.handler.handle(logging.LogRecord("x", logging.INFO, "", 0, [1], (), None))
    assert log.lines() == ["[1]"]


def test_given_two_loops_that_repeat_in_turn_when_logged_then_the_lines_of_each_are_folded() -> None:
    log = Log()
    for _ in range(3):
        log("cycle", cluster="orders")
        log("cycle", cluster="users")
    assert len(log.lines()) == 2


def test_given_repeats_when_nothing_else_is_logged_then_a_timer_writes_them_and_none_waits_afterwards() -> None:
    log = Log()
    log("refused", status=401)
    assert not log.armed, "nothing is held back"
    log.now = 2.0
    log("slow: %s", "task")
    log.now = 4.0
    log("refused", status=401)
    log("slow: %s", "task")
    assert [timer.interval for timer in log.armed] == [6.0]
    assert all(timer.daemon for timer in log.armed)
    log.go_off()
    assert log.lines()[2:] == ["refused {'status': 401} repeated=1"]
    log.go_off()
    assert (log.now, log.lines()[3:], log.armed) == (12.0, ["slow: task repeated=1"], [])


def test_given_repeats_that_are_held_when_closed_then_they_are_written_and_no_timer_is_left() -> None:
    log = Log()
    log("refused", status=401)
    log("refused", status=401)
    assert log.armed
    log.handler.close()
    assert (log.lines()[1:], log.armed) == (["refused {'status': 401} repeated=1"], [])


def test_given_text_when_logged_then_words_stand_as_they_are_and_the_rest_is_quoted() -> None:
    script = _SCRIPT.replace("as_json=True", "as_json=False").replace('cluster="main"', 'of="main", why="no leader"')
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[0].endswith(" [info   ] ours of=main why='no leader'")
