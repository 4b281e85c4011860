"""A Python for Spark's processes that keeps some of them from calling back in time."""

from pathlib import Path

from discovery.spark.launch.python import worker_python

_SCRIPT = """#!/bin/sh
# The first starts of the process that holds a streaming reader are as slow as on a machine that is too busy.
case "$*" in *python_streaming_source_runner*)
  if [ "$(wc -l < "{starts}")" -lt {slow} ]; then echo slow >> "{starts}"; exec sleep 15; fi
  echo quick >> "{starts}";;
esac
exec "{python}" "$@"
"""


def slow_python(folder: Path, *, slow: int = 1) -> tuple[Path, Path]:
    """Write it.

    Returns:
        What `PYSPARK_PYTHON` should be, and a file with one line, `slow` or `quick`, for each start of a reader.
    """
    starts, script = folder / "starts", folder / "slow-python"
    starts.touch()
    script.write_text(_SCRIPT.format(starts=starts, slow=slow, python=worker_python()))
    script.chmod(0o755)
    return script, starts
