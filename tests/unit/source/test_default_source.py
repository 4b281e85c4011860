"""What Spark meets first: the module it looks for, before any option is read."""

import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_kafka_discovery
from discovery.core.errors import ConfigError
from pyspark_kafka_discovery.source import check_spark

ROOT = Path(pyspark_kafka_discovery.__file__).parents[1]


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4", "3.5.9", "4.1.0.dev1"])
def test_given_an_older_spark_when_the_format_is_loaded_then_one_line_names_what_to_do(version: str) -> None:
    with pytest.raises(ConfigError, match=f"needs Spark 4.2 or newer, this is {version}") as raised:
        check_spark(version, {"subscribe": "events"})
    assert "kafka-discovery run" in str(raised.value)
    assert ("endingOffsets" in str(raised.value)) == version.startswith("4")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4"])
def test_given_spark_4_before_4_2_when_a_read_says_its_end_then_it_goes_on(version: str) -> None:
    check_spark(version, {"subscribe": "events", "endingOffsets": "latest"})


def test_given_spark_3_when_a_read_says_its_end_then_it_is_refused_all_the_same() -> None:
    with pytest.raises(ConfigError, match=r"needs Spark 4\.2 or newer, this is 3\.5\.9"):
        check_spark("3.5.9", {"subscribe": "events", "endingOffsets": "latest"})


def test_given_an_older_spark_when_a_batch_is_read_then_nothing_imports_what_streams_alone_have() -> None:
    code = (
        "import sys; from discovery.spark.source.batch import KafkaDiscoveryReader;"
        " assert 'discovery.spark.source.reader' not in sys.modules, 'it needs what 4.2 brought'"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("version", ["4.2.0", "4.3.1", "4.10.0", "5.0.0.dev3"])
def test_given_a_spark_that_will_do_when_the_format_is_loaded_then_it_goes_on(version: str) -> None:
    check_spark(version, {"subscribe": "events"})


@pytest.mark.parametrize("name", ["discovery.py", "discovery/__init__.py"])
def test_given_a_users_own_discovery_when_the_format_is_looked_for_then_one_line_names_both(
    tmp_path: Path, name: str
) -> None:
    own = tmp_path / name
    own.parent.mkdir(exist_ok=True)
    own.touch()
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; import pyspark_kafka_discovery"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: kafka-discovery: {own} hides its package `discovery`, which lies in {ROOT}")
