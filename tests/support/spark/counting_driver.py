"""The daily-active-users query over files as a driver of its own, to be killed: `… FOLDER`."""

import sys
from pathlib import Path

from discovery.spark.jobs.dau_options import DauOptions
from discovery.spark.jobs.dau_query import BatchWriter, make_session, start_query
from discovery.spark.jobs.dau_store import DauStore

SCHEMA = "value BINARY, topic STRING, partition INT, offset BIGINT"


def main(folder: Path) -> None:
    """Count what lies in `FOLDER/in`, a file per batch, then end."""
    options = DauOptions(
        bootstrap_servers="",
        topic="events",
        output=folder / "dau.db",
        checkpoint=str(folder / "checkpoint"),
        available_now=True,
        spark_options=(("spark.sql.shuffle.partitions", "1"),),
    )
    session = make_session(options)
    store = DauStore(folder / "dau.db", options.checkpoint)
    store.create()
    records = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    start_query(records, BatchWriter(store), options).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
