"""A pytest plugin: a skip that this machine should not have is a failure.

Every reason for which a test may be skipped stands in `EXCUSES`, with the machines where it counts. What Debian has is
never excused to root on Debian: `.ci/run` installs it. Nothing that tests/stack needs is excused anywhere: a target
that plays one thing for real must not pass without having played it.
"""

import os
import re
import shutil
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

_CAP_SYS_ADMIN = 1 << 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What decides which tests can run: who we are, and on what."""

    installs: bool
    """Root with apt-get: whatever Debian has can be here."""
    mounts: bool
    linux: bool

    @classmethod
    def here(cls) -> "Machine":
        """Look at this machine."""
        status = Path("/proc/self/status")
        text = status.read_text(encoding="ascii") if status.exists() else ""
        capabilities = re.search(r"^CapEff:\s*(\w+)", text, re.MULTILINE)
        return cls(
            installs=os.geteuid() == 0 and shutil.which("apt-get") is not None,
            mounts=capabilities is not None and bool(int(capabilities[1], 16) & _CAP_SYS_ADMIN),
            linux=sys.platform == "linux",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuse:
    """A reason to skip, as a pattern, and the property of a machine that refutes it; None: it counts everywhere."""

    reason: str
    refuted_by: str | None = None


EXCUSES = (
    Excuse(reason=r"(Fake|Mock|Real)Subject cannot show this"),  # the case is made for another kind of Kafka
    Excuse(reason=r".*: make test-(docs|helm)\b"),  # minutes long: part of a target of their own
    Excuse(reason=r"(promtool|amtool|docker-compose|systemd-analyze) is not here", refuted_by="installs"),
    Excuse(reason=r"no IPv6 on loopback here"),  # a container may have none, whoever asks
    Excuse(reason=r"no Chromium here", refuted_by="installs"),
    Excuse(reason=r"no (PostgreSQL|MariaDB) here", refuted_by="installs"),
    Excuse(reason=r"axe-core is not here", refuted_by="installs"),
    Excuse(reason=r"the Java here has no compiler", refuted_by="installs"),
    Excuse(reason=r"only root may make a small disk", refuted_by="mounts"),
    Excuse(reason=r"only Linux ", refuted_by="linux"),
)


def is_excused(reason: str, machine: Machine) -> bool:
    """Tell whether a test may be skipped for this reason on this machine."""
    for excuse in EXCUSES:
        if re.match(excuse.reason, reason):
            return excuse.refuted_by is None or not getattr(machine, excuse.refuted_by)
    return False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip without an excuse into a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not is_excused(reason, Machine.here()):
            report.outcome = "failed"
            report.longrepr = f"skipped, and tests/support/skips.py does not excuse that here: {reason}"
    return report
