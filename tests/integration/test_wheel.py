"""What is published works: the built wheel, installed by pip into a clean environment, reads Kafka with Spark.

The environment holds the locked packages and nothing else: their files are linked from where `make setup` installed
them by hash, since 900 MB need not be unpacked twice. pip then resolves what the wheel asks for, without an index.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest

from deploy.package import build
from discovery.localkafka.cluster import LocalKafka
from tests.support.helpers import numbered, produce

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
    """An environment with our wheel in it, and what it needs."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel, _ = build(folder)
    home = folder / "env"
    venv.create(home, with_pip=False)
    site = next((home / "lib").glob("python*")) / "site-packages"
    for found in locked():
        link(found, site)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin/python")]
    install = [*pip, "install", "--quiet", "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run(install, check=True, timeout=120)
    return home


def locked() -> list[metadata.Distribution]:
    """Return the packages of the lock, as far as this platform takes them."""
    names = re.findall(
        r"^([\w.-]+)==[^\\\n]*", Path("requirements/run.txt").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    found = {name: list(metadata.distributions(name=name)) for name in names}
    return [distributions[0] for distributions in found.values() if distributions]


def link(found: metadata.Distribution, site: Path) -> None:
    """Link a package's modules and metadata; commands in `bin` name another interpreter and stay behind."""
    root = Path(str(found.locate_file(""))).resolve()
    for file in installed_files(found, root):
        if not file.is_relative_to(root) or "__pycache__" in file.parts:
            continue
        target = site / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, target)
        except OSError:  # another file system
            shutil.copy(file, target)


def installed_files(found: metadata.Distribution, root: Path) -> list[Path]:
    """Return what an installation of a package wrote; an old pip's notes are in a file that `files` does not prefer."""
    old = found.read_text("installed-files.txt")
    if old is None:
        return [Path(str(file.locate())).resolve() for file in found.files or ()]
    home = next(root.glob(f"{found.metadata['Name']}-{found.version}*.egg-info"))
    return [(home / line).resolve() for line in old.splitlines()]


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


def test_given_the_wheel_alone_when_looked_at_then_its_needs_are_met_and_no_tool_of_ours_is_there(
    installed: Path, tmp_path: Path
) -> None:
    pip = (sys.executable, "-m", "pip", "--python", str(installed / "bin/python"), "--disable-pip-version-check")
    assert "No broken requirements found" in run(installed, tmp_path, *pip, "check")
    names = {found.name for found in metadata.distributions(path=[str(next(installed.glob("lib/*/site-packages")))])}
    assert {"kafka-discovery", "pyspark", "confluent-kafka"} <= names
    assert not {"pytest", "mypy", "ruff", "build"} & names, "only what the wheel asks for"


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
