"""The options of cuts, read as one group: they all hang on `sourceId`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from discovery.config.durations import duration_option
from discovery.config.option_values import one_of, topic_name
from discovery.core.errors import ConfigError
from discovery.core.interest import CUT_LEDGER_TOPIC
from discovery.core.model import TopicName

NAMES = ("cutAfter", "cutLedger", "cutLedgerTopic", "coordinatorHost", "coordinatorPort")
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOptions:
    """How a batch is cut, and who remembers it."""

    after_seconds: float = 1.0
    in_kafka: bool = False
    """The ledger is a topic, not a file."""
    topic: TopicName = CUT_LEDGER_TOPIC
    host: str | None = None
    """None: `spark.driver.host`."""
    port: int = 0
    """0: any free one."""


def parse_cut_options(given: Mapping[str, str]) -> CutOptions | None:
    """Read the group; None without `sourceId`, for then nothing is cut.

    Raises:
        ConfigError: names option, value, limit and remedy.

    Runs: driver, at `load()`; no I/O.
    """
    named = [name for name in NAMES if name in given]
    if "sourceId" not in given:
        if named:
            raise ConfigError(f"{named[0]}: it has no effect without sourceId; name this source, or leave it out")
        return None
    in_kafka = one_of("cutLedger", given.get("cutLedger", "file"), ("file", "kafka")) == "kafka"
    if "cutLedgerTopic" in given and not in_kafka:
        raise ConfigError(
            "cutLedgerTopic: it has no effect with cutLedger=file; set cutLedger to kafka, or leave it out"
        )
    return CutOptions(
        after_seconds=duration_option(given.get("cutAfter", "1s"), option="cutAfter"),
        in_kafka=in_kafka,
        topic=topic_name("cutLedgerTopic", given.get("cutLedgerTopic", CUT_LEDGER_TOPIC)),
        host=_host(given["coordinatorHost"]) if "coordinatorHost" in given else None,
        port=_port(given["coordinatorPort"]) if "coordinatorPort" in given else 0,
    )


def _host(text: str) -> str:
    name = text.strip().removeprefix("[").removesuffix("]")
    if not re.fullmatch(r"[A-Za-z0-9._:%-]+", name):
        raise ConfigError(f"coordinatorHost: {text!r} is not a host; write the driver's name or address, without port")
    return name


def _port(text: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit()) or not 0 < int(stripped) <= _MAX_PORT:
        raise ConfigError(f"coordinatorPort: {text!r} is not a port (1..{_MAX_PORT})")
    return int(stripped)
