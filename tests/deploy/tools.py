"""Finds what no Python package brings; where it is missing, a test says so and what to install."""

import os
import shutil
from pathlib import Path

import pytest

_FETCHED = Path("build/tools").resolve()
"""`make tools` unpacks Debian's packages here, without installing anything."""
PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
    "docker-compose": "docker-compose",
    "dockerd": "docker.io",
    "systemd-analyze": "systemd",
}


def find(name: str) -> str | None:
    """Return the path of a program, from PATH or from `make tools`."""
    fetched = [str(_FETCHED / folder) for folder in ("usr/bin", "usr/sbin")]
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *fetched)))


def tool(name: str) -> str:
    """Return the path of a program, or skip the test with the reason."""
    found = find(name)
    if found is None:
        pytest.skip(f"{name} is not here: `make tools`, or apt-get install {PACKAGES.get(name, name)}")
    return found
