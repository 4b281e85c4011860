"""Downloads jars with the Ivy that PySpark ships, in a JVM of its own, and says in one line why it failed."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from discovery.config import parent_death
from discovery.config.java import java_command
from discovery.core.errors import ConfigError, DiscoveryError
from discovery.localkafka.jars.artifacts import ArtifactSet

_DOWNLOAD_SECONDS = 1800.0
_QUIET_SECONDS = 240.0
"""Ivy downloads without a read timeout: a transfer that adds no byte for so long is given up."""
_FULL_BYTES = 1_000_000
"""With less free space a failure is the disk's, whatever Ivy could still write down about it."""
_DISK = ("No space left on device", "File too large", "Disk quota exceeded")
_NETWORK = (
    "UNRESOLVED DEPENDENCIES", "FAILED DOWNLOADS", "UnknownHostException", "ConnectException",
    "SocketTimeoutException", "NoRouteToHost", "SSLException",
)  # fmt: skip


class DownloadError(DiscoveryError):
    """Jars could not be brought here; says why and what to do."""


def retrieve(artifacts: ArtifactSet, *, ivy_cache: Path, scratch: Path, retrieved: Path) -> None:
    """Download the files of a set, unverified, into the folder `retrieved`.

    Args:
        artifacts: What to download.
        ivy_cache: Ivy's own folder; finished files in it are not fetched again.
        scratch: For Ivy's input.
        retrieved: Made by Ivy.

    Raises:
        ConfigError: Java or Ivy is missing. DownloadError: no network, disk full.

    Runs: any thread; blocks for a minute or two, <= 30 min. The JVM ends with this thread, however that ends (Linux).
    """
    module = scratch / "ivy.xml"
    module.write_text(_module_xml(artifacts))
    command = [java_command(), "-jar", str(ivy_jar()), "-cache", str(ivy_cache), "-ivy", str(module)]
    command += ["-confs", "default", "-retrieve", f"{retrieved}/[artifact]-[revision].[ext]"]
    with tempfile.TemporaryFile() as log:  # not in the cache, whose disk may be full
        code = _run(command, log, artifacts, ivy_cache)
        if code != 0 or not retrieved.is_dir():
            log.seek(0)
            text = log.read().decode(errors="replace")
            full = shutil.disk_usage(scratch).free < _FULL_BYTES
            raise DownloadError(explain(_DISK[0] if full else text, artifacts.title))


def explain(ivy_log: str, title: str) -> str:
    """Turn Ivy's log into one line that names the cause and the remedy."""
    if any(sign in ivy_log for sign in _DISK):
        return f"{title}: the disk is full; free 150 MB in the cache folder or set XDG_CACHE_HOME to another disk"
    if any(sign in ivy_log for sign in _NETWORK):
        return (
            f"{title}: the download server did not answer or does not have the files; "
            "check the network and proxy (JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=… -Dhttps.proxyPort=…) and run again"
        )
    last = next((line.strip() for line in reversed(ivy_log.splitlines()) if line.strip()), "no output")
    return f"{title}: the download failed: {last[:200]}"


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
    raise ConfigError(
        "the brokers are downloaded by Ivy, which PySpark ships and is not here; pip install 'kafka-discovery[spark]'"
    )


def _run(command: list[str], log: IO[bytes], artifacts: ArtifactSet, ivy_cache: Path) -> int:
    tie = [sys.executable, "-I", parent_death.__file__, str(os.getpid())]
    ivy = subprocess.Popen([*tie, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        _watch(ivy, artifacts, ivy_cache)
    finally:
        ivy.kill()
        ivy.wait()
    return ivy.returncode


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
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"{title}: {total} files, about a minute", soft_wrap=True, highlight=False)
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("files"), TimeElapsedColumn()
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, completed=done)
