"""Which of Spark's zips a Python process can do without.

Spark puts PySpark and py4j as zips first on the `PYTHONPATH` of every Python process it starts. A zip holds no
bytecode, so each process compiles PySpark again: two thirds of the processor time until it calls back.

Standard library only, any Python from 3.8: `kafka-discovery run` loads this file in the interpreter of a job.
"""

import importlib.machinery
import os
import zipimport
from typing import List, Optional  # noqa: UP035 - any Python from 3.8


def without_zips(entries: List[str], behind: List[str]) -> List[str]:  # noqa: UP006
    """Leave Spark's zips out of a search path where what is imported without them is of the same versions.

    Args:
        entries: The path that Spark made.
        behind: What is searched after it: the interpreter's own folders.

    Returns:
        The path without the zips; unchanged where a version differs or cannot be read.

    Runs: a Python process of Spark's, before it imports PySpark; reads a few small files.
    """
    zips = {entry: package for entry in entries if (package := _package(entry)) and os.path.exists(entry)}  # noqa: PTH110
    without = [entry for entry in [*entries, *behind] if entry not in zips]
    for zipped, package in zips.items():
        version = _zipped(zipped, package)
        if version is None or version != _installed(package, without):
            return entries
    return [entry for entry in entries if entry not in zips]


def _package(entry: str) -> Optional[str]:  # noqa: UP045
    name = os.path.basename(entry)  # noqa: PTH119 - pathlib costs more than all that is done here
    if name == "pyspark.zip":
        return "pyspark"
    return "py4j" if name.startswith("py4j-") and name.endswith(".zip") else None


def _zipped(path: str, package: str) -> Optional[str]:  # noqa: UP045
    try:
        return _version(zipimport.zipimporter(path).get_data(os.path.join(package, "version.py")).decode())  # noqa: PTH118
    except (OSError, ValueError, zipimport.ZipImportError):
        return None


def _installed(package: str, path: List[str]) -> Optional[str]:  # noqa: UP006, UP045
    found = importlib.machinery.PathFinder.find_spec(package, path)
    if found is None or found.origin is None:
        return None
    try:
        with open(os.path.join(os.path.dirname(found.origin), "version.py"), encoding="utf-8") as file:  # noqa: PTH118, PTH120, PTH123
            return _version(file.read())
    except (OSError, ValueError):
        return None


def _version(text: str) -> Optional[str]:  # noqa: UP045
    for line in text.splitlines():
        if line.startswith("__version__"):
            return line.rpartition("=")[2].strip().strip("'\"") or None
    return None
