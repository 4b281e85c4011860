"""What the doctor says of Spark's own source, done by Spark's own source."""

import time
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from discovery.core.policy import Policy
from discovery.doctor.diagnose import diagnose
from discovery.doctor.examine import examine
from discovery.doctor.inputs import described
from tests.support.faults import refused_port

pytestmark = pytest.mark.spark
API_SECONDS = 2.0
TIMES = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}


def test_given_a_dead_list_when_sparks_own_source_starts_then_it_tries_as_often_as_is_said(
    spark: SparkSession, tmp_path: Path
) -> None:
    with refused_port() as address:
        options = {"kafka.bootstrap.servers": address, **TIMES}
        conf = tmp_path / "spark-defaults.conf"
        conf.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
        what = described(spark_conf=conf)
        said = diagnose(examine(what.addresses, what.options, Policy()), what)
        (sentence,) = [one.sentence for one in said.findings if one.code == "spark-tries"]
        assert "makes up to 3 such starts" in sentence
        assert sentence.endswith("100 % of its queries do, after 8 s.")
        begun = time.monotonic()
        query = (
            spark.readStream.format("kafka")
            .options(**options, subscribe="dead")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        with pytest.raises(StreamingQueryException, match="Timed out waiting for a node assignment"):
            query.awaitTermination(120)
        assert time.monotonic() - begun >= 3 * API_SECONDS  # one or two tries would have ended sooner
