"""A real MariaDB, from Debian's package: `.ci/run` installs server and JDBC driver."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.helpers import eventually
from tests.support.ports import free_port

DRIVER_JARS = [jar for jar in (Path("/usr/share/java/mariadb-java-client.jar"),) if jar.exists()]
_SECONDS = 60


class MariaDb:
    """A server of its own on a free port of loopback, that trusts whoever asks as root."""

    def __init__(self) -> None:
        self.port = free_port()

    def url(self, database: str) -> str:
        """Return it in the form in which Spark knows MySQL's dialect."""
        return f"jdbc:mysql://127.0.0.1:{self.port}/{database}?user=root"

    def rows(self, query: str) -> list[tuple[str, ...]]:
        """Ask; every value as text."""
        asked = ["mariadb", "--no-defaults", "--host", "127.0.0.1", "--port", str(self.port), "--user", "root"]
        asked += ["--default-character-set", "utf8mb4", "--batch", "--skip-column-names", "--execute", query]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_SECONDS, check=True)
        return [tuple(line.split("\t")) for line in done.stdout.splitlines()]

    def answers(self) -> bool:
        """Look whether it has started."""
        try:
            return self.rows("SELECT 1") == [("1",)]
        except subprocess.CalledProcessError:
            return False


@contextmanager
def running_mariadb() -> Iterator[MariaDb]:
    """Start a server in a new folder; it ends with its folder."""
    if shutil.which("mariadbd") is None or not DRIVER_JARS:
        pytest.skip("no MariaDB here: apt-get install mariadb-server libmariadb-java")
    # Not pytest's folder: that is its owner's alone.
    folder = Path(tempfile.mkdtemp(prefix="kafka-discovery-mariadb-"))
    as_user = ["--user=mysql"] if os.geteuid() == 0 else []
    if as_user:
        shutil.chown(folder, "mysql")
    server = MariaDb()
    here = ["--no-defaults", f"--datadir={folder / 'data'}", *as_user]
    try:
        with (folder / "log").open("ab") as log:
            install = ["mariadb-install-db", *here, "--auth-root-authentication-method=normal", "--skip-test-db"]
            subprocess.run(install, stdout=log, stderr=log, timeout=_SECONDS, check=True)
            listen = [f"--port={server.port}", "--bind-address=127.0.0.1", f"--socket={folder / 'socket'}"]
            process = subprocess.Popen(["mariadbd", *here, *listen], stdout=log, stderr=log)
            try:
                eventually(server.answers, _SECONDS, "MariaDB answers")
                yield server
            finally:
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
