"""Brings the jars of real Kafka to this machine, once per user: verified, atomic, safe against interruption."""

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from discovery.localkafka.folders import cache_folder
from discovery.localkafka.jars.artifacts import KAFKA, NATIVE_CONNECTOR, OLD_CLIENT, ArtifactSet
from discovery.localkafka.jars.ivy import DownloadError, retrieve

__all__ = [
    "KAFKA",
    "NATIVE_CONNECTOR",
    "DownloadError",
    "client_jars",
    "ensure",
    "kafka_jars",
    "native_connector_jars",
    "verify",
]


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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


def client_jars() -> dict[str, list[Path]]:
    """Return class paths of Kafka's client by version: an old one, Spark's, the newest; see `kafka_jars`."""
    old, logging = ensure(OLD_CLIENT), [jar for jar in kafka_jars() if jar.name.startswith("slf4j-api")]
    versions = {"3.9": native_connector_jars(), "4.1": kafka_jars()}
    found = {v: [j for j in jars if j.name.startswith("kafka-clients-")] + logging for v, jars in versions.items()}
    return {"2.6": old, **found}


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
    for stale in base.glob(f"{artifacts.folder_name}.*/"):
        if stale != ivy_cache:  # left by a process that was killed; the lock says that nobody uses it
            shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{artifacts.folder_name}.", dir=base) as scratch:
        retrieved = Path(scratch) / "jars"
        retrieve(artifacts, ivy_cache=ivy_cache, scratch=Path(scratch), retrieved=retrieved)
        try:
            verify(retrieved, artifacts.checksums())
        except DownloadError:
            shutil.rmtree(ivy_cache, ignore_errors=True)  # else the bad file would be served again for ever
            raise
        _publish(retrieved, final)
    shutil.rmtree(ivy_cache, ignore_errors=True)


def _publish(retrieved: Path, final: Path) -> None:
    # The content reaches the disk before the name does: a power cut leaves all of it or none.
    for file in retrieved.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    shutil.rmtree(final, ignore_errors=True)
    retrieved.rename(final)


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
        remedy = "free 150 MB there or " if error.errno in _FULL else ""
        raise DownloadError(
            f"cannot write the jars to {base}: {reason}; {remedy}set XDG_CACHE_HOME to a folder you may write"
        ) from error
