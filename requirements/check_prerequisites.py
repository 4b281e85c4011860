"""Say in one line what is missing before anything is downloaded. Needs no package."""

from __future__ import annotations  # an older Python reads it too

import importlib.util
import os
import re
import shutil
import subprocess
import sys

MINIMUM_PYTHON = (3, 11)
MINIMUM_JAVA = 17


def java_major() -> int | None:
    """Return the major version of JAVA_HOME's Java, as Spark does, else of the PATH's; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        return None
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(found.group(1)) if found else None


def problem() -> str | None:
    """Return the first unmet prerequisite as a sentence, or None."""
    if sys.version_info < MINIMUM_PYTHON:
        have = ".".join(map(str, sys.version_info[:3]))
        return f"Python {have} is too old: install Python 3.11 or newer and run `make PYTHON=python3.11 …`"
    if importlib.util.find_spec("ensurepip") is None:
        return "Python comes without ensurepip, so no environment can be made: install it (Debian: python3-venv)"
    major = java_major()
    if major is None:
        return "Java is missing: install a Java 17 runtime and put `java` on the PATH, or set JAVA_HOME to its folder"
    if major < MINIMUM_JAVA:
        remedy = "put a newer `java` first on the PATH or set JAVA_HOME"
        return f"Java {major} is too old: Kafka and Spark need Java 17; {remedy}"
    return None


if __name__ == "__main__":
    found = problem()
    if found:
        print(f"kafka-discovery: {found}", file=sys.stderr)
        raise SystemExit(2)
