"""How long to wait after failures: exponential with full jitter, decided without a random source of its own."""

import zlib


def full_jitter(*, base_seconds: float, cap_seconds: float, failures: int, fraction: float) -> float:
    """Return a rest of `fraction` of min(cap, base x 2^(failures-1)).

    Args:
        base_seconds: Longest wait after the first failure; > 0.
        cap_seconds: Longest wait ever; >= base.
        failures: Failures in a row; >= 1.
        fraction: Where in [0, 1] the jitter fell.

    Returns:
        Seconds in [0, cap].

    Raises:
        ValueError: an argument is out of range.

    Runs: anywhere (pure). Source: "Exponential Backoff And Jitter", full jitter.
    """
    if base_seconds <= 0 or cap_seconds < base_seconds or failures < 1 or not 0 <= fraction <= 1:
        raise ValueError(f"out of range: {base_seconds=}, {cap_seconds=}, {failures=}, {fraction=}")
    doublings = min(failures - 1, 64)
    return float(min(cap_seconds, base_seconds * 2**doublings) * fraction)


def fraction_of(salt: int, subject: str, count: int) -> float:
    """Return a number in [0, 1) that differs by process (salt), subject and count, and never otherwise.

    A hash instead of a random source keeps `decide` a function of its arguments, so an outage can be replayed.

    Runs: anywhere (pure).
    """
    return zlib.crc32(f"{salt}/{subject}/{count}".encode()) / 2**32
