"""Finds a Java that can run Kafka and Spark, and says in one line what is wrong where there is none."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from discovery.core.errors import ConfigError

MINIMUM_JAVA = 17


@cache
def java_command() -> str:
    """Return the path of a `java` of version 17 or newer: `JAVA_HOME` first, then the PATH.

    Raises:
        ConfigError: there is none, `JAVA_HOME` has none, or it is too old; names the remedy.

    Runs: any thread; blocks about 0.1 s the first time (it asks `java -version`).
    """
    found = _find_java()
    if found is None:
        raise ConfigError(
            f"Java is missing: install a Java {MINIMUM_JAVA} runtime and put `java` on the PATH or set JAVA_HOME"
        )
    major = parse_major(_version_text(found))
    if major is None or major < MINIMUM_JAVA:
        raise ConfigError(
            f"Java {major or 'of unknown version'} at {found} is too old: Kafka and Spark need Java {MINIMUM_JAVA};"
            " put a newer `java` first on the PATH or set JAVA_HOME"
        )
    return found


def parse_major(version_text: str) -> int | None:
    """Read the major version out of what `java -version` says; None where it says nothing we know."""
    found = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(found.group(1)) if found else None


def _find_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return shutil.which("java")
    java = Path(home) / "bin" / "java"
    if not java.is_file():  # Spark looks nowhere else either
        raise ConfigError(
            f"JAVA_HOME: {home} has no bin/java; set it to the folder of a Java {MINIMUM_JAVA}, or unset it"
        )
    return str(java)


def java_version() -> str:
    """Return what the Java that would be used says of itself."""
    return _version_text(java_command())


@cache
def _version_text(java: str) -> str:
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return shown.stderr + shown.stdout
