"""Daily active users, exactly: `python spark_jobs/dau.py --help`.

Exit codes: 0 stopped or all read, 1 the query failed, 2 wrong options, 3 Kafka unreachable.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from discovery.spark.jobs import running
from discovery.spark.jobs.dau_kafka import kafka_writer, sink_of
from discovery.spark.jobs.dau_options import DauOptions, KafkaOutput, parse_arguments
from discovery.spark.jobs.dau_query import BatchWriter, make_session, read_records, start_query, tables_of
from discovery.spark.jobs.dau_store import DauStore
from discovery.spark.jobs.folder import FolderOutput, FolderWriter
from discovery.spark.jobs.jdbc import JdbcOutput, JdbcWriter


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job until it is stopped; a user's mistake is one line and exit code 2.

    Runs: main thread of a driver process; blocks until the query ends or SIGTERM or SIGINT comes.
    """
    return running.ended("dau", lambda: run(parse_arguments(sys.argv[1:] if arguments is None else arguments)))


def run(options: DauOptions) -> None:
    """Count until the query ends or a signal comes.

    Raises:
        DiscoveryError: the output cannot be written or belongs to another checkpoint.
        StreamingQueryException: the query failed.

    Runs: main thread; blocks.
    """
    writer = _writer(options)
    try:
        running.run_in(
            "dau",
            lambda: make_session(options),
            options.watching,
            lambda session: start_query(read_records(session, options), writer, options),
        )
    except StreamingQueryException:
        if isinstance(writer, BatchWriter) and writer.failure is not None:
            raise writer.failure from None
        raise


def _writer(options: DauOptions) -> "BatchWriter | Callable[[DataFrame, int], None]":
    output = options.output
    if isinstance(output, KafkaOutput):
        # Each record names its topic, so the sink itself cannot look for it before the first one.
        topics = {"--output-topic": output.topic, "--dead-letter-topic": output.dead_letter_topic}
        running.ready_topics(
            sink_of(options.bootstrap_servers, output),
            {"--topic": options.topic, **topics} if output.create_topics else topics,
            create=output.create_topics,
        )
        return kafka_writer(options.bootstrap_servers, output, time_zone=options.time_zone)
    shape = partial(tables_of, time_zone=options.time_zone)
    if isinstance(output, JdbcOutput):
        return JdbcWriter(output, shape, job="dau", checkpoint=options.checkpoint)
    if isinstance(output, FolderOutput):
        return FolderWriter(output, shape, checkpoint=options.checkpoint)
    store = DauStore(output, options.checkpoint)
    store.create()
    return BatchWriter(store, time_zone=options.time_zone)


if __name__ == "__main__":
    sys.exit(main())
