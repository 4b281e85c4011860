"""The launcher of Spark's Python processes: the interpreter beside it, with the installed PySpark.

The script `kafka-discovery-python` lies beside the interpreter of each environment that this package is installed in,
and takes every argument that one takes: `PYSPARK_PYTHON` names it.
"""

import os
import sys

from discovery.spark.launch.zips import without_zips

_SCRIPT = "kafka-discovery-python"


def worker_python() -> str:
    """Return what `PYSPARK_PYTHON` should be: the launcher, or this interpreter where none lies beside it.

    Runs: a driver.
    """
    launcher = os.path.join(os.path.dirname(sys.executable), _SCRIPT)  # noqa: PTH118, PTH120 - pathlib costs 5 ms
    return launcher if os.access(launcher, os.X_OK) else sys.executable


def main() -> None:
    """Become this interpreter, run as the caller wants it, with Spark's zips off the path where that changes nothing.

    Runs: first thing in each Python process of Spark's; does not return.
    """
    path = os.environ.get("PYTHONPATH")
    if path:
        entries = path.split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(without_zips(entries, sys.path))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - the point
