"""Which client options make a JVM client survive dead brokers, by its version. Pure.

Evidence: a client that is connecting to one silent broker tries no other; a modern one gives up after
`socket.connection.setup.timeout.ms` (10 s, doubling to 30 s), one before 2.7 after the system's 127 s. Clients of 3.8
and 3.9 can start again from their list but do so only when *all* brokers they know are in back-off at once, hence the
long back-off; since 4.0 they do so by themselves after 5 minutes.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from discovery.core.prediction.clients import CLIENTS_OF_SPARK

Version = tuple[int, int]
UNKNOWN: Version = (0, 0)
_SETUP_MILLISECONDS, _SETUP_MAX_MILLISECONDS = 1_000, 2_000
_BACKOFF_FLOOR_MILLISECONDS, _BACKOFF_CAP_MILLISECONDS = 2_000, 8_000
_TRIGGER_MILLISECONDS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeOption:
    """One client option, by its JVM name, and why it is set."""

    name: str
    value: str
    why: str


def parse_version(text: str) -> Version:
    """Read `3.9.1` or `kafka-clients-3.9.1.jar`; UNKNOWN where there is no version in it.

    Runs: anywhere (pure).
    """
    found = re.search(r"(\d+)\.(\d+)(?:\.\d+)?", text)
    return (int(found.group(1)), int(found.group(2))) if found else UNKNOWN


def version_in(words: Collection[str]) -> Version:
    """Find the version of kafka-clients that a command line asks for: its jar, its package, or Spark's connector.

    Runs: anywhere (pure).
    """
    text = " ".join(words)
    if found := re.search(r"kafka-clients[-:](\d+\.\d+)", text):
        return parse_version(found.group(1))
    found = re.search(r"spark-(?:sql|streaming)-kafka-0-10_[\d.]+[-:](\d+)\.(\d+)", text)
    return clients_of_spark((int(found.group(1)), int(found.group(2)))) if found else UNKNOWN


def clients_of_spark(spark: Version) -> Version:
    """Return the kafka-clients that a Spark version brings with its connector, a later one at least what the last did.

    Runs: anywhere (pure).
    """
    return CLIENTS_OF_SPARK.get(min(spark, max(CLIENTS_OF_SPARK)), UNKNOWN)


def safe_options(version: Version, *, brokers: int, given: Collection[str]) -> tuple[SafeOption, ...]:
    """Return the options to add for a client of this version, leaving alone what the user has set.

    Args:
        version: Of kafka-clients; UNKNOWN adds nothing that an old client would complain about.
        brokers: How many brokers the cluster has now.
        given: Client options the user has set, by their JVM names.

    Runs: anywhere (pure).
    """
    backoff = max(_BACKOFF_FLOOR_MILLISECONDS, min(_BACKOFF_CAP_MILLISECONDS, brokers * _SETUP_MILLISECONDS * 5 // 4))
    found: list[SafeOption] = []
    if version >= (2, 7):
        why = "a silent broker is given up after 1-2 s instead of 10-30 s"
        found += [
            SafeOption(name="socket.connection.setup.timeout.ms", value=str(_SETUP_MILLISECONDS), why=why),
            SafeOption(name="socket.connection.setup.timeout.max.ms", value=str(_SETUP_MAX_MILLISECONDS), why=why),
        ]
    if (3, 8) <= version < (4, 0):
        found.append(
            _option("metadata.recovery.strategy", "rebootstrap", "starts again from the list when all is lost")
        )
        why = f"kafka-clients {version[0]}.{version[1]} does so only while every known broker is in backoff at once"
        found += [
            SafeOption(name="reconnect.backoff.ms", value=str(backoff), why=why),
            SafeOption(name="reconnect.backoff.max.ms", value=str(backoff), why=why),
        ]
    if version >= (4, 0):
        why = "starts again from the list after 30 s without metadata instead of 5 minutes"
        found.append(_option("metadata.recovery.rebootstrap.trigger.ms", str(_TRIGGER_MILLISECONDS), why))
    # Options of one family are chosen together: half of ours beside half of the user's may contradict each other.
    taken = {_family(name) for name in given}
    return tuple(option for option in found if _family(option.name) not in taken)


def _option(name: str, value: str, why: str) -> SafeOption:
    return SafeOption(name=name, value=value, why=why)


def _family(name: str) -> str:
    return name.removesuffix(".max.ms").removesuffix(".ms")
