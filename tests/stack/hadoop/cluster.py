"""Hadoop's mini cluster, HDFS and YARN in one JVM, and what runs in its containers: processes of this machine."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from discovery.config.java import java_command
from discovery.localkafka.jars.artifacts import ArtifactSet, Dependency
from discovery.localkafka.jars.download import ensure
from tests.support.helpers import eventually

MASTER = "org.apache.spark.deploy.yarn.ApplicationMaster"
EXECUTOR = "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend"
SPARK = Path(pyspark.__file__).parent
START_SECONDS = 600.0
_PROGRAM = Path(__file__).with_name("MiniCluster.java").resolve()
_JARS = ArtifactSet(
    folder_name="hadoop-minicluster-3.5.0",
    title="Hadoop's mini cluster 3.5.0",
    checksum_file=str(Path(__file__).with_name("jars.txt").resolve()),
    dependencies=(
        # Its clients' half is what PySpark ships; it was made for tests, and asks for theirs.
        Dependency(organisation="org.apache.hadoop", name="hadoop-client-minicluster", revision="3.5.0"),
        Dependency(organisation="org.junit.jupiter", name="junit-jupiter-api", revision="5.11.4"),
        Dependency(organisation="org.junit.platform", name="junit-platform-commons", revision="1.11.4"),
        Dependency(organisation="org.opentest4j", name="opentest4j", revision="1.3.0"),
        *(
            Dependency(organisation="org.bouncycastle", name=f"{name}-jdk18on", revision="1.78.1")
            for name in ("bcpkix", "bcprov", "bcutil")
        ),
    ),
)
_SCHEDULER = "yarn.scheduler.capacity.root"
_SETTINGS = {
    f"{_SCHEDULER}.queues": "default",
    f"{_SCHEDULER}.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    # A full disk of the machine is no fault of a node; what containers wrote is looked at when they have ended.
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.delete.debug-delay-sec": "3600",
    "dfs.namenode.resource.du.reserved": "0",
}


@dataclass(frozen=True, slots=True)
class Hadoop:
    """A mini cluster that is up."""

    folder: Path

    @property
    def configuration(self) -> Path:
        """What HADOOP_CONF_DIR names."""
        return self.folder / "conf"

    @property
    def hdfs(self) -> str:
        """`hdfs://HOST:PORT`."""
        tree = ET.parse(self.configuration / "core-site.xml")  # noqa: S314 - our own
        return next(
            one.findtext("value", "") for one in tree.iter("property") if one.findtext("name") == "fs.defaultFS"
        )

    def put(self, file: Path) -> str:
        """Copy a file to HDFS; return where it is."""
        self._tool("org.apache.hadoop.fs.FsShell", "-put", str(file), f"/{file.name}")
        return f"{self.hdfs}/{file.name}"

    def end(self, application: str) -> None:
        """Do what `yarn application -kill` does."""
        self._tool("org.apache.hadoop.yarn.client.cli.ApplicationCLI", "application", "-kill", application)

    def _tool(self, main: str, *arguments: str) -> None:
        command = [java_command(), "-cp", f"{self.configuration}:{SPARK}/jars/*", main, *arguments]
        subprocess.run(command, check=True, timeout=START_SECONDS)

    def processes(self, main: str = "", application: str = "") -> list[int]:
        """Return what runs in containers: JVMs of a class, or all; of one application, or of any."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                here = str((process / "cwd").readlink())
                arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                is_java = arguments[0].endswith("/java") and main in arguments
                if here.startswith(f"{self.folder}/target/") and application in here and (is_java or not main):
                    found.append(int(process.name))
        return found

    def said(self, application: str) -> str:
        """Return what an application's containers wrote, for the words of a failure."""
        logs = sorted(self.folder.glob(f"target/test/data/yarn/*/*-logDir-*/{application}/container_*/std*"))
        return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-6000:]}" for log in logs)


@contextlib.contextmanager
def hadoop(folder: Path, *, node_managers: int = 2) -> Iterator[Hadoop]:
    """Yield a mini cluster; its containers end with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = Hadoop(folder)
    cluster.configuration.mkdir()
    written = folder / "written.xml"
    settings = {
        **_SETTINGS,
        "hdfs.minidfs.basedir": f"{folder}/hdfs",
        "yarn.nodemanager.user-home-dir": f"{folder}/home",
        "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "3072",
    }
    java = Path(java_command()).resolve()
    jars = [*ensure(_JARS), SPARK / "jars" / "*"]
    command = [str(java), "-Xmx768m", "-XX:+UseSerialGC", "-cp", ":".join(map(str, jars)), str(_PROGRAM)]
    command += [str(written), str(node_managers), *(f"{name}={value}" for name, value in settings.items())]
    with (
        (folder / "hadoop.log").open("wb") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "JAVA_HOME": str(java.parents[1])},  # containers look for Java there
        ) as process,
    ):
        try:
            eventually(lambda: written.exists() or process.poll() is not None, START_SECONDS, lambda: _end_of(folder))
            assert written.exists(), _end_of(folder)
            for site in ("core", "hdfs", "yarn"):
                shutil.copy(written, cluster.configuration / f"{site}-site.xml")
            yield cluster
        finally:
            process.kill()
            for pid in cluster.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _end_of(folder: Path) -> str:
    return "Hadoop's mini cluster: " + (folder / "hadoop.log").read_text(errors="replace")[-4000:]


def application_in(text: str) -> str:
    """Return the application's id as spark-submit writes it; empty: not yet."""
    found = re.search(r"application_\d+_\d+", text)
    return found[0] if found else ""
