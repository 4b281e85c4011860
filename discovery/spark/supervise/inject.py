"""One start's command and environment: each list replaced by what the vetting says, and the sentences that say so."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from discovery.core.errors import DiscoveryError
from discovery.spark.supervise.hook_server import is_local
from discovery.spark.supervise.list_locations import Kind, Place, Shape, find_places, keys_of, replaced
from discovery.spark.supervise.list_vetting import ListVetter, Vetted
from discovery.spark.supervise.safe_options import Version, safe_options

HOOK_FOLDER = Path(__file__).parent / "hook"
SOCKET = "KAFKA_DISCOVERY_RUN_SOCKET"
_FILE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What to run this time."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    say: tuple[str, ...]
    servers: str = ""
    """The list that was put in; empty: none was found."""
    refusal: Vetted | None = None
    """Not None: none of the brokers named for Kafka lives, so a start would fail."""


@dataclass(slots=True)
class _Draft:
    """A start while it is being made."""

    command: list[str]
    environment: dict[str, str]
    say: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Injector:
    """Prepares starts of one command. Owns a folder for rewritten files."""

    command: Sequence[str]
    environment: Mapping[str, str]
    vetter: ListVetter
    shape: Shape
    inject: str
    version: Version
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="kafka-discovery-run-")))

    @property
    def local(self) -> bool:
        """Whether clients may be given this host's endpoint."""
        if self.inject in {"endpoint", "list"}:
            return self.inject == "endpoint"
        return is_local(self.shape.master) and not self.shape.cluster_mode

    @property
    def socket_path(self) -> Path:
        """Where the hook in the job asks."""
        return self.folder / "advice"

    def prepare(self, *, wait_seconds: float) -> Start:
        """Vet each list and put in what is to be used now.

        Runs: the supervisor's thread; blocks <= wait_seconds per list.
        """
        draft = _Draft(list(self.command), {**self.environment, **self._hook()})
        servers, refusal = "", None
        for place in self._places():
            vetted = self._vetted(place, wait_seconds, draft.say)
            if vetted is None:
                continue
            if not vetted.living:
                refusal = vetted
                continue
            servers = vetted.servers(local=self.local)
            draft.say += [f"{place}: {servers} (was {place.servers})", *vetted.notes]
            self._put(place, vetted, draft)
        return Start(
            command=tuple(draft.command),
            environment=draft.environment,
            say=tuple(dict.fromkeys(draft.say)),
            servers=servers,
            refusal=None if servers else refusal,
        )

    def _places(self) -> tuple[Place, ...]:
        if self.inject == "none":
            return ()
        found = find_places(self.command, self.environment, _read)
        return tuple(place for place in found if not self.shape.cluster_mode or self._travels(place))

    def _travels(self, place: Place) -> bool:
        """Tell whether what stands there reaches a driver on another host: files and variables of this one do not."""
        if place.kind is Kind.FILE:
            return place.index < self.shape.arguments_from - 1
        return place.kind is not Kind.VARIABLE

    def _vetted(self, place: Place, wait_seconds: float, say: list[str]) -> Vetted | None:
        # A name that says Kafka is worth waiting for; anything else that looks like a list is looked at briefly.
        named = bool(place.name)
        try:
            vetted = self.vetter.vet(place.servers, wait_seconds=wait_seconds if named else min(5.0, wait_seconds))
        except DiscoveryError as error:
            say.append(f"{place}: left as it is: {error}")
            return None
        if not vetted.living:
            say.append(f"{place}: left as it is, nobody answers: {vetted.verdicts}")
            return vetted if named else None
        return vetted

    def _put(self, place: Place, vetted: Vetted, start: _Draft) -> None:
        servers = vetted.servers(local=self.local)
        match place.kind:
            case Kind.VARIABLE:
                start.environment[place.name] = servers
            case Kind.ARGUMENT | Kind.CONF:
                start.command[place.index] = f"{place.head}{servers}"
            case Kind.FILE:
                self._put_in_file(place, vetted, start)

    def _put_in_file(self, place: Place, vetted: Vetted, start: _Draft) -> None:
        """Write a copy with the new list and safe options; several keys of one file go into one copy."""
        head, equals, path = place.head.rpartition("=")
        written = self.folder / f"{place.index}-{Path(path).name}"
        text = _read(str(written) if start.command[place.index].endswith(str(written)) else path) or ""
        prefix = place.name.removesuffix("bootstrap.servers")
        given = {key.removeprefix(prefix) for key in keys_of(text)}
        extra = safe_options(self.version, brokers=vetted.brokers, given=given) if prefix != place.name else ()
        start.say += [f"{prefix}{option.name}={option.value} ({option.why})" for option in extra]
        changes = {place.name: vetted.servers(local=self.local)}
        written.write_text(replaced(text, changes, {option.name: option.value for option in extra}))
        written.chmod(0o600)  # it may hold a login
        start.command[place.index] = f"{head}{equals}{written}"

    def _hook(self) -> dict[str, str]:
        """Put the hook before everything else on the path of the job's Python."""
        if self.inject == "none":
            return {}
        path = os.pathsep.join(filter(None, (str(HOOK_FOLDER), self.environment.get("PYTHONPATH", ""))))
        return {"PYTHONPATH": path, SOCKET: str(self.socket_path)}


def _read(path: str) -> str | None:
    try:
        file = Path(path)
        if not file.is_file() or file.stat().st_size > _FILE_BYTES:
            return None
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
