"""An object store on this machine, versitygw over a folder, and Hadoop's `s3a` with which Spark speaks to it."""

import contextlib
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from discovery.config.java import java_command
from discovery.localkafka.jars.artifacts import ArtifactSet, Dependency
from discovery.localkafka.jars.download import ensure
from tests.support.debian_tools import find
from tests.support.helpers import eventually
from tests.support.ports import free_port

SECONDS = 120.0
_BUCKET = "checkpoints"
_USER = "tests"
_SPARK = Path(pyspark.__file__).parent
_JARS = ArtifactSet(
    folder_name="hadoop-aws-3.5.0",
    title="Hadoop's s3a 3.5.0",
    checksum_file=str(Path(__file__).with_name("jars.txt").resolve()),
    dependencies=(
        # Of the version of Hadoop that PySpark ships; all but the first is what its pom asks for.
        Dependency(organisation="org.apache.hadoop", name="hadoop-aws", revision="3.5.0"),
        Dependency(organisation="software.amazon.awssdk", name="bundle", revision="2.35.4"),
        Dependency(
            organisation="software.amazon.s3.analyticsaccelerator", name="analyticsaccelerator-s3", revision="1.3.1"
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A store that is up, with one bucket."""

    folder: Path

    @property
    def url(self) -> str:
        """The bucket, as Spark names it."""
        return f"s3a://{_BUCKET}"

    @property
    def objects(self) -> Path:
        """The bucket as the store keeps it: a file for each object that was written whole, under its key."""
        return self.folder / "objects" / _BUCKET

    @property
    def environment(self) -> dict[str, str]:
        """Where Hadoop reads how the store is reached."""
        return {**os.environ, "HADOOP_CONF_DIR": str(self.folder / "conf")}

    @property
    def jars(self) -> str:
        """Hadoop's client as a class path: `spark.jars` would copy its 700 MB for each driver."""
        return ":".join(map(str, ensure(_JARS)))

    def get(self, key: str, here: Path) -> Path:
        """Copy everything below a key into a folder that is there; return the copy."""
        path = f"{self.environment['HADOOP_CONF_DIR']}:{self.jars}:{_SPARK}/jars/*"
        command = [java_command(), "-cp", path, "org.apache.hadoop.fs.FsShell"]
        subprocess.run([*command, "-get", f"{self.url}/{key}", str(here)], check=True, timeout=SECONDS)
        return here / key


@contextlib.contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Yield a store in a folder; it ends with the block."""
    program = find("versitygw")
    if program is None:
        pytest.skip("versitygw is not here, though make test-object-store builds it")
    store, address = ObjectStore(folder), f"127.0.0.1:{free_port()}"
    store.objects.mkdir(parents=True)
    settings = {
        "endpoint": f"http://{address}",
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": _USER,
        "secret.key": _USER,
    }
    properties = (
        f"<property><name>fs.s3a.{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    configuration = folder / "conf" / "core-site.xml"
    configuration.parent.mkdir()
    configuration.write_text(f"<configuration>{''.join(properties)}</configuration>", encoding="utf-8")
    with (folder / "store.log").open("wb") as log:
        # `--quiet`: else it writes a line for each request.
        process = subprocess.Popen(
            [program, "--port", address, "--quiet", "posix", str(store.objects.parent)],
            env={**os.environ, "ROOT_ACCESS_KEY": _USER, "ROOT_SECRET_KEY": _USER},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        eventually(lambda: _answers(settings["endpoint"]), SECONDS, (folder / "store.log").read_text)
        yield store
    finally:
        process.kill()
        process.wait()


def _answers(endpoint: str) -> bool:
    try:
        urllib.request.urlopen(endpoint, timeout=1).close()  # noqa: S310 - loopback
    except urllib.error.HTTPError:
        return True  # it refuses who does not sign
    except OSError:
        return False
    return True
