"""Which jars are brought here: Maven coordinates, and the pinned checksums of what they resolve to."""

from dataclasses import dataclass
from pathlib import Path


def parse_checksums(text: str) -> dict[str, str]:
    """Read `sha256  name` lines; `#` begins a comment line."""
    lines = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {name: digest for digest, name in lines}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """One Maven coordinate."""

    organisation: str
    name: str
    revision: str
    transitive: bool = False

    def to_xml(self) -> str:
        """Write the dependency as Ivy reads it."""
        conf = "default->default" if self.transitive else "default->master"
        transitive = str(self.transitive).lower()
        return (
            f'<dependency org="{self.organisation}" name="{self.name}" rev="{self.revision}" '
            f'conf="{conf}" transitive="{transitive}"/>'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactSet:
    """Coordinates, and the exact files with checksums that they resolve to."""

    folder_name: str
    """Folder in the cache; changes with the versions."""
    title: str
    checksum_file: str
    dependencies: tuple[Dependency, ...]

    def checksums(self) -> dict[str, str]:
        """Return the pinned SHA-256 by file name, in the order of the file."""
        return parse_checksums((Path(__file__).parent / self.checksum_file).read_text())


def _client(version: str, checksum_file: str) -> ArtifactSet:
    """Return Kafka's client alone, with the logging it was made for."""
    return ArtifactSet(
        folder_name=f"kafka-clients-{version}",
        title=f"Kafka's client {version}",
        checksum_file=checksum_file,
        dependencies=(
            Dependency(organisation="org.apache.kafka", name="kafka-clients", revision=version),
            Dependency(organisation="org.slf4j", name="slf4j-api", revision="1.7.30"),
        ),
    )


KAFKA = ArtifactSet(
    folder_name="kafka-4.1.0",
    title="Apache Kafka 4.1.0",
    checksum_file="jars.txt",
    dependencies=(
        Dependency(organisation="org.apache.kafka", name="kafka_2.13", revision="4.1.0", transitive=True),
        Dependency(organisation="org.apache.kafka", name="kafka-tools", revision="4.1.0"),
        # Without a binding for SLF4J a broker that cannot start would not say why.
        Dependency(organisation="org.apache.logging.log4j", name="log4j-slf4j-impl", revision="2.24.3"),
    ),
)
OLD_CLIENT = _client("2.6.3", "jars_client_2_6.txt")
NATIVE_CONNECTOR = ArtifactSet(
    folder_name="spark-sql-kafka-4.2.0",
    title="Spark's own Kafka connector 4.2.0",
    checksum_file="jars_native.txt",
    dependencies=(
        Dependency(organisation="org.apache.spark", name="spark-sql-kafka-0-10_2.13", revision="4.2.0"),
        Dependency(organisation="org.apache.kafka", name="kafka-clients", revision="3.9.1"),
        Dependency(organisation="org.apache.commons", name="commons-pool2", revision="2.12.0"),
        # The 4.0.0 provider works with the 4.2.0 connector; 4.2.0 could not be resolved where this was measured.
        Dependency(organisation="org.apache.spark", name="spark-token-provider-kafka-0-10_2.13", revision="4.0.0"),
    ),
)
