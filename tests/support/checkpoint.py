"""A checkpoint's files as Spark writes them."""

from collections.abc import Sequence
from pathlib import Path

META = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{"spark.sql.shuffle.partitions":"2"}}'


def checkpoint(
    folder: Path,
    batches: dict[int, str],
    recorded: Sequence[int] = (),
    *,
    version: str = "v1",
) -> Path:
    """Write a checkpoint as Spark does: `batches` holds the lines of the sources."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"f2ac99fe"}')
    for number, lines in batches.items():
        (folder / "offsets" / str(number)).write_text(f"{version}\n{META}\n{lines}")
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in recorded:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def committed(checkpoint: Path) -> int:
    """How many batches are committed; Spark deletes the oldest entries."""
    return max((int(file.name) + 1 for file in checkpoint.glob("commits/[0-9]*")), default=0)
