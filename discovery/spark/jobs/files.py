"""Where the ready jobs lie: files for `spark-submit`, not modules, so that no folder of a user's can shadow them."""

import sysconfig
from pathlib import Path

import discovery
from discovery.core.errors import ConfigError

JOBS = {
    "dau": "daily active users, exactly",
    "ip_visits": "visits per IP address and window, exactly once",
    "copy_topic": "a topic to another, filtered and enriched, exactly once",
}
"""Each job by the name of its file."""


def job_file(name: str) -> Path:
    """Return the file of a job.

    Raises:
        ConfigError: there is no such job, or the installation lacks its file.

    Runs: anywhere; looks at the file system.
    """
    if name not in JOBS:
        raise ConfigError(f"job: {name!r} is unknown; there are: {', '.join(JOBS)}")
    here = Path(discovery.__file__).parents[1]
    installed = Path(sysconfig.get_path("data")) / "share/kafka-discovery"
    for folder in (here, installed):
        if (found := folder / "spark_jobs" / f"{name}.py").is_file():
            return found
    raise ConfigError(f"job: no spark_jobs/{name}.py in {here} or {installed}; install kafka-discovery again")
