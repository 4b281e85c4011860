"""What Spark's processes on the driver load of the sink: each of them starts while a batch waits."""

import subprocess
import sys

PLANS = "pyspark_kafka_discovery, discovery.spark.sink.spark_writers, discovery.spark.sink.preflight"
CONFIRMS = f"{PLANS}, discovery.spark.sink.writer"


def loaded(modules: str, *unwanted: str) -> str:
    code = f"import sys, {modules}; print(*[name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.strip()


def test_given_a_process_that_plans_batches_when_it_starts_then_no_client_and_nothing_of_the_source_is_loaded() -> None:
    assert not loaded(PLANS, "pyarrow", "confluent_kafka", "structlog", "discovery.spark.source.options.parse")


def test_given_a_process_that_confirms_batches_when_it_starts_then_arrow_is_not_loaded() -> None:
    assert not loaded(CONFIRMS, "pyarrow", "numpy", "structlog", "discovery.spark.source.options.parse")
    assert loaded(CONFIRMS, "confluent_kafka") == "confluent_kafka"
