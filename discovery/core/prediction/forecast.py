"""How probable a failed start of a JVM client is, and how long it takes: the client's own way through its list. Pure.

The JVM client tries its list one address after the other: while one connection is being made, no other is tried. From
2.7 on an address that was not tried yet goes first, in random order, so what precedes the first living address is a
draw without replacement; before, any address may be drawn again. Each failure mode costs a time of its own, and the
call ends when its API timeout does. Where these rules come from: docs/explanation/starts.md.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import product

_JITTER = 0.2
"""The JVM client varies a connection setup timeout by so much, both ways."""
_NOTHING, _ROUNDING = 1e-12, 1e-9
_EXACT = 12
"""Up to so many black holes the sum of their timeouts is computed exactly, beyond it as a normal distribution."""


class FailureMode(Enum):
    """How an address fails, as far as the client can tell."""

    REFUSED = "refused"
    """Refused, reset or garbage: costs milliseconds."""
    UNREACHABLE = "unreachable"
    """The network says "no route" after about 3 s."""
    BLACK_HOLE = "black_hole"
    """Connection requests vanish: costs the connection setup timeout; before 2.7 the operating system's."""
    SILENT = "silent"
    """Accepts the connection and never answers: costs the request timeout."""
    UNRESOLVABLE = "unresolvable"
    """The name is not known: the client drops the entry for its life."""
    AUTH_REJECTED = "auth_rejected"
    """A broker that refuses login or certificate: the call fails at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The timeouts of one client, seconds."""

    api_seconds: float = 60.0
    """`default.api.timeout.ms`: how long one call may take."""
    request_seconds: float = 30.0
    """`request.timeout.ms`: how long one answer may take."""
    setup_seconds: float | None = 10.0
    """`socket.connection.setup.timeout.ms`; None: the client has none (before 2.7)."""
    setup_most_seconds: float = 30.0
    """`socket.connection.setup.timeout.max.ms`; where it is not above the former, timeouts neither grow nor vary."""
    system_seconds: float = 127.0
    """How long the operating system tries to connect: 127 s with Linux's 6 repetitions."""
    unreachable_seconds: float = 3.1
    silent_escape: float = 1.0
    """How probably a silent broker is left after each request timeout. An admin client sets two timers of the same
    length, and the one that fires first decides: it leaves with about 1/2, and before 3.1, which has one, never."""
    retry_seconds: float = 0.0
    """A consumer waits so long after each failed attempt, twice as long each time; an admin client does not wait."""
    retry_most_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a timeout of nothing: the client would try for ever within no time.

        Raises:
            ValueError: a duration is not above 0.
        """
        needed = (self.api_seconds, self.request_seconds, self.connect_seconds, self.unreachable_seconds)
        if min(needed) <= 0 or min(self.retry_seconds, self.retry_most_seconds) < 0 or not 0 <= self.silent_escape <= 1:
            raise ValueError(f"durations must be above 0: {self}")

    @property
    def connect_seconds(self) -> float:
        """How long one connect to a black hole takes."""
        return self.system_seconds if self.setup_seconds is None else min(self.setup_seconds, self.system_seconds)

    @property
    def least_connect_seconds(self) -> float:
        """How long one connect to a black hole takes at least."""
        return self.connect_seconds * (1 - _JITTER) if self.varies else self.connect_seconds

    def waited_seconds(self, failed: int) -> float:
        """Return how long a client waits altogether after so many failed attempts."""
        return math.fsum(min(self.retry_most_seconds, self.retry_seconds * 2.0 ** min(n, 60)) for n in range(failed))

    @property
    def varies(self) -> bool:
        """Tell whether connection setup timeouts are jittered."""
        return self.setup_seconds is not None and self.setup_most_seconds > self.setup_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A bootstrap list by the fate of its entries."""

    living: int
    dead: Mapping[FailureMode, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what no list can be.

        Raises:
            ValueError: a negative count, or an empty list.
        """
        if self.living < 0 or min(self.dead.values(), default=0) < 0 or not self.total:
            raise ValueError(f"a list has 1 or more entries, none of them negative: {self}")

    @property
    def total(self) -> int:
        """How many entries it has."""
        return self.living + sum(self.dead.values())

    def of(self, mode: FailureMode) -> int:
        """Count the entries that fail so."""
        return self.dead.get(mode, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One way a start may end, with its probability."""

    probability: float
    seconds: float
    failed: bool


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a start will do: every way with its probability; probabilities sum to 1."""

    starts: tuple[Start, ...]

    @cached_property
    def failure(self) -> float:
        """The probability that the start fails."""
        return min(1.0, math.fsum(one.probability for one in self.starts if one.failed))

    @cached_property
    def delay_seconds(self) -> float:
        """The mean time a successful start takes to find a living broker; 0 where none succeeds."""
        return self._mean(failed=False)

    @cached_property
    def failed_after_seconds(self) -> float:
        """The mean time a failing start takes to fail; 0 where none fails."""
        return self._mean(failed=True)

    @cached_property
    def mean_seconds(self) -> float:
        """The mean time of a start, however it ends."""
        return math.fsum(one.probability * one.seconds for one in self.starts)

    def _mean(self, *, failed: bool) -> float:
        weight = math.fsum(one.probability for one in self.starts if one.failed is failed)
        total = math.fsum(one.probability * one.seconds for one in self.starts if one.failed is failed)
        return total / weight if weight > 0 else 0.0


def forecast(listed: Listed, limits: Limits) -> Forecast:
    """Say how a start with this list will end.

    Args:
        listed: What became of the entries.
        limits: The client's timeouts; no setup timeout means a client before 2.7.

    Returns:
        All ways, most of them with a probability above 0.

    Runs: anywhere (pure); O(entries ** 4) at worst.
    """
    if listed.total == listed.of(FailureMode.UNRESOLVABLE):  # the constructor itself refuses
        return Forecast(starts=(Start(probability=1.0, seconds=0.0, failed=True),))
    if not listed.living and not listed.of(FailureMode.AUTH_REJECTED):
        return Forecast(starts=(Start(probability=1.0, seconds=limits.api_seconds, failed=True),))
    ways = _old(listed, limits) if limits.setup_seconds is None else _modern(listed, limits)
    return Forecast(starts=tuple(one for one in ways if one.probability > 0))


def _modern(listed: Listed, limits: Limits) -> Iterator[Start]:
    """From 2.7 on: entries in random order, each once; refused ones are left out where they cost nothing."""
    holes, silent = listed.of(FailureMode.BLACK_HOLE), listed.of(FailureMode.SILENT)
    unreachable, rejected = listed.of(FailureMode.UNREACHABLE), listed.of(FailureMode.AUTH_REJECTED)
    refused = listed.of(FailureMode.REFUSED) if limits.retry_seconds else 0
    ending = listed.living + rejected
    entries = holes + silent + unreachable + refused + ending
    waited = [limits.waited_seconds(dead) for dead in range(entries)]
    left = 1.0
    for i, j, k, m in product(range(holes + 1), range(silent + 1), range(unreachable + 1), range(refused + 1)):
        dead = i + j + k + m
        least = i * limits.least_connect_seconds + j * limits.request_seconds + k * limits.unreachable_seconds
        if least + waited[dead] >= limits.api_seconds:
            continue  # too late whatever happens; a long list has hundreds of thousands of these
        ways = math.comb(holes, i) * math.comb(silent, j) * math.comb(unreachable, k) * math.comb(refused, m)
        reached = ways / math.comb(entries, dead) * ending / (entries - dead)
        fixed = k * limits.unreachable_seconds + waited[dead]
        left -= reached
        for share, seconds in _silences(j, limits):
            yield from _ended(reached * share, rejected / ending, fixed + seconds, i, limits)
    if left > _ROUNDING:
        yield Start(probability=left, seconds=limits.api_seconds, failed=True)


def _silences(silent: int, limits: Limits) -> Iterator[tuple[float, float]]:
    """Return how long so many silent brokers hold a client, with probabilities."""
    escape, rest = limits.silent_escape, 1.0
    if silent and not escape:
        yield 1.0, math.inf
        return
    rounds = silent
    while rounds * limits.request_seconds < limits.api_seconds and rest > _NOTHING:
        again = rounds - silent
        share = math.comb(max(rounds - 1, 0), again) * escape**silent * (1 - escape) ** again if silent else 1.0
        rest -= share
        yield share, rounds * limits.request_seconds
        rounds += 1
    yield max(0.0, rest), math.inf


def _ended(probability: float, rejected: float, fixed: float, holes: int, limits: Limits) -> Iterator[Start]:
    """Split one prefix by whether it fits the API timeout, and by what comes after it."""
    in_time, mean = _within(holes, fixed, limits)
    late = probability * (1 - in_time)
    yield Start(probability=late, seconds=limits.api_seconds, failed=True)
    yield Start(probability=probability * in_time * (1 - rejected), seconds=mean, failed=False)
    yield Start(probability=probability * in_time * rejected, seconds=mean, failed=True)


def _within(holes: int, fixed: float, limits: Limits) -> tuple[float, float]:
    """Return the probability that so many black holes end before the API timeout, and the mean time if they do."""
    connect, limit = limits.connect_seconds, limits.api_seconds
    if not holes or not limits.varies:
        seconds = fixed + holes * connect
        return (1.0, seconds) if seconds < limit else (0.0, limit)
    # The sum of n timeouts is n * 0.8 c + 0.4 c * (sum of n uniform numbers).
    least, span = fixed + holes * (1 - _JITTER) * connect, 2 * _JITTER * connect
    share, below = _uniform_sum(holes, (limit - least) / span)
    if share <= 0:
        return 0.0, limit
    return share, least + span * below / share


def _uniform_sum(n: int, x: float) -> tuple[float, float]:
    """For the sum S of n uniform numbers of 0..1: return P(S < x) and the mean of S where S < x, times P."""
    if x <= 0:
        return 0.0, 0.0
    if x >= n:
        return 1.0, n / 2
    if n > _EXACT:  # the exact sum alternates and would drown in rounding
        spread = math.sqrt(n / 12)
        z = (x - n / 2) / spread
        share = 0.5 * (1 + math.erf(z / math.sqrt(2)))
        return share, share * n / 2 - spread * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    terms = [(-1) ** k * math.comb(n, k) * (x - k) ** n for k in range(math.floor(x) + 1)]
    share = math.fsum(terms) / math.factorial(n)
    area = math.fsum(term * (x - k) for k, term in enumerate(terms)) / math.factorial(n + 1)
    return share, x * share - area


def _old(listed: Listed, limits: Limits) -> Iterator[Start]:
    """Before 2.7: any entry each time, but for an admin client the one that failed just now."""
    outwaits = not limits.retry_seconds  # a consumer comes back later than an entry's own back-off ends
    wait = limits.retry_seconds
    counts = {
        FailureMode.BLACK_HOLE: (listed.of(FailureMode.BLACK_HOLE), limits.connect_seconds + wait),
        FailureMode.SILENT: (
            listed.of(FailureMode.SILENT),
            limits.request_seconds + wait if limits.silent_escape else math.inf,
        ),
        FailureMode.UNREACHABLE: (listed.of(FailureMode.UNREACHABLE), limits.unreachable_seconds + wait),
        FailureMode.REFUSED: (0 if outwaits else listed.of(FailureMode.REFUSED), wait),
    }
    pending: dict[tuple[float, FailureMode | None], float] = {(0.0, None): 1.0}
    while pending:
        elapsed, last = min(pending, key=lambda one: one[0])  # in order of time, so that equal ways are joined first
        probability = pending.pop((elapsed, last))
        left = {mode: count - (mode is last) for mode, (count, _) in counts.items()}
        entries = sum(left.values()) + listed.living + listed.of(FailureMode.AUTH_REJECTED)
        yield Start(probability=probability * listed.living / entries, seconds=elapsed, failed=False)
        yield Start(
            probability=probability * listed.of(FailureMode.AUTH_REJECTED) / entries, seconds=elapsed, failed=True
        )
        for mode, count in left.items():
            share = probability * count / entries
            after = round(elapsed + counts[mode][1], 6)
            if share and after >= limits.api_seconds:
                yield Start(probability=share, seconds=limits.api_seconds, failed=True)
            elif share:
                key = after, mode if outwaits else None
                pending[key] = pending.get(key, 0.0) + share
