"""An archive of the classes that a Spark driver loads, with which it starts two seconds earlier.

`python -m tests.support.spark.class_archive build/spark.jsa` (half a minute). Java takes it from
`-XX:SharedArchiveFile`, and does without one that does not fit the Java or the jars in use.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from discovery.spark.launch.python import worker_python

# Java would name each class that it leaves out.
_OPTIONS = "-XX:ArchiveClassesAtExit={} -Xlog:disable -Xlog:all=error:stderr"
_QUERY_SECONDS, _END_SECONDS = 120, 60


def main(archive: Path) -> None:
    """Start a driver, let it work as in tests, and have Java write the archive when it ends."""
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {_OPTIONS.format(archive)}"
    os.environ["PYSPARK_PYTHON"] = worker_python()
    with tempfile.TemporaryDirectory(prefix="kafka-discovery-spark-") as folder:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
            .getOrCreate()
        )
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        _query(spark, folder)
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # which ends the JVM
        gateway.proc.wait(_END_SECONDS)


def _query(spark: SparkSession, folder: str) -> None:
    def keep(batch: DataFrame, _batch_id: int) -> None:
        batch.collect()
        batch.write.mode("append").parquet(f"{folder}/rows")

    counted = spark.readStream.format("rate").load().groupBy("value").count()
    writer = counted.writeStream.outputMode("update").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.foreachBatch(keep).start()
    deadline = time.monotonic() + _QUERY_SECONDS
    while query.isActive and not query.recentProgress and time.monotonic() < deadline:
        query.awaitTermination(1)
    query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
