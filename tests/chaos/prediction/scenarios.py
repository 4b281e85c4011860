"""Draws situations: lists, failure modes, timeouts, clients. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from discovery.core.prediction.clients import Client, ClientKind, ClientVersion, configured
from discovery.core.prediction.forecast import FailureMode

VERSIONS = ("2.6", "3.9", "4.1")
KINDS = (FailureMode.BLACK_HOLE, FailureMode.REFUSED, FailureMode.SILENT, FailureMode.UNRESOLVABLE)
MOST_LIVING = 6
_API_SECONDS = (8, 12, 20, 30)
_SETUP_SECONDS = (1, 2, 4)
_DEFAULTS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One list and one client; a start with it is predicted, then done `starts` times."""

    name: str
    version: str
    kind: ClientKind
    living: int
    dead: Mapping[FailureMode, int] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def client(self) -> Client:
        """The client as configured."""
        return configured(ClientVersion.parse(self.version), self.properties, kind=self.kind)

    @property
    def words(self) -> str:
        """The scenario in a few words."""
        dead = ", ".join(f"{count} {mode.value.replace('_', ' ')}" for mode, count in self.dead.items() if count)
        limits = self.client.limits
        setup = "" if limits.setup_seconds is None else f", setup {limits.setup_seconds:g} s"
        times = f"API {limits.api_seconds:g} s, request {limits.request_seconds:g} s{setup}"
        return f"{self.kind.value} {self.version}: {self.living} alive, {dead or 'nobody dead'}; {times}"


def draw(count: int, *, seed: int) -> tuple[Scenario, ...]:
    """Draw scenarios; the first six are fixed: the known incidents with the clients' own timeouts.

    Runs: anywhere (pure).
    """
    random = Random(seed)
    drawn = [_drawn(random, number) for number in range(max(0, count - len(_known())))]
    return tuple([*_known(), *drawn][:count])


def _known() -> Sequence[Scenario]:
    return [
        Scenario(
            name=f"incident-{version}-{dead}",
            version=version,
            kind=ClientKind.ADMIN,
            living=min(MOST_LIVING, 12 - dead),
            dead={FailureMode.BLACK_HOLE: dead},
        )
        for version in VERSIONS
        for dead in (6, 10)
    ]


def _drawn(random: Random, number: int) -> Scenario:
    version, kind = VERSIONS[number % len(VERSIONS)], random.choice(list(ClientKind))
    living = random.choice((0, 1, 1, 2, 3, MOST_LIVING))
    entries = random.randint(max(2, living), 12)
    dead: dict[FailureMode, int] = {}
    for _ in range(entries - living):
        mode = random.choice(KINDS[: random.choice((1, 2, 4))])
        dead[mode] = dead.get(mode, 0) + 1
    return Scenario(
        name=f"drawn-{number}",
        version=version,
        kind=kind,
        living=living,
        dead=dead,
        properties=_timeouts(random),
    )


def _timeouts(random: Random) -> dict[str, str]:
    api, setup = random.choice(_API_SECONDS), random.choice(_SETUP_SECONDS)
    # A request timeout below the setup timeout would bound an admin client's connects, too; nobody configures that.
    request = random.choice([one for one in (2, 3, 5, 6, 10) if 1.3 * setup <= one < api])
    found = {
        "default.api.timeout.ms": str(api * 1000),
        "request.timeout.ms": str(request * 1000),
        "socket.connection.setup.timeout.ms": str(setup * 1000),
    }
    if random.random() < 0.2:
        found["socket.connection.setup.timeout.max.ms"] = str(setup * 1000)
    return found
