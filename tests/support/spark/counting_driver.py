"""The daily-active-users query over files as a driver of its own, to be killed: `… FOLDER`."""

import sys
from pathlib import Path

from discovery.spark.jobs.arguments import Job
from discovery.spark.jobs.running import make_session
from discovery.spark.jobs.sqlite import SqliteOutput
from spark_jobs.dau import DauOptions, count

SCHEMA = "value BINARY, topic STRING, partition INT, offset BIGINT"


def main(folder: Path) -> None:
    """Count what lies in `FOLDER/in`, a file per batch, then end."""
    checkpoint = str(folder / "checkpoint")
    output = SqliteOutput(path=folder / "dau.db")
    job = Job(topic="events", output=output, checkpoint=checkpoint, available_now=True)
    settings = [("spark.sql.shuffle.partitions", "1")]
    session = make_session("dau-events", master=None, settings=settings, checkpoint=checkpoint)
    records = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    count(records, DauOptions(job=job)).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
