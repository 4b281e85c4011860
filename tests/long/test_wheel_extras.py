"""The built wheel with its extras, in a clean environment, reads Kafka with Spark: no jar, no other setting."""

import json
from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.support import wheel
from tests.support.helpers import numbered, produce

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
READ = """
import json, sys
import discovery
from pyspark.sql import SparkSession

spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.sql.shuffle.partitions", "1").getOrCreate())
from pyspark_kafka_discovery import DefaultSource
spark.dataSource.register(DefaultSource)
rows = (spark.read.format("kafka-discovery").option("kafka.bootstrap.servers", sys.argv[1])
        .option("subscribe", sys.argv[2]).load().selectExpr("cast(value as string) v").collect())
worker = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).collect()
spark.stop()
print(json.dumps({"from": [discovery.__file__, *worker], "values": sorted(row.v for row in rows)}))
"""


@pytest.mark.parametrize("extra", ["spark", "all"])
def test_given_the_wheel_with_an_extra_when_spark_reads_then_every_record_comes(
    tmp_path: Path, kafka_cluster: LocalKafka, topic_name: str, extra: str
) -> None:
    home = wheel.install(tmp_path, extra, "run.txt")
    assert "No broken requirements found" in wheel.pip(home, tmp_path, "check")
    assert {"pyspark", "pyarrow", "numba"} <= wheel.names(home)
    kafka_cluster.create_topic(topic_name, 2)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(20))
    (tmp_path / "read.py").write_text(READ, encoding="utf-8")
    python = str(home / "bin/python")
    done = wheel.run(home, tmp_path, python, "read.py", kafka_cluster.bootstrap_servers, topic_name)
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(file.startswith(f"{home}/lib/") and ".zip" not in file for file in found["from"]), found["from"]
    assert found["values"] == sorted(numbered(20))
