"""Imported first by a job's file: ends it in one line, with exit code 2, where Spark or Arrow is not installed."""

import sys
from importlib.util import find_spec
from pathlib import Path

from discovery.core.errors import ConfigError
from discovery.spark.launch.extra import missing

for _package in ("pyspark", "py4j", "pyarrow"):  # without numba the plain engine reads
    if find_spec(_package) is None:
        print(f"{Path(sys.argv[0]).stem}: {missing(_package)}", file=sys.stderr)  # noqa: T201 - a job's own output
        raise SystemExit(ConfigError.exit_code)
