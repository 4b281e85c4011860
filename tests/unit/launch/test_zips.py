"""Which of Spark's zips a Python process can do without, and the launcher that leaves them out."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

import discovery.spark.launch
from discovery.spark.launch.zips import without_zips
from discovery.spark.supervise.inject import HOOK_FOLDER, SOCKET

SCRIPT = Path(discovery.spark.launch.__file__).with_name("kafka-discovery-python")
SPARK_ZIPS = sorted(map(str, (Path(pyspark.__file__).parent / "python/lib").glob("*.zip")))


def zipped(folder: Path, *, pyspark_version: str | None = "4.2.0", py4j_version: str = "0.10.9.9") -> list[str]:
    """Zips as Spark puts them on the path; None: one that is no zip."""
    folder.mkdir()
    spark, py4j = folder / "pyspark.zip", folder / "py4j-0.10.9.9-src.zip"
    if pyspark_version is None:
        spark.write_bytes(b"PK")
    else:
        with zipfile.ZipFile(spark, "w") as file:
            file.writestr("pyspark/version.py", f"# text\n__version__: str = '{pyspark_version}'\n")
    with zipfile.ZipFile(py4j, "w") as file:
        file.writestr("py4j/version.py", f'__version__ = "{py4j_version}"\n')
    return [str(spark), str(py4j)]


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """A folder with PySpark 4.2.0 and py4j 0.10.9.9 in it."""
    for package, version in (("pyspark", "4.2.0"), ("py4j", "0.10.9.9")):
        folder = tmp_path / "site" / package
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "version.py").write_text(f"__version__: str = '{version}'\n")
    return str(tmp_path / "site")


def test_given_the_installed_versions_when_a_path_has_the_zips_then_it_loses_them_alone(
    tmp_path: Path, installed: str
) -> None:
    zips = zipped(tmp_path / "lib")
    assert without_zips([*zips, "/jobs", "", "extra.zip"], [installed]) == ["/jobs", "", "extra.zip"]
    assert without_zips([*zips, installed], []) == [installed]
    assert without_zips([*zips, *zips, "/none/pyspark.zip"], [installed]) == ["/none/pyspark.zip"]
    assert without_zips([*zips, "/jobs"], [*zips, installed]) == ["/jobs"]


@pytest.mark.parametrize("versions", [{"pyspark_version": "4.2.1"}, {"py4j_version": "0.10.9.7"}])
def test_given_another_version_when_a_path_has_the_zips_then_it_stays(
    tmp_path: Path, installed: str, versions: dict[str, str]
) -> None:
    path = [*zipped(tmp_path / "lib", **versions), "/jobs"]
    assert without_zips(path, [installed]) == path


def test_given_nothing_installed_or_no_real_zip_when_a_path_has_the_zips_then_it_stays(
    tmp_path: Path, installed: str
) -> None:
    zips = zipped(tmp_path / "lib")
    assert without_zips(zips, [str(tmp_path)]) == zips
    broken = zipped(tmp_path / "broken", pyspark_version=None)
    assert without_zips(broken, [installed]) == broken
    (tmp_path / "site/pyspark/version.py").unlink()
    assert without_zips(zips, [installed]) == zips


def launched(folder: Path, path: list[str], *arguments: str) -> list[str]:
    """Run the launcher beside an interpreter, as an installation lays them out, and return the lines it prints."""
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    launcher = shutil.copy(SCRIPT, python.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "KEPT": "by the child"}
    done = subprocess.run(
        [launcher, *arguments], env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


def test_given_sparks_own_zips_when_the_launcher_starts_a_module_then_the_installed_package_is_imported(
    tmp_path: Path,
) -> None:
    own = tmp_path / "modules"
    own.mkdir()
    (own / "shown.py").write_text(
        "import os, sys, pyspark, py4j\n"
        "print(pyspark.__file__, py4j.__file__, sys.argv[1:], sys.executable, os.environ['KEPT'], sep='\\n')\n"
    )
    found = launched(tmp_path, [*SPARK_ZIPS, str(own)], "-u", "-m", "shown", "an argument", "-x")
    site = Path(pyspark.__file__).parent.parent
    assert found == [
        str(site / "pyspark/__init__.py"),
        str(site / "py4j/__init__.py"),
        "['an argument', '-x']",
        sys.executable,
        "by the child",
    ]


def test_given_a_spark_of_another_version_when_the_launcher_starts_then_its_zip_is_imported(tmp_path: Path) -> None:
    zips = zipped(tmp_path / "lib", pyspark_version="4.1.0")
    found = launched(tmp_path, zips, "-c", "import os; print(os.environ['PYTHONPATH'])")
    assert found == [os.pathsep.join(zips)]


@pytest.mark.parametrize("socket", ["set", ""])
def test_given_a_job_under_run_when_its_python_starts_then_pyspark_comes_from_where_it_is_installed(
    socket: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__file__)"],
        env={**os.environ, SOCKET: socket, "PYTHONPATH": os.pathsep.join([str(HOOK_FOLDER), *SPARK_ZIPS])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (".zip" in done.stdout) is (not socket), "the hook does nothing in other processes"
    assert done.stderr == ""
