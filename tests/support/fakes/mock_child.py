"""librdkafka's mock cluster in a process of its own, since it may crash: commands in, answers out, as JSON lines.

Run as a script; `MockCluster` in `mock_cluster.py` is the other end.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka

Command = Callable[..., object]


def _library() -> ctypes.CDLL:
    """Open the shared library that confluent-kafka brings; its name carries a hash that changes per release."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    (found,) = folder.glob("librdkafka-*")
    return ctypes.CDLL(str(found))


class _Mock:
    """One mock cluster by librdkafka's C API."""

    def __init__(self, brokers: int) -> None:
        self._lib = _library()
        for name in ("rd_kafka_new", "rd_kafka_mock_cluster_new", "rd_kafka_mock_cluster_bootstraps"):
            getattr(self._lib, name).restype = ctypes.c_void_p
        error = ctypes.create_string_buffer(512)
        producer = self._lib.rd_kafka_new(0, None, error, len(error))
        self._handle = ctypes.c_void_p(producer)
        self._cluster = ctypes.c_void_p(self._lib.rd_kafka_mock_cluster_new(self._handle, brokers))
        bootstraps = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.bootstrap_servers = ctypes.string_at(bootstraps).decode()

    def call(self, name: str, *arguments: int | str) -> int:
        """Call `rd_kafka_mock_<name>(cluster, …)`."""
        raw = [a.encode() if isinstance(a, str) else ctypes.c_int(a) for a in arguments]
        result: int = getattr(self._lib, f"rd_kafka_mock_{name}")(self._cluster, *raw)
        return result


def main() -> None:
    """Serve commands until the input ends."""
    mock = _Mock(int(sys.argv[1]))
    _say(mock.bootstrap_servers)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        _say(mock.call(name, *arguments))


def _say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
