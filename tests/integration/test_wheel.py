"""What is published works: the built wheel, installed away from this tree, reads Kafka with Spark.

The new environment finds third-party packages in this one, where they were installed by hash: 600 MB need not be
installed twice. Our own code comes from the wheel alone.
"""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from deploy.package import build
from discovery.localkafka.cluster import LocalKafka
from tests.support import numbered, produce

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]
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
spark.stop()
print(json.dumps({"from": discovery.__file__, "values": sorted(row.v for row in rows)}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with our wheel in it."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel, _ = build(folder)
    home = folder / "env"
    venv.create(home, with_pip=False)
    site = next((home / "lib").glob("python*")) / "site-packages"
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "install", "--quiet", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--disable-pip-version-check", str(wheel)], check=True, timeout=120)
    # A plain path: the .pth files in there, among them the one of the editable install, are not followed.
    (site / "zz-third-party.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return home


def run(home: Path, folder: Path, *command: str) -> str:
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME", "LANG") if name in os.environ}
    environment = {**kept, "PATH": f"{home}/bin:{os.environ['PATH']}", "PYSPARK_PYTHON": str(home / "bin/python")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_given_the_wheel_alone_when_asked_then_the_command_answers(installed: Path, tmp_path: Path) -> None:
    told = run(installed, tmp_path, str(installed / "bin/kafka-discovery"), "--help")
    assert "serve" in told
    assert "healthcheck" in told


def test_given_the_wheel_alone_when_spark_reads_then_every_record_comes(
    installed: Path, tmp_path: Path, kafka_cluster: LocalKafka, topic_name: str
) -> None:
    kafka_cluster.create_topic(topic_name, 2)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(20))
    (tmp_path / "read.py").write_text(READ, encoding="utf-8")
    python = str(installed / "bin/python")
    told = run(installed, tmp_path, python, "read.py", kafka_cluster.bootstrap_servers, topic_name)
    found = json.loads(told.splitlines()[-1])
    assert found["from"].startswith(str(installed)), "not from this tree"
    assert found["values"] == sorted(numbered(20))
