"""Where a cell runs: an environment with its PySpark, its Java, the jars of its connector; made once."""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from discovery.localkafka.jars.artifacts import NATIVE_CONNECTOR, ArtifactSet, Dependency
from discovery.localkafka.jars.ivy import DownloadError, retrieve
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
        (home / "ready").touch()
    return _with_ours(home)


def _with_ours(home: Path) -> Path:
    """Let the environment find this tree, as if it were installed; return its interpreter."""
    site = next((home / "lib").glob("python*")) / "site-packages"
    (site / "kafka-discovery.pth").write_text(f"{ROOT}\n")
    shutil.copy(_LAUNCHER, home / "bin")
    return home / "bin" / "python"


def connector(spark: str) -> list[Path]:
    """Return the jars of Spark's own Kafka connector for this Spark, of the newest patch of it that can be had."""
    line = spark.rpartition(".")[0]
    scala, clients, pool = _CLIENTS[line]
    for revision in (spark, f"{line}.1", f"{line}.0"):
        folder = FOLDER / f"connector-{revision}"
        if not folder.is_dir():
            wanted = (
                ("org.apache.spark", f"spark-sql-kafka-0-10_{scala}", revision),
                ("org.apache.spark", f"spark-token-provider-kafka-0-10_{scala}", revision),
                ("org.apache.kafka", "kafka-clients", clients),
                ("org.apache.commons", "commons-pool2", pool),
            )
            dependencies = tuple(Dependency(organisation=o, name=name, revision=r) for o, name, r in wanted)
            try:
                _retrieved(replace(NATIVE_CONNECTOR, title=folder.name, dependencies=dependencies), folder)
            except DownloadError:
                continue
        return sorted(folder.glob("*.jar"))
    raise LookupError(f"no connector for Spark {line} can be had")


def _retrieved(wanted: ArtifactSet, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        made = Path(scratch) / "jars"
        retrieve(wanted, ivy_cache=FOLDER / "ivy", scratch=Path(scratch), retrieved=made)
        made.rename(folder)


def environment(interpreter: Path, *, kafka: str = "", java: str = "") -> dict[str, str]:
    """Return the variables under which a cell's processes start."""
    made = {
        **os.environ,
        "PATH": f"{interpreter.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": str(interpreter.parent / _LAUNCHER.name),
        VARIABLE: kafka,
    }
    made.pop("SPARK_HOME", None)
    return {**made, "JAVA_HOME": str(java_home(java))} if java else made


def java_home(version: str) -> Path:
    """Return the folder of another Java, which must lie here below `/usr/lib/jvm`."""
    found = sorted(Path("/usr/lib/jvm").glob(f"*-{version}-*"))
    if not found:
        raise LookupError(f"no Java {version} lies in /usr/lib/jvm")
    return found[0]


def other_python(version: str) -> Path:
    """Return an environment with another Python, which must lie here below `~/.pyenv` or as `python3.12`."""
    kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python3"))
    program = kept[-1] if kept else shutil.which(f"python{version}")
    if program is None:
        raise LookupError(f"no python{version} lies here")
    return _filled(FOLDER / f"python-{version}", str(program), list)


def next_debian() -> Path:
    """Return the interpreter in the next Debian's files, with its Java beside it; run it by `inside`. Needs root."""
    if not (_NEXT / "usr/bin/java").is_symlink():
        shutil.rmtree(_NEXT, ignore_errors=True)
        install = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={_NEXT_PACKAGES}"]
        subprocess.run([*install, _NEXT_SUITE, str(_NEXT)], check=True, timeout=1200)
    return _filled(FOLDER / "next-debian-env", "/usr/bin/python3", inside)


def _filled(home: Path, program: str, around: Callable[[list[str]], list[str]]) -> Path:
    """Return an environment of an interpreter that the locked packages are not installed for."""
    if not (home / "ready").exists():
        subprocess.run(around([program, "-m", "venv", "--clear", str(home)]), check=True, timeout=300)
        linked = {"pyspark", "py4j"}  # of Python alone
        found = wheel.locked("dev.txt")
        others = [f"{each.name}=={each.version}" for each in found if each.name not in linked]
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", *others]
        subprocess.run(around(pip), check=True, timeout=1800)
        for each in found:
            if each.name in linked:
                wheel.link(each, next((home / "lib").glob("python*")) / "site-packages")
        (home / "ready").touch()
    return _with_ours(home)


def inside(command: list[str]) -> list[str]:
    """Return how a command is run in the next Debian's files, with our folders, processes and network."""
    folders = ("/proc", "/dev", "/tmp", "/etc/ssl", str(ROOT), str(Path.home()))  # noqa: S108 - where tests write
    script = "".join(f"mkdir -p {_NEXT}{path}; mount --rbind {path} {_NEXT}{path}; " for path in folders)
    script += f'cp /etc/resolv.conf {_NEXT}/etc/; exec chroot {_NEXT} sh -c \'cd {ROOT} && exec "$@"\' sh "$@"'
    return ["unshare", "--mount", "sh", "-ec", script, "sh", *command]
