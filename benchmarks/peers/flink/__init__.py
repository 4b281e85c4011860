"""Flink's two Kafka sources: the jars, pinned, and the compiled job."""

import os
import subprocess
from pathlib import Path

from discovery.config.java import java_command
from discovery.core.errors import ConfigError
from discovery.localkafka.jars.artifacts import ArtifactSet, Dependency
from discovery.localkafka.jars.download import ensure

_HERE = Path(__file__).parent
_CLASSES = Path("build/peers/classes")
_FLINK = "org.apache.flink"
FLINK = ArtifactSet(
    folder_name="flink-2.2.1",
    title="Apache Flink 2.2.1 with its Kafka connector 5.0.0",
    checksum_file=str(_HERE / "jars.txt"),
    dependencies=(
        Dependency(organisation=_FLINK, name="flink-clients", revision="2.2.1", transitive=True),
        Dependency(organisation=_FLINK, name="flink-connector-base", revision="2.2.1", transitive=True),
        Dependency(organisation=_FLINK, name="flink-connector-kafka", revision="5.0.0-2.2", transitive=True),
        Dependency(organisation="org.slf4j", name="slf4j-simple", revision="1.7.36"),
    ),
)


def job_command() -> list[str]:
    """Return how the job is started, without its arguments; downloads and compiles what is missing.

    Raises:
        ConfigError: there is no Java compiler.

    Runs: any thread; blocks a minute the first time, milliseconds later.
    """
    jars = os.pathsep.join(map(str, ensure(FLINK)))
    source, made = _HERE / "PeerJob.java", _CLASSES / "PeerJob.class"
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        _compile(source, jars)
    return [
        java_command(), "-Xmx768m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "-cp", f"{jars}{os.pathsep}{_CLASSES.absolute()}", "PeerJob",
    ]  # fmt: skip


def _compile(source: Path, jars: str) -> None:
    _CLASSES.mkdir(parents=True, exist_ok=True)
    compiler = Path(java_command()).with_name("javac")
    if not compiler.exists():
        raise ConfigError(
            f"no {compiler}: the Flink cells need a Java development kit; install one, version 17 or newer"
        )
    command = [str(compiler), "-nowarn", "-cp", jars, "-d", str(_CLASSES), str(source)]
    subprocess.run(command, check=True, timeout=300)
