"""The test's end of a librdkafka mock cluster that lives in a child process."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

_CHILD = Path(__file__).with_name("mock_child.py")


class MockCluster:
    """A context manager; broker ids are 1..n. Topics are auto-created on metadata unless asked with care."""

    def __init__(self, brokers: int = 3) -> None:
        """Start the child and learn the addresses."""
        self._child = subprocess.Popen(
            [sys.executable, str(_CHILD), str(brokers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.bootstrap_servers = str(self._heard())

    def call(self, name: str, *arguments: int | str) -> None:
        """Call `rd_kafka_mock_<name>` of librdkafka with the cluster as first argument; fail on an error code."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._child.stdin.flush()
        code = self._heard()
        assert code == 0, f"rd_kafka_mock_{name}{arguments} returned {code}"

    def freeze(self) -> None:
        """Stop the process: connections are accepted and nobody answers."""
        self._child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._child.send_signal(signal.SIGCONT)

    def _heard(self) -> object:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        assert line, f"the mock cluster ended with {self._child.wait(5)}"
        return json.loads(line)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the child."""
        self._child.kill()
        self._child.communicate()
