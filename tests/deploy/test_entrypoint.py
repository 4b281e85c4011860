"""The driver image's entrypoint speaks Spark's protocol: run with the installed Spark, outside of a container."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
ENTRYPOINT = Path("deploy/docker/entrypoint.sh").resolve()


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    java = Path(str(shutil.which("java"))).resolve().parents[1]
    known = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "JAVA_HOME": os.environ.get("JAVA_HOME", str(java)),
        "PYSPARK_PYTHON": sys.executable,
        "HOME": str(folder),
    }
    return subprocess.run(
        ["/bin/bash", str(ENTRYPOINT), *arguments],
        env={**known, **environment}, cwd=folder, capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip


@pytest.mark.parametrize("word", ["driver", pytest.param("driver-py", marks=pytest.mark.long)])
def test_given_the_words_of_a_driver_when_run_then_the_job_is_submitted_on_the_pods_address(
    tmp_path: Path, word: str
) -> None:
    (tmp_path / "job.py").write_text(
        "import sys\nfrom pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "print('ADDRESS', spark.conf.get('spark.driver.bindAddress'), sys.argv[1:], spark.range(3).count())\n"
    )
    properties = tmp_path / "spark.properties"
    properties.write_text("spark.master=local[1]\nspark.ui.enabled=false\nspark.driver.host=127.0.0.1\n")
    runner = ("--class", "org.apache.spark.deploy.PythonRunner")
    done = run(
        tmp_path, word, "--properties-file", str(properties), *runner, f"local://{tmp_path}/job.py", "--flag", "x",
        SPARK_DRIVER_BIND_ADDRESS="127.0.0.1",
    )  # fmt: skip
    assert "ADDRESS 127.0.0.1 ['--flag', 'x'] 3" in done.stdout, done.stderr[-3000:]
    assert done.returncode == 0


def test_given_the_word_of_an_executor_when_run_then_it_takes_its_options_and_looks_for_its_driver(
    tmp_path: Path,
) -> None:
    done = run(
        tmp_path, "executor", SPARK_DRIVER_URL="spark://CoarseGrainedScheduler@127.0.0.1:1", SPARK_EXECUTOR_ID="7",
        SPARK_EXECUTOR_CORES="1", SPARK_EXECUTOR_MEMORY="256m", SPARK_APPLICATION_ID="spark-1",
        SPARK_EXECUTOR_POD_IP="127.0.0.1", SPARK_EXECUTOR_POD_NAME="exec-7", SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_JAVA_OPT_0="-Dspark.rpc.numRetries=1", SPARK_JAVA_OPT_1="-Dshown=a b",
        SPARK_JAVA_OPT_2="-XshowSettings:properties",
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "shown = a b" in said, said[-3000:]
    assert "KubernetesExecutorBackend" in said
    assert "127.0.0.1:1" in said
    assert done.returncode != 0, "there is no driver"


def test_given_any_other_command_when_run_then_it_is_run_as_it_is(tmp_path: Path) -> None:
    assert run(tmp_path, "python", "-c", "import sys; print(sys.argv)", "a b").stdout == "['-c', 'a b']\n"
