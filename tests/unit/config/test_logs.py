"""In a process of our own the lines of the HTTP server and of asyncio look like ours."""

import json
import subprocess
import sys

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


def test_given_text_when_logged_then_words_stand_as_they_are_and_the_rest_is_quoted() -> None:
    script = _SCRIPT.replace("as_json=True", "as_json=False").replace('cluster="main"', 'of="main", why="no leader"')
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[0].endswith(" [info   ] ours of=main why='no leader'")
