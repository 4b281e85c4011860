"""A real PostgreSQL, from Debian's package: `.ci/run` installs server and JDBC driver."""

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path

import pytest

from tests.support.ports import free_port

DRIVER_JARS = [jar for jar in (Path("/usr/share/java/postgresql.jar"),) if jar.exists()]
_USER = "postgres"
_SECONDS = 60


class Postgres:
    """A server of its own on a free port of loopback, that trusts whoever asks; `database` is the one in use."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.database = "postgres"
        self._folder = folder
        self._data = folder / "data"

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{self.database}?user={_USER}"

    def with_new_database(self) -> "Postgres":
        """Make an empty database that no other test knows, and use it."""
        new = copy(self)
        new.database = f"test_{uuid.uuid4().hex}"
        self.rows(f"CREATE DATABASE {new.database}")
        return new

    def rows(self, query: str) -> list[tuple[str, ...]]:
        """Ask; every value as text."""
        asked = ["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", _USER, "-d", self.database]
        asked += ["-X", "-A", "-t", "-F", "|", "-c", query]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_SECONDS, check=True)
        return [tuple(line.split("|")) for line in done.stdout.splitlines()]

    def run(self, tool: str, *options: str) -> None:
        """Run one of the server's tools, as a user who is not root: PostgreSQL refuses that one."""
        command = [str(_tools() / tool), "-D", str(self._data), *options]
        as_user: Sequence[str] = ["runuser", "-u", _USER, "--"] if os.geteuid() == 0 else []
        with (self._folder / "log").open("ab") as log:
            subprocess.run([*as_user, *command], cwd="/", stdout=log, stderr=log, timeout=_SECONDS, check=True)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Start a server in a new folder; it ends with its folder."""
    if not _tools().exists() or not DRIVER_JARS:
        pytest.skip("no PostgreSQL here: apt-get install postgresql libpostgresql-jdbc-java")
    # Not pytest's folder: that is its owner's alone.
    folder = Path(tempfile.mkdtemp(prefix="kafka-discovery-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, _USER)
    server = Postgres(folder)
    try:
        server.run("initdb", "-A", "trust", "-U", _USER)
        here = f"-p {server.port} -k {folder} -c listen_addresses=127.0.0.1 -F"
        server.run("pg_ctl", "start", "-w", "-l", str(folder / "server.log"), "-o", here)
        try:
            yield server
        finally:
            server.run("pg_ctl", "stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tools() -> Path:
    """Where the server's tools are; the client alone brings a folder without `initdb`."""
    return max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), default=Path("/usr/lib/postgresql/bin/initdb")).parent
