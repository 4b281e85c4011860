"""Lets a local cluster run another version of Kafka: `-p tests.matrix.brokers` does so for a session of pytest.

The jars come by the same download, into the folder of the matrix and without pinned checksums: nothing of the product
reads them.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from discovery.localkafka import cluster, launch, properties
from discovery.localkafka.jars.artifacts import KAFKA, Dependency
from discovery.localkafka.jars.ivy import retrieve
from discovery.localkafka.layout import CONTROLLER

VARIABLE = "MATRIX_KAFKA"
FOLDER = Path(os.environ.get("MATRIX_FOLDER", "/tmp/matrix"))  # noqa: S108 - downloads of gigabytes, made again at need
_LOG4J = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c{1})%n
"""


def pytest_configure() -> None:
    """Take the version that the cell names."""
    use(os.environ[VARIABLE])


def use(version: str) -> None:
    """Let every local cluster that this process starts be of this version. Blocks for a download the first time."""
    jars = _jars(version)
    patched: Any = (launch, cluster)
    for module in patched:
        module.kafka_jars = lambda: jars
    # An archive of classes belongs to the jars it was made of.
    patched[1].class_archive = lambda _: None
    if _number(version) < (3, 9):
        _use_voters()


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _jars(version: str) -> list[Path]:
    folder = FOLDER / f"kafka-{version}"
    if not folder.is_dir():
        FOLDER.mkdir(parents=True, exist_ok=True)
        wanted = replace(KAFKA, title=f"Apache Kafka {version}", dependencies=_dependencies(version))
        with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            made = Path(scratch) / "jars"
            retrieve(wanted, ivy_cache=FOLDER / "ivy", scratch=Path(scratch), retrieved=made)
            (made / "log4j.properties").write_text(_LOG4J)
            made.rename(folder)
    return [folder, *sorted(folder.glob("*.jar"))]


def _dependencies(version: str) -> tuple[Dependency, ...]:
    kafka, tools, binding = (replace(each, revision=version) for each in KAFKA.dependencies)
    if _number(version) < (4,):
        old = Dependency(organisation="org.slf4j", name="slf4j-reload4j", revision="1.7.36", transitive=True)
        return kafka, replace(tools, transitive=True), old
    return kafka, tools, replace(binding, revision=KAFKA.dependencies[-1].revision)


def _use_voters() -> None:
    """Name the controllers as Kafka did before 3.9, which brought quorums that change."""
    patched: Any = properties

    def with_voters(made: Callable[..., dict[str, str]], port: str) -> Callable[..., dict[str, str]]:
        def voting(*arguments: Any, **options: Any) -> dict[str, str]:
            voters = {"controller.quorum.voters": f"{properties.CONTROLLER_ID}@{properties.HOST}:{options[port]}"}
            return {**made(*arguments, **options), **voters}

        return voting

    patched.controller_properties = with_voters(properties.controller_properties, "port")
    patched.broker_properties = with_voters(properties.broker_properties, "controller_port")

    def format_controller(members: Any, deadline: float) -> None:
        config = str(members.files.config(f"{CONTROLLER}.properties"))
        arguments = ["kafka.tools.StorageTool", "format", "-t", members.record.cluster_id, "-c", config]
        launch.run_tool(members, "format", arguments, deadline)

    replaced: Any = launch
    replaced.format_controller = format_controller
