"""What chaos drawn from seeds shares: plans, broken promises, damaged files, and the least that still fails."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

Plan = Sequence[tuple[str, int]]
"""What to do, each with a seed of its own: leaving one out changes no other."""


class BrokenPromiseError(AssertionError):
    """What must hold did not."""


def must(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Raise what did not hold.

    Raises:
        BrokenPromiseError: it does not.
    """
    if not holds:
        raise BrokenPromiseError(otherwise)


def drawn(seed: int, faults: Sequence[str], *, least: int, most: int) -> Plan:
    """Return the plan of a seed; a fault that stands twice among them comes twice as often."""
    draw = random.Random(seed)
    return [(draw.choice(faults), draw.randrange(1 << 30)) for _ in range(draw.randint(least, most))]


def shrunk(plan: Plan, *, fails: Callable[[Plan], object]) -> Plan:
    """Return a part of a failing plan that still fails, and of which nothing can be left out."""
    kept = list(plan)
    for index in reversed(range(len(kept))):
        shorter = kept[:index] + kept[index + 1 :]
        if fails(shorter):
            kept = shorter
    return kept


def flipped(held: bytes, draw: random.Random) -> bytes:
    """Flip a byte of lines; the very last one ends them, and without it the last line is one that was cut short."""
    at = draw.randrange(len(held) - 1)
    return held[:at] + bytes([held[at] ^ 0xFF]) + held[at + 1 :]


def damage(folder: Path, draw: random.Random, *, spared: str = "") -> None:
    """Cut each file of a state off somewhere, or flip a byte in it; one folder of them may be spared."""
    for file in sorted(file for file in folder.rglob("*.json") if file.parent.name != spared):
        held = bytearray(file.read_bytes())
        if held and draw.random() < 0.5:
            held[draw.randrange(len(held))] ^= 0xFF
        else:
            del held[draw.randrange(len(held) + 1) :]
        file.write_bytes(held)
