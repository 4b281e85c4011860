"""What a sink leaves in Kafka beside its records: a marker per lane, and one control record.

Both are the metadata of committed offsets, so they are small (`offset.metadata.max.bytes`, 4096 by default), JSON, and
carry a version. A marker is committed by the same transaction as the records it speaks of; the control record by the
driver, once all lanes of a batch have their marker.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from discovery.core.errors import StateError

VERSION = 1
MAX_BYTES = 4_096
MAX_LANES = 128
"""With more, the control record would not fit into what a broker takes."""
CLOSED = 1_000
"""Added to the number of lanes while it is being changed, so that nobody's number fits and nobody is let in."""
_MASK = 2**64 - 1
_TEXTS = {"q", "h", "a", "o", "x", "s"}
_OPTIONAL = "oxkds"
"""Fields that earlier programs did not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """One lane's proof: this batch is committed, with these records."""

    query_id: str
    batch_id: int
    lanes: int
    rows: int
    fingerprint: str
    attempt: str
    wall_seconds: int
    generation: int
    unlaned: bool = False
    """The frame did not come from `with_lanes`, so other tasks of the batch may have had records too."""
    target: str | None = None
    """The one topic of the write; empty: each record named its own; None: an earlier program wrote this."""

    @property
    def is_boundary(self) -> bool:
        """No attempt wrote it: its generation begins, in this lane, after this batch, which is complete."""
        return not self.attempt

    @property
    def offset(self) -> int:
        """The committed offset: grows with the batch, so that a lag monitor shows progress."""
        return self.batch_id + 1

    def encode(self) -> str:
        """Return the metadata text.

        Runs: anywhere (pure).
        """
        return _dump(
            q=self.query_id, b=self.batch_id, n=self.lanes, r=self.rows, h=self.fingerprint, a=self.attempt,
            t=self.wall_seconds, g=self.generation, **({"u": 1} if self.unlaned else {}),
            **({} if self.target is None else {"o": self.target}),
        )  # fmt: skip

    @classmethod
    def decode(cls, text: str, *, where: str) -> Self:
        """Read a marker.

        Args:
            text: The metadata of a committed offset.
            where: Names group and partition in errors.

        Raises:
            StateError: somebody else wrote it, or a later version of this project.

        Runs: anywhere (pure).
        """
        raw = _load(text, where=where, names="qbnrhatg")
        return cls(
            query_id=raw["q"], batch_id=raw["b"], lanes=raw["n"], rows=raw["r"], fingerprint=raw["h"],
            attempt=raw["a"], wall_seconds=raw["t"], generation=raw["g"], unlaned=bool(raw.get("u")),
            target=raw.get("o"),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """How far all lanes of a sink have come together; written by the driver alone.

    A generation begins when a sink is new, is taken over, or gets another number of lanes: markers of earlier
    generations no longer count.
    """

    query_id: str
    """Empty: no batch of this generation is complete, and any query may come."""
    batch_id: int
    """The last batch that every lane confirmed; -1: none."""
    lanes: int
    generation: int
    wall_seconds: int
    lane_walls: tuple[int, ...] = field(default=())
    """When each lane last had a marker, epoch seconds; 0: never in this generation. Empty: no lane had one yet."""
    run: str = ""
    """The run of the query that confirmed the last batch; empty: not known."""
    kept: int = 0
    """How often a replay of this generation had other records than a lane had committed, which were kept."""
    target: str | None = None
    """As in the markers of the last batch; of a pipeline by offsets: of all of them."""
    source: str | None = None
    """Of a pipeline by offsets: the one topic it reads; None: not known."""
    is_recorded: bool = False
    """The last marker of each lane is a record of the marker topic too, or older than the last complete batch."""

    @property
    def known_lanes(self) -> int:
        """The number of lanes, also while it is being changed."""
        return self.lanes % CLOSED

    @property
    def is_closed(self) -> bool:
        """Whether a start is changing the number of lanes, or died while it did."""
        return self.lanes >= CLOSED

    @property
    def offset(self) -> int:
        """The committed offset."""
        return self.batch_id + 1

    def encode(self) -> str:
        """Return the metadata text.

        Runs: anywhere (pure).
        """
        return _dump(
            q=self.query_id, b=self.batch_id, n=self.lanes, g=self.generation, t=self.wall_seconds,
            l=list(self.lane_walls), x=self.run, k=self.kept,
            d=int(self.is_recorded), **({} if self.target is None else {"o": self.target}),
            **({} if self.source is None else {"s": self.source}),
        )  # fmt: skip

    @classmethod
    def decode(cls, text: str, *, where: str) -> Self:
        """Read a control record; see `Marker.decode`."""
        raw = _load(text, where=where, names="qbngtl")
        return cls(
            query_id=raw["q"], batch_id=raw["b"], lanes=raw["n"], generation=raw["g"], wall_seconds=raw["t"],
            lane_walls=tuple(raw["l"]), run=raw.get("x", ""), kept=raw.get("k", 0),
            target=raw.get("o"), source=raw.get("s"), is_recorded=bool(raw.get("d")),
        )  # fmt: skip

    def lane_wall(self, lane: int) -> int:
        """Return when a lane last had a marker; 0: never."""
        return self.lane_walls[lane] if lane < len(self.lane_walls) else 0


def advanced(
    control: Control,
    *,
    query_id: str,
    batch_id: int,
    markers: Mapping[int, Marker],
    wall: int,
    run: str = "",
    kept: int = 0,
    target: str | None = None,
) -> Control:
    """Return the control record after a batch that every lane confirmed; `kept` of them kept other records.

    Runs: anywhere (pure).
    """
    walls = tuple(
        max(control.lane_wall(lane), markers[lane].wall_seconds if lane in markers else 0)
        for lane in range(control.lanes)
    )
    return replace(
        control,
        query_id=query_id,
        batch_id=max(control.batch_id, batch_id),
        wall_seconds=wall,
        lane_walls=walls,
        run=run,
        kept=control.kept + kept,
        target=target,
    )


def beginning(control: Control) -> Marker:
    """Return the marker that each lane of before gets when the generation of this control record begins.

    A late word of an earlier driver may bring the old control record back, but not the old markers: whoever it lets in
    finds a marker of a later generation.

    Runs: anywhere (pure).
    """
    return Marker(
        query_id=control.query_id, batch_id=control.batch_id, lanes=control.lanes, rows=0, fingerprint="", attempt="",
        wall_seconds=control.wall_seconds, generation=control.generation,
    )  # fmt: skip


def taken_over(control: Control, generations: Iterable[int], *, query_id: str, wall: int) -> Control:
    """Return the control record of a generation later than all of these and its own, in which nothing is written yet.

    Runs: anywhere (pure).
    """
    return replace(
        control,
        lanes=control.known_lanes,
        query_id=query_id,
        batch_id=-1,
        generation=max([control.generation, *generations]) + 1,
        wall_seconds=wall,
        lane_walls=(),
        is_recorded=True,
        source=None,
        target=None,
    )


def newest(*found: Mapping[int, Marker]) -> dict[int, Marker]:
    """Return the last marker of each lane.

    Runs: anywhere (pure).
    """
    last: dict[int, Marker] = {}
    for markers in found:
        for lane, marker in markers.items():
            if lane not in last or (marker.generation, marker.batch_id) > (last[lane].generation, last[lane].batch_id):
                last[lane] = marker
    return last


def renewed(control: Control, markers: Mapping[int, Marker], *, wall: int) -> Control:
    """Return the control record once every lane's last marker has been committed again, at `wall`.

    Args:
        control: As it was, and closed if it was: a marker of a later generation has to be seen before it is opened.
            Generation 0: nobody knows any more, and the markers say it.
        markers: The last one of each lane, read after all were fenced. One that is not there was never there, or is
            older than the last complete batch; none at all: the sink is new.
        wall: Epoch seconds.

    Runs: anywhere (pure).
    """
    generation = control.generation or max((marker.generation for marker in markers.values()), default=1)
    current = {lane: marker for lane, marker in markers.items() if marker.generation == generation}
    some = next(iter(current.values()), None)
    lanes = some.lanes if some is not None and not control.generation else control.known_lanes
    # Spark begins a batch when the one before it is complete.
    complete = max((marker.batch_id - (not marker.is_boundary) for marker in current.values()), default=-1)
    is_begun = bool(control.lane_walls) or any(not marker.is_boundary for marker in current.values())
    walls = tuple(wall if lane in current else control.lane_wall(lane) for lane in range(lanes))
    return replace(
        control,
        query_id=control.query_id or (some.query_id if some is not None else ""),
        batch_id=max(control.batch_id, complete),
        lanes=lanes + CLOSED * control.is_closed,
        generation=generation,
        wall_seconds=wall,
        lane_walls=walls if is_begun else (),
        is_recorded=True,
    )


Header = tuple[str, bytes | None]


class Fingerprint:
    """Sums one hash per record: equal for the same records in any order."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(
        self,
        topic: str | None,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header] | None = (),
    ) -> None:
        """Take in one record.

        Runs: workers, once per record; about a microsecond.
        """
        self.rows += 1
        packed = _pack(topic, partition, key, value, headers)
        self._sum += int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")

    def add_plain(self, topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        """Take in records without partition and headers: the same sum as `add` for each, in half the time.

        Runs: workers, once per Arrow batch.
        """
        name, blake, number = topic.encode(), hashlib.blake2b, int.from_bytes
        head, length = _HEAD.pack, len(name)
        self.rows += len(values)
        self._sum += sum(
            number(
                blake(
                    head(length, -1, -1 if key is None else len(key), -1 if value is None else len(value))
                    + name
                    + (key or b"")
                    + (value or b""),
                    digest_size=8,
                ).digest(),
                "little",
            )
            for key, value in zip(keys, values, strict=True)
        )

    def text(self) -> str:
        """Return the sum as 16 hexadecimal digits."""
        return f"{self._sum & _MASK:016x}"


_HEAD = struct.Struct("<iiii")


def _pack(
    topic: str | None,
    partition: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Header] | None,
) -> bytes:
    """Lengths first, -1 for null: two different records never pack to the same bytes."""
    name = b"" if topic is None else topic.encode()
    head = _HEAD.pack(
        -1 if topic is None else len(name),
        -1 if partition is None else partition,
        -1 if key is None else len(key),
        -1 if value is None else len(value),
    )
    packed = b"".join((head, name, key or b"", value or b""))
    for text, content in headers or ():
        packed += _pack(text, None, content, None, ())
    return packed


def _dump(**fields: Any) -> str:
    return json.dumps({"v": VERSION, **fields}, separators=(",", ":"))


def _load(text: str, *, where: str, names: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except ValueError:
        raise StateError(f"{where}: {text[:80]!r} is not what this sink writes; is the group used otherwise?") from None
    if not isinstance(raw, dict) or "v" not in raw:
        raise StateError(f"{where}: {text[:80]!r} is not what this sink writes; is the group used otherwise?")
    if raw["v"] != VERSION:
        raise StateError(f"{where}: version {raw['v']!r}, this program knows {VERSION}; use the one that wrote it")
    known = names + "".join(name for name in _OPTIONAL if name in raw)
    if wrong := [name for name in known if not _sound(name, raw.get(name))]:
        raise StateError(f"{where}: field {wrong[0]!r} is {raw.get(wrong[0])!r}; is the group used otherwise?")
    return raw


def _sound(name: str, value: object) -> bool:
    if name in _TEXTS:
        return isinstance(value, str)
    if name == "l":
        return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
    return type(value) is int and value >= (-1 if name == "b" else 0)
