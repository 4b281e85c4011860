"""Brings the jars of real Kafka to this machine, once per user: by the Ivy that PySpark ships, verified, atomic."""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from discovery.core.errors import ConfigError, DiscoveryError
from discovery.localkafka.folders import cache_folder
from discovery.localkafka.java import java_command

_DOWNLOAD_SECONDS = 1800.0
_QUIET_SECONDS = 240.0
"""Ivy downloads without a read timeout: a transfer that adds no byte for so long is given up."""


class DownloadError(DiscoveryError):
    """Jars could not be brought here; says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """One Maven coordinate."""

    organisation: str
    name: str
    revision: str
    transitive: bool = False

    def to_xml(self) -> str:
        """Write the dependency as Ivy reads it."""
        conf = "default->default" if self.transitive else "default->master"
        transitive = str(self.transitive).lower()
        return (
            f'<dependency org="{self.organisation}" name="{self.name}" rev="{self.revision}" '
            f'conf="{conf}" transitive="{transitive}"/>'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactSet:
    """Coordinates, and the exact files with checksums that they resolve to."""

    folder_name: str
    """Folder in the cache; changes with the versions."""
    title: str
    checksum_file: str
    dependencies: tuple[Dependency, ...]

    def checksums(self) -> dict[str, str]:
        """Return the pinned SHA-256 by file name, in the order of the file."""
        return parse_checksums((Path(__file__).parent / self.checksum_file).read_text())


KAFKA = ArtifactSet(
    folder_name="kafka-4.1.0",
    title="Apache Kafka 4.1.0",
    checksum_file="jars.txt",
    dependencies=(
        Dependency(organisation="org.apache.kafka", name="kafka_2.13", revision="4.1.0", transitive=True),
        Dependency(organisation="org.apache.kafka", name="kafka-tools", revision="4.1.0"),
        # Without a binding for SLF4J a broker that cannot start would not say why.
        Dependency(organisation="org.apache.logging.log4j", name="log4j-slf4j-impl", revision="2.24.3"),
    ),
)
NATIVE_CONNECTOR = ArtifactSet(
    folder_name="spark-sql-kafka-4.2.0",
    title="Spark's own Kafka connector 4.2.0",
    checksum_file="jars_native.txt",
    dependencies=(
        Dependency(organisation="org.apache.spark", name="spark-sql-kafka-0-10_2.13", revision="4.2.0"),
        Dependency(organisation="org.apache.kafka", name="kafka-clients", revision="3.9.1"),
        Dependency(organisation="org.apache.commons", name="commons-pool2", revision="2.12.0"),
        # The 4.0.0 provider works with the 4.2.0 connector; 4.2.0 could not be resolved where this was measured.
        Dependency(organisation="org.apache.spark", name="spark-token-provider-kafka-0-10_2.13", revision="4.0.0"),
    ),
)


def kafka_jars() -> list[Path]:
    """Return the class path of a Kafka broker, downloading it on first use.

    Raises:
        ConfigError: Java is missing or too old, or PySpark has no Ivy.
        DownloadError: no network, disk full, wrong checksum.

    Runs: any process, safe in many at once; blocks for a minute or two the first time, milliseconds later.
    """
    return ensure(KAFKA)


def native_connector_jars() -> list[Path]:
    """Return the jars of Spark's native `kafka` source, for comparisons; see `kafka_jars`."""
    return ensure(NATIVE_CONNECTOR)


def parse_checksums(text: str) -> dict[str, str]:
    """Read `sha256  name` lines; `#` begins a comment line."""
    lines = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {name: digest for digest, name in lines}


def ensure(artifacts: ArtifactSet, *, cache: Path | None = None) -> list[Path]:
    """Return the jars of a set, downloading, verifying and publishing them as one folder when they are missing."""
    base = (cache or cache_folder()) / "jars"
    final = base / artifacts.folder_name
    names = list(artifacts.checksums())
    # The folder appears by one rename after verification, so its presence with all names is proof enough.
    if not _complete(final, names):
        with _disk_errors(base), _locked(base, artifacts.folder_name):
            if not _complete(final, names):
                _bring(artifacts, base, final)
    return [final / name for name in names]


def _complete(folder: Path, names: list[str]) -> bool:
    return all((folder / name).is_file() for name in names)


def _bring(artifacts: ArtifactSet, base: Path, final: Path) -> None:
    ivy_cache = base / f"{artifacts.folder_name}.ivy"  # survives an interruption: finished files are not fetched again
    with tempfile.TemporaryDirectory(prefix=f"{artifacts.folder_name}.", dir=base) as scratch:
        retrieved = Path(scratch) / "jars"
        _run_ivy(artifacts, ivy_cache, Path(scratch), retrieved)
        try:
            verify(retrieved, artifacts.checksums())
        except DownloadError:
            shutil.rmtree(ivy_cache, ignore_errors=True)  # else the bad file would be served again for ever
            raise
        shutil.rmtree(final, ignore_errors=True)
        retrieved.rename(final)
    shutil.rmtree(ivy_cache, ignore_errors=True)


