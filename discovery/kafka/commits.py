"""The answer to a commit that was asked for by callback: the blocking form has no limit."""

from collections.abc import Sequence

from confluent_kafka import KafkaError, TopicPartition


class CommitAnswer:
    """Hears what became of a consumer's commits, one at a time.

    Apart from whoever owns the consumer: a client holds its callbacks, and a callback that held the owner would keep
    both until the garbage collector comes by, with the client's threads and connections.
    """

    def __init__(self) -> None:
        self.pending = False
        self.error: KafkaError | None = None
        """Why the last commit was not taken."""
        self._asked: list[tuple[str, int, int, str]] = []

    def expect(self, asked: Sequence[TopicPartition]) -> None:
        """Await the answer to what has just been asked. Runs: the thread that polls."""
        self._asked = _key(asked)
        self.pending, self.error = True, None

    def hear(self, error: KafkaError | None, partitions: Sequence[TopicPartition] | None) -> None:
        """Take an answer, `on_commit`; one that was given up may still come, and is none to what was asked since.

        Runs: within `poll`.
        """
        if partitions and _key(partitions) != self._asked:
            return
        self.error = error or next((tp.error for tp in partitions or () if tp.error), None)
        self.pending = False


def _key(partitions: Sequence[TopicPartition]) -> list[tuple[str, int, int, str]]:
    return sorted((tp.topic, tp.partition, tp.offset, tp.metadata or "") for tp in partitions)
