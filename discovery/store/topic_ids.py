"""Under which topic ids a named source has read its partitions, as its checkpoint stands.

A saved view moves on with the cluster; this does not. A topic that was recreated is found by it at every start, until
somebody has decided what then.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from discovery.config.logs import event_log
from discovery.core.errors import StateError
from discovery.core.model import TopicId, TopicName, TopicPartition
from discovery.store.files import write_atomically
from discovery.store.snapshots import file_name

_SCHEMA = 1
_log = event_log("discovery.store")


class TopicIdStore:
    """One file of one source, which one process may hold. The constructor does no I/O."""

    def __init__(self, state_dir: Path, source_id: str) -> None:
        """Name the file."""
        self.path = state_dir / "ids" / file_name(source_id)

    def load(self) -> dict[TopicPartition, TopicId]:
        """Return what was saved; a file that is broken is logged and counts as none.

        Raises:
            StateError: there is a file, and it cannot be read: what is saved next would take its place.

        Runs: driver, once; a file look-up.
        """
        try:
            return {
                TopicPartition(TopicName(topic), int(partition)): TopicId(topic_id)
                for topic, ids in _topics(self.path.read_bytes()).items()
                for topic_id, partitions in ids.items()
                for partition in partitions
            }
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StateError(
                f"stateDir: {self.path} cannot be read: {error.strerror}; it tells whether a topic was recreated, so "
                "make it readable, or delete it if none was"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("state_not_read", path=str(self.path), error=str(error))
            return {}

    def save(self, ids: Mapping[TopicPartition, TopicId]) -> bool:
        """Replace what was saved; returns False and tells when it cannot.

        Runs: driver, when a partition is new; blocks for two fsyncs.
        """
        topics: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for tp, topic_id in sorted(ids.items()):
            topics[tp.topic][topic_id].append(tp.partition)
        try:
            write_atomically(self.path, json.dumps({"schema": _SCHEMA, "topics": topics}).encode())
        except OSError as error:
            _log.warning("state_not_written", path=str(self.path), error=str(error))
            return False
        return True


def _topics(content: bytes) -> dict[str, dict[str, list[int]]]:
    raw = json.loads(content)
    if raw["schema"] != _SCHEMA:
        raise ValueError(f"it has schema {raw['schema']!r}, this version reads {_SCHEMA}")
    topics: dict[str, dict[str, list[int]]] = raw["topics"]
    return topics
