"""The ten checks of an exactly-once sink: pure, each says what it found in one sentence."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.sink.evidence import Evidence, Place, Proof, Said, Seen

_SHOWN = 5


class Finding(NamedTuple):
    """Something that must not be."""

    check: str
    text: str


def findings(evidence: Evidence) -> tuple[Finding, ...]:
    """Return everything that is wrong; empty: the run was exactly once."""
    return tuple(Finding(name, text) for name, check in CHECKS.items() for text in check(evidence))


def _lost(e: Evidence) -> Iterator[str]:
    if missing := e.expected - {seen.id for seen in e.committed}:
        yield f"{len(missing)} of {len(e.expected)} never became visible: {_some(missing)}"
    if e.tail is not None and (unseen := {seen.id for seen in e.committed} - {seen.id for seen in e.tail}):
        yield f"{len(unseen)} were never seen by the reader that was there all the time: {_some(unseen)}"


def _duplicates(e: Evidence) -> Iterator[str]:
    for name, records in (("a reader", e.committed), ("the reader that was there all the time", e.tail or ())):
        counted = Counter(seen.id for seen in records)
        if twice := {f"{id_} x {count}" for id_, count in counted.items() if count > 1}:
            yield f"{len(twice)} seen more than once by {name}: {_some(twice)}"
    if strangers := {seen.id for seen in e.committed} - e.expected:
        yield f"{len(strangers)} are none of the input's: {_some(strangers)}"


def _aborted_read(e: Evidence) -> Iterator[str]:
    if e.said is None:
        return
    said: dict[tuple[int, int], list[Said]] = defaultdict(list)
    for word in e.said:
        said[word.lane, word.batch].append(word)
    for (lane, batch), attempts in _attempts(e.committed).items():
        words = said[lane, batch]
        writers = {word.attempt for word in words if word.outcome == "written"}
        confirmed = any(word.outcome == "kept" for word in words)
        for attempt in attempts - writers:
            if not confirmed:
                yield f"lane {lane}, batch {batch}: attempt {attempt} is visible and nobody said that it succeeded"
        if writers - attempts:
            yield f"lane {lane}, batch {batch}: {_some(writers - attempts)} said `written` and nothing is visible"
    if e.everything is not None:
        whole = {(seen.place, seen.offset) for seen in e.everything}
        if outside := {(seen.place, seen.offset) for seen in e.committed} - whole:
            yield f"{len(outside)} committed records are missing in the uncommitted log: {_some(map(str, outside))}"


def _torn(e: Evidence) -> Iterator[str]:
    last = e.markers[-1] if e.markers else {}
    for (lane, batch), attempts in _attempts(e.committed).items():
        if len(attempts) > 1:
            yield f"lane {lane}, batch {batch}: rows of {len(attempts)} attempts are visible: {_some(attempts)}"
        numbers = sorted(s.seq for s in e.committed if (s.lane, s.batch) == (lane, batch))
        if numbers != list(range(len(numbers))):
            yield f"lane {lane}, batch {batch}: rows {numbers[:_SHOWN]}… are not 0 to {len(numbers) - 1}"
        proof = last.get(lane)
        if proof is not None and proof.batch == batch and (proof.rows, {proof.attempt}) != (len(numbers), attempts):
            yield f"lane {lane}, batch {batch}: {len(numbers)} rows of {_some(attempts)}, the marker says {proof}"


def _order(e: Evidence) -> Iterator[str]:
    lanes: dict[tuple[Place, int], list[Seen]] = defaultdict(list)
    keys: dict[tuple[Place, str], list[Seen]] = defaultdict(list)
    for seen in sorted(e.committed, key=lambda s: (s.place, s.offset)):
        if seen.attempt:
            lanes[seen.place, seen.lane].append(seen)
        if seen.key:
            keys[seen.place, seen.key].append(seen)
    for (place, lane), records in lanes.items():
        for one, other in pairwise(records):
            if (one.batch, one.seq) >= (other.batch, other.seq):
                yield f"{place}, lane {lane}: offset {other.offset} comes after {one.offset} and is older"
                break
    for (place, key), records in keys.items():
        if any(one.number >= other.number for one, other in pairwise(records)):
            yield f"{place}, key {key}: the order of the input is lost"


def _marker(e: Evidence) -> Iterator[str]:
    for earlier, later in pairwise(e.markers):
        for lane, proof in earlier.items():
            if lane not in later or later[lane].batch < proof.batch:
                yield f"lane {lane}: the marker went back from {proof} to {later.get(lane)}"
    yield from _last_marker(e, e.markers[-1]) if e.markers else ()


def _last_marker(e: Evidence, last: Mapping[int, Proof]) -> Iterator[str]:
    visible: dict[int, int] = defaultdict(lambda: -1)
    for seen in e.committed:
        if seen.attempt:
            visible[seen.lane] = max(visible[seen.lane], seen.batch)
    for lane in {*last, *visible}:
        marked = last[lane].batch if lane in last else -1
        if visible[lane] > marked:
            yield f"lane {lane}: batch {visible[lane]} is visible, the marker says {marked}"
        if e.last_batch is not None and marked > e.last_batch:
            yield f"lane {lane}: the marker says {marked}, Spark has committed {e.last_batch}"


def _unstable(e: Evidence) -> Iterator[str]:
    one, other = ([(seen.place, seen.offset, seen.id) for seen in records] for records in (e.committed, e.again))
    if sorted(one) != sorted(other):
        yield f"two full reads differ: {_some(map(str, set(one) ^ set(other)))}"


def _hanging(e: Evidence) -> Iterator[str]:
    for place, (stable, high) in e.stable_ends.items():
        if stable != high:
            yield f"{place}: the last stable offset is {stable} of {high}: a transaction hangs"
    if not e.sentinels_read:
        yield "a plain record written after the end cannot be read"


def _restart(e: Evidence) -> Iterator[str]:
    if e.new_after_restart:
        yield f"a restart without commits/N made {e.new_after_restart} records visible"


def _stalled(e: Evidence) -> Iterator[str]:
    if e.seconds_to_progress is not None and e.seconds_to_progress > e.progress_limit_seconds:
        yield f"no progress for {e.seconds_to_progress:.0f} s after a fault, longer than {e.progress_limit_seconds:g} s"


CHECKS: Mapping[str, Callable[[Evidence], Iterable[str]]] = {
    "C1 lost": _lost,
    "C2 duplicate": _duplicates,
    "C3 aborted read": _aborted_read,
    "C4 torn lane": _torn,
    "C5 order": _order,
    "C6 marker": _marker,
    "C7 stability": _unstable,
    "C8 hanging transaction": _hanging,
    "C9 restart": _restart,
    "C10 liveness": _stalled,
}


def _attempts(records: Iterable[Seen]) -> Mapping[tuple[int, int], set[str]]:
    found: dict[tuple[int, int], set[str]] = defaultdict(set)
    for seen in records:
        if seen.attempt:
            found[seen.lane, seen.batch].add(seen.attempt)
    return found


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:_SHOWN]) + (f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else "")
