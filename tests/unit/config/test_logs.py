"""In a process of our own the lines of the HTTP server and of asyncio look like ours."""

import io
import json
import logging
import subprocess
import sys

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


def test_given_lines_that_repeat_when_logged_then_they_are_one_line_and_one_more_with_their_number() -> None:
    now, out = [0.0], io.StringIO()
    handler = FoldingHandler(out, clock=lambda: now[0])

    def log(event: str, *arguments: object, **facts: object) -> None:
        record = logging.LogRecord("x", logging.INFO, "", 0, event, arguments, None)
        if facts:
            record.event, record.facts = event, facts
            record.msg = f"{event} {facts}"
        handler.handle(record)

    for turn in range(5):
        log("refused", status=401, cycle=turn)
    log("refused", status=403)
    for _ in range(3):
        log("slow: %s", "task")
    now[0] = 11.0
    log("refused", status=401)
    log("refused", status=401)
    handler.close()
    first, other, theirs, folded, their_fold, again, last = out.getvalue().splitlines()
    assert ("401" in first, "403" in other, theirs) == (True, True, "slow: task")
    assert (folded.endswith("repeated=4"), their_fold) == (True, "slow: task repeated=2")
    assert "repeated" not in again
    assert last.endswith("repeated=1")


def test_given_text_when_logged_then_words_stand_as_they_are_and_the_rest_is_quoted() -> None:
    script = _SCRIPT.replace("as_json=True", "as_json=False").replace('cluster="main"', 'of="main", why="no leader"')
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[0].endswith(" [info   ] ours of=main why='no leader'")
