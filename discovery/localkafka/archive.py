"""Parsed classes of a broker, stored once by the JVM (class data sharing).

Measured: a JVM then needs 1.2-1.4 s of processor time to its open port, not 2.0-2.1 s; twelve start at once.
"""

import contextlib
import fcntl
import hashlib
from collections.abc import Callable
from pathlib import Path

from discovery.config.java import java_command, java_version
from discovery.core.errors import DiscoveryError
from discovery.localkafka.folders import cache_folder
from discovery.localkafka.jars.artifacts import KAFKA
from discovery.localkafka.jars.download import kafka_jars


def class_archive(train: Callable[[Path], None]) -> Path | None:
    """Return the archive for this Java and these jars, making it on first use.

    Args:
        train: Runs a broker that writes the archive to the given path when it ends.

    Returns:
        None where it could not be made or another process is making it: JVMs run without it too, only slower.

    Runs: any process; blocks about 6 s the first time.
    """
    path = _archive_path()
    if path.is_file():
        return path
    with contextlib.suppress(OSError, DiscoveryError), path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not path.is_file():
            scratch = path.with_suffix(".part")
            try:
                train(scratch)
                scratch.replace(path)
            finally:
                scratch.unlink(missing_ok=True)
    return path if path.is_file() else None


def _archive_path() -> Path:
    # The JVM ignores an archive of another Java or of other jars, so each combination gets its own.
    jar = kafka_jars()[-1]
    made_of = f"{java_command()} {java_version()} {jar} {jar.stat().st_mtime_ns}"
    fingerprint = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    return cache_folder() / "jars" / f"{KAFKA.folder_name}-{fingerprint}.jsa"
