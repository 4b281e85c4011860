"""A query's checkpoint as it lies on disk: what Spark planned, what it recorded, and what cannot be read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from discovery.core.errors import ConfigError
from discovery.core.plural import counted
from discovery.spark.source.planning.offsets import Offsets, parse_offsets

_VERSIONS = ("v1", "v2")
"""Offset logs by position and, since Spark 4.1, by name."""
_MAX_BYTES = 64 * 2**20
"""A file of a checkpoint is a few lines; more than this is something else."""
_NO_OFFSET = "-"


class Writer(Enum):
    """Which source wrote an offset; they differ in the spaces of their JSON alone."""

    NATIVE = "kafka"
    OURS = "kafka-discovery"
    OTHER = "another source"


class Severity(Enum):
    """What a finding means for the next start."""

    ERROR = "error"
    """It fails, or loses or repeats records."""
    WARNING = "warning"
    """Worth a look before."""
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, in one line."""

    severity: Severity
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """One source's offsets at the end of a batch."""

    name: str
    writer: Writer
    offsets: Offsets = field(default_factory=dict)
    """Empty for other sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One planned batch."""

    number: int
    planned_ms: int
    """When Spark planned it, since the epoch."""
    sources: tuple[SourceOffset, ...]

    def source(self, name: str) -> SourceOffset | None:
        """Return one source's offset."""
        return next((s for s in self.sources if s.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the next start of the query would find."""

    path: Path
    query_id: str | None
    batches: tuple[int, ...]
    """Numbers in the offset log, ascending; Spark keeps the last 100 or so."""
    recorded: tuple[int, ...]
    """Numbers in the commit log, ascending."""
    planned: Batch | None
    """The newest planned batch, where it can be read."""
    done: Batch | None
    """The newest recorded batch, where it can be read."""
    initial: Mapping[str, Offsets] = field(default_factory=dict)
    """Where the native source noted that a new query begins, by source."""
    findings: tuple[Finding, ...] = ()


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the newest batches of a checkpoint; whatever is broken in it is a finding.

    Raises:
        ConfigError: the folder is not a checkpoint of a streaming query.

    Runs: anywhere; reads at most six small files.
    """
    if not (path / "offsets").is_dir() and not (path / "metadata").is_file():
        raise ConfigError(
            f"{path}: not the checkpoint of a streaming query (it has neither offsets/ nor metadata); name the folder "
            "given as checkpointLocation, on a local or mounted disk"
        )
    findings: list[Finding] = []
    batches, recorded = _numbers(path / "offsets"), _numbers(path / "commits")
    planned = _batch(path, batches[-1], findings) if batches else None
    done = planned
    if batches and recorded[-1:] != batches[-1:]:
        done = _batch(path, recorded[-1], findings) if recorded and recorded[-1] in batches else None
    if recorded:
        _check_commit(path / "commits" / str(recorded[-1]), findings)
    return Checkpoint(
        path=path,
        query_id=_query_id(path / "metadata", findings),
        batches=batches,
        recorded=recorded,
        planned=planned,
        done=done,
        initial=_initial(path / "sources", findings),
        findings=(*findings, *_gaps(batches, recorded), *_leftovers(path)),
    )


def _numbers(folder: Path) -> tuple[int, ...]:
    if not folder.is_dir():
        return ()
    return tuple(sorted(int(f.name) for f in folder.iterdir() if f.name.isascii() and f.name.isdigit()))


def _text(path: Path) -> str:
    if path.stat().st_size > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES >> 20} MiB")
    return path.read_bytes().decode()


def _batch(path: Path, number: int, findings: list[Finding]) -> Batch | None:
    try:
        return parse_batch(_text(path / "offsets" / str(number)), number)
    except (OSError, ValueError, ConfigError) as error:
        text = f"offsets/{number} cannot be read ({error}): Spark will not start from it; restore it from a copy"
        findings.append(Finding(Severity.ERROR, text))
        return None


def parse_batch(text: str, number: int) -> Batch:
    """Read one file of the offset log.

    Raises:
        ValueError: it is cut, of another version, or not an offset log; says which.

    Runs: anywhere (pure).
    """
    version, *lines = text.split("\n")
    if version not in _VERSIONS:
        raise ValueError("it is empty" if not text.strip("\0") else f"version {version[:20]!r} is not v1 or v2")
    if not lines:
        raise ValueError("it is cut after its first line")
    try:
        meta: dict[str, Any] = json.loads(lines[0])
        planned_ms, _ = int(meta["batchTimestampMs"]), int(meta["batchWatermarkMs"])
    except (ValueError, KeyError, TypeError):
        raise ValueError("its second line is cut or is not Spark's") from None
    named = [_named(line, i, version) for i, line in enumerate(lines[1:]) if line.strip()]
    if not named:
        raise ValueError("it holds no offset: it is cut")
    sources = tuple(source_offset(name, line) for name, line in named)
    return Batch(number=number, planned_ms=planned_ms, sources=sources)


def _named(line: str, position: int, version: str) -> tuple[str, str]:
    if version == "v1":
        return str(position), line
    name, _, offset = line.partition(":")
    return name, offset


def source_offset(name: str, line: str) -> SourceOffset:
    """Read one source's offset.

    Raises:
        ValueError: it is cut.

    Runs: anywhere (pure).
    """
    if line == _NO_OFFSET:
        return SourceOffset(name=name, writer=Writer.OTHER)
    try:
        raw = json.loads(line)
    except ValueError:
        if line.startswith("{"):
            raise ValueError(f"the offset of source {name} is cut") from None
        return SourceOffset(name=name, writer=Writer.OTHER)
    try:
        offsets = parse_offsets(raw, what=f"source {name}")
    except ConfigError:
        return SourceOffset(name=name, writer=Writer.OTHER)
    compact = json.dumps(raw, separators=(",", ":")) == line
    return SourceOffset(name=name, writer=Writer.NATIVE if compact else Writer.OURS, offsets=offsets)


def _check_commit(path: Path, findings: list[Finding]) -> None:
    try:
        text = _text(path)
        sound = text.split("\n")[0] in _VERSIONS
    except (OSError, ValueError):
        sound = False
    if not sound:
        text = (
            f"commits/{path.name} is empty or damaged: Spark will not start; remove it to have batch {path.name} again"
        )
        findings.append(Finding(Severity.ERROR, text))


def _query_id(path: Path, findings: list[Finding]) -> str | None:
    try:
        return str(json.loads(_text(path))["id"])
    except FileNotFoundError:
        findings.append(Finding(Severity.WARNING, "metadata is missing: the next start gives the query another id"))
    except (OSError, ValueError, KeyError, TypeError):
        findings.append(Finding(Severity.ERROR, "metadata is damaged: Spark will not start; restore it from a copy"))
    return None


def _initial(folder: Path, findings: list[Finding]) -> dict[str, Offsets]:
    found: dict[str, Offsets] = {}
    for path in sorted(folder.glob("*/0")):
        try:
            version, _, line = _text(path).lstrip("\0").partition("\n")
            if version == "v1":
                found[path.parent.name] = parse_offsets(line.strip(), what=str(path))
        except (OSError, ValueError, ConfigError):
            text = (
                f"sources/{path.parent.name}/0 cannot be read: if Kafka is that source, the native one will not start"
            )
            findings.append(Finding(Severity.WARNING, text))
    return found


def _gaps(batches: tuple[int, ...], recorded: tuple[int, ...]) -> list[Finding]:
    newest, last = batches[-1] if batches else -1, recorded[-1] if recorded else -1
    if last > newest:
        text = f"commits/{last} is there and offsets/{last} is not: files were lost; restore them from a copy"
        return [Finding(Severity.ERROR, text)]
    if newest > last + 1:
        text = f"batch {newest} is planned and {last + 1} was never recorded: files were lost or removed"
        return [Finding(Severity.ERROR, text)]
    if newest > last >= 0 and last not in batches:
        text = f"offsets/{last} is missing: nobody knows where batch {newest}, to be replayed, begins"
        return [Finding(Severity.ERROR, text)]
    return []


def _leftovers(path: Path) -> list[Finding]:
    count = sum(1 for folder in ("offsets", "commits") for _ in (path / folder).glob(".*.tmp"))
    if not count:
        return []
    return [Finding(Severity.NOTE, f"{counted(count, 'temporary file')} left by unfinished writes; harmless")]