def verify(folder: Path, checksums: dict[str, str]) -> None:
    """Check that the folder holds every pinned file with its pinned content.

    Raises:
        DownloadError: a file is missing or differs; names it.
    """
    for name, expected in checksums.items():
        file = folder / name
        if not file.is_file():
            raise DownloadError(f"the download is incomplete: {name} is missing; run the command again")
        with file.open("rb") as opened:
            actual = hashlib.file_digest(opened, "sha256").hexdigest()
        if actual != expected:
            raise DownloadError(
                f"checksum mismatch: {name} has SHA-256 {actual}, pinned is {expected}; "
                "nothing was installed; check what serves your downloads and run the command again"
            )


def ivy_jar() -> Path:
    """Return the Ivy jar that PySpark ships.

    Raises:
        ConfigError: PySpark is not installed or has no Ivy.
    """
    spec = importlib.util.find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec else []
    for place in places:
        for jar in sorted(Path(place).glob("jars/ivy-*.jar")):
            return jar
    raise ConfigError("no Ivy found in PySpark's jars folder: install pyspark>=4.2 into this environment")


def _run_ivy(artifacts: ArtifactSet, ivy_cache: Path, scratch: Path, retrieved: Path) -> None:
    module = scratch / "ivy.xml"
    module.write_text(_module_xml(artifacts))
    command = [java_command(), "-jar", str(ivy_jar()), "-cache", str(ivy_cache), "-ivy", str(module)]
    command += ["-confs", "default", "-retrieve", f"{retrieved}/[artifact]-[revision].[ext]"]
    log = scratch / "ivy.log"
    with log.open("wb") as out:
        ivy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            _watch(ivy, artifacts, ivy_cache)
        finally:
            ivy.kill()
            ivy.wait()
    if ivy.returncode != 0 or not retrieved.is_dir():
        raise DownloadError(explain(log.read_text(errors="replace"), artifacts.title))


def _module_xml(artifacts: ArtifactSet) -> str:
    inner = "".join(dependency.to_xml() for dependency in artifacts.dependencies)
    return (
        '<ivy-module version="2.0"><info organisation="local" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{inner}</dependencies></ivy-module>'
    )


def _watch(ivy: "subprocess.Popen[bytes]", artifacts: ArtifactSet, ivy_cache: Path) -> None:
    total = len(artifacts.checksums())
    clock, seen_size, seen_at = time.monotonic, -1, time.monotonic()
    give_up = clock() + _DOWNLOAD_SECONDS
    with _progress(f"downloading {artifacts.title} (once)", total) as show:
        while ivy.poll() is None:
            jars, size = _downloaded(ivy_cache)
            show(min(jars, total))
            if size != seen_size:
                seen_size, seen_at = size, clock()
            if clock() > give_up or clock() - seen_at > _QUIET_SECONDS:
                raise DownloadError(
                    f"{artifacts.title}: the download stands still with {jars} of {total} files; "
                    "check the network and run the command again, it goes on where it stopped"
                )
            time.sleep(0.2)


def _downloaded(ivy_cache: Path) -> tuple[int, int]:
    jars = size = 0
    for file in ivy_cache.rglob("*"):
        try:
            size += file.stat().st_size
        except OSError:
            continue  # Ivy renames while we look
        jars += file.suffix == ".jar"
    return jars, size


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("files"), TimeElapsedColumn()
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=False) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, completed=done)


def explain(ivy_log: str, title: str) -> str:
    """Turn Ivy's log into one line that names the cause and the remedy."""
    if "No space left on device" in ivy_log:
        return f"{title}: the disk is full; free 150 MB in the cache folder or set XDG_CACHE_HOME to another disk"
    network = ("UnknownHostException", "ConnectException", "SocketTimeoutException", "NoRouteToHost", "SSLException")
    if "UNRESOLVED DEPENDENCIES" in ivy_log or "FAILED DOWNLOADS" in ivy_log or any(w in ivy_log for w in network):
        return (
            f"{title}: the download server did not answer or does not have the files; "
            "check the network and proxy (JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=… -Dhttps.proxyPort=…) and run again"
        )
    last = next((line.strip() for line in reversed(ivy_log.splitlines()) if line.strip()), "no output")
    return f"{title}: the download failed: {last[:200]}"


@contextmanager
def _locked(base: Path, name: str) -> Iterator[None]:
    base.mkdir(parents=True, exist_ok=True)
    with (base / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            Console(stderr=True).print(f"waiting for another process that downloads {name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _disk_errors(base: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise DownloadError(
            f"cannot write the jars to {base}: {reason}; free 150 MB there or set XDG_CACHE_HOME to another folder"
        ) from error
