"""Where a cell runs: an environment with its PySpark, its Java, the jars of its connector; made once."""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import replace
from pathlib import Path

from discovery.localkafka.jars.artifacts import NATIVE_CONNECTOR, Dependency
from discovery.localkafka.jars.ivy import retrieve
from tests.matrix.brokers import FOLDER, VARIABLE
from tests.matrix.cells import LOCKED
from tests.support import wheel
from tests.support.results import ROOT

_LAUNCHER = ROOT / "discovery" / "spark" / "launch" / "kafka-discovery-python"
_NEXT, _NEXT_SUITE = FOLDER / "next-debian", "trixie"
_NEXT_PACKAGES = "ca-certificates,openjdk-21-jre-headless,procps,python3-venv"
_CLIENTS = {"3.5": ("2.12", "3.4.1", "2.11.1"), "4.0": ("2.13", "3.9.1", "2.12.0"), "4.1": ("2.13", "3.9.1", "2.12.0")}
"""What Spark's own connector is used with: Scala, kafka-clients, commons-pool2."""


def python(spark: str, *, without: frozenset[str] = frozenset()) -> Path:
    """Return the interpreter of an environment with this PySpark and, else, the packages of the lock but for some.

    Blocks for a download of 450 MB the first time.
    """
    if spark == LOCKED and not without:
        return Path(sys.executable)
    home = FOLDER / "-".join((f"spark-{spark}", *sorted(without)))
    if not (home / "ready").exists():
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=False)
        site = next((home / "lib").glob("python*")) / "site-packages"
        for found in wheel.locked("dev.txt"):
            if found.name not in without | (frozenset() if spark == LOCKED else {"pyspark", "py4j"}):
                wheel.link(found, site)
        if spark != LOCKED:
            install = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--python", str(home / "bin/python")]
            subprocess.run([*install, f"pyspark=={spark}"], check=True, timeout=1800)
        shutil.copy(_LAUNCHER, home / "bin")
        (home / "ready").touch()
    return home / "bin" / "python"


def connector(spark: str) -> list[Path]:
    """Return the jars of Spark's own Kafka connector for this Spark."""
    folder = FOLDER / f"connector-{spark}"
    if not folder.is_dir():
        scala, clients, pool = _CLIENTS[spark.rpartition(".")[0]]
        dependencies = (
            Dependency(organisation="org.apache.spark", name=f"spark-sql-kafka-0-10_{scala}", revision=spark),
            Dependency(organisation="org.apache.kafka", name="kafka-clients", revision=clients),
            Dependency(organisation="org.apache.commons", name="commons-pool2", revision=pool),
            Dependency(
                organisation="org.apache.spark", name=f"spark-token-provider-kafka-0-10_{scala}", revision=spark
            ),
        )
        wanted = replace(NATIVE_CONNECTOR, title=f"the connector of Spark {spark}", dependencies=dependencies)
        with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            made = Path(scratch) / "jars"
            retrieve(wanted, ivy_cache=FOLDER / "ivy", scratch=Path(scratch), retrieved=made)
            made.rename(folder)
    return sorted(folder.glob("*.jar"))


def environment(interpreter: Path, *, kafka: str = "") -> dict[str, str]:
    """Return the variables under which a cell's processes start."""
    made = {
        **os.environ,
        "PATH": f"{interpreter.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": str(interpreter.parent / _LAUNCHER.name),
        VARIABLE: kafka,
    }
    made.pop("SPARK_HOME", None)
    return made


def next_debian() -> Path:
    """Return the interpreter in the next Debian's files, with its Java beside it; run it by `inside`. Needs root.

    Blocks for a download of about 500 MB the first time.
    """
    interpreter = FOLDER / "next-debian-env" / "bin" / "python"
    if not interpreter.with_name(_LAUNCHER.name).exists():
        shutil.rmtree(_NEXT, ignore_errors=True)
        install = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={_NEXT_PACKAGES}"]
        subprocess.run([*install, _NEXT_SUITE, str(_NEXT)], check=True, timeout=1200)
        home = interpreter.parents[1]
        subprocess.run(inside(["python3", "-m", "venv", "--clear", str(home)]), check=True, timeout=300)
        linked = {"pyspark", "py4j"}  # of Python alone
        found = wheel.locked("dev.txt")
        others = [f"{each.name}=={each.version}" for each in found if each.name not in linked]
        pip = inside([str(interpreter), "-m", "pip", "install", "--no-deps", *others])
        subprocess.run(pip, check=True, timeout=1800)
        for each in found:
            if each.name in linked:
                wheel.link(each, next((home / "lib").glob("python*")) / "site-packages")
        shutil.copy(_LAUNCHER, interpreter.parent)
    return interpreter


def inside(command: list[str]) -> list[str]:
    """Return how a command is run in the next Debian's files, with our folders, processes and network."""
    folders = ("/proc", "/dev", "/tmp", "/etc/ssl", str(ROOT), str(Path.home()))  # noqa: S108 - where tests write
    script = "".join(f"mkdir -p {_NEXT}{path}; mount --rbind {path} {_NEXT}{path}; " for path in folders)
    script += f'cp /etc/resolv.conf {_NEXT}/etc/; exec chroot {_NEXT} sh -c \'cd {ROOT} && exec "$@"\' sh "$@"'
    return ["unshare", "--mount", "sh", "-ec", script, "sh", *command]
