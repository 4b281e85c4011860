"""The server behind `run`: answers the hook in a PySpark job over a Unix socket."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from discovery.config.logs import event_log
from discovery.core.errors import BUG_PHRASE, ConfigError, DiscoveryError
from discovery.spark.supervise.list_vetting import ListVetter, Vetted
from discovery.spark.supervise.safe_options import UNKNOWN, Version, parse_version, safe_options

SERVERS = "kafka.bootstrap.servers"
_QUESTION_BYTES = 1_000_000
_READ_SECONDS = 10.0
_log = event_log("discovery.spark.supervise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a job shall use, and the sentences that say so."""

    options: Mapping[str, str]
    say: tuple[str, ...]


def is_local(master: str) -> bool:
    """Tell whether a Spark master runs everything on this host; `local-cluster` does, too.

    Runs: anywhere (pure).
    """
    return not master or master.startswith("local")


def advise(vetted: Vetted, given: Mapping[str, str], *, local: bool, version: Version, inject: str = "auto") -> Advice:
    """Say which list and which safe options a reader or writer of Spark's own format shall use.

    Args:
        vetted: What is known of its list now.
        given: All `kafka.*` options the job has set.
        local: Whether everything runs on this host.
        version: Of kafka-clients.
        inject: `auto`, `endpoint`, `list` or `none`.

    Runs: anywhere (pure).
    """
    use_endpoint = inject == "endpoint" or (inject == "auto" and local)
    servers = vetted.servers(local=use_endpoint)
    if not servers or inject == "none":
        why = f"nobody of {given[SERVERS]} answers: {vetted.verdicts}" if not servers else "nothing is to be injected"
        return Advice(options={}, say=(f"{SERVERS} stays as it is: {why}",))
    kind = "the endpoint" if servers == vetted.endpoint else "the vetted list, for executors run on other hosts"
    if use_endpoint and servers != vetted.endpoint:
        kind = "the vetted list, for clients would not believe the endpoint's name"
    say = [f"{SERVERS}={servers} ({kind}; was {given[SERVERS]})", *vetted.notes]
    set_by_user = {name.removeprefix("kafka.") for name in given}
    extra = safe_options(version, brokers=vetted.brokers, given=set_by_user)
    say += [f"kafka.{option.name}={option.value} ({option.why})" for option in extra]
    return Advice(options={SERVERS: servers, **{f"kafka.{o.name}": o.value for o in extra}}, say=tuple(say))


@dataclass(slots=True)
class HookServer:
    """Listens on a Unix socket in a private folder from `open` to `close`; one thread per question."""

    vetter: ListVetter
    path: Path
    fallback_version: Version = UNKNOWN
    inject: str = "auto"
    wait_seconds: float = 60.0
    on_advice: Callable[[Advice], None] = lambda _: None
    _listener: socket.socket | None = None
    _thread: threading.Thread | None = field(default=None)

    def open(self) -> None:
        """Listen. Runs: once; does not block.

        Raises:
            ConfigError: the path is too long for a socket, or cannot be made.
        """
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(self.path))
        except OSError as error:
            self._listener.close()
            raise ConfigError(
                f"TMPDIR: no socket can be made at {self.path}: {error}; name a shorter folder"
            ) from error
        self._listener.listen(16)
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), name="advice", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; a second call does nothing."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        if self._thread is not None:
            self._thread.join(5)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                asked, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(asked,), name="advice", daemon=True).start()

    def _serve(self, asked: socket.socket) -> None:
        with asked, contextlib.suppress(OSError):
            asked.settimeout(_READ_SECONDS)
            advice = self._answer(_line(asked))
            document = {"options": dict(advice.options), "say": list(advice.say)}
            asked.sendall(json.dumps(document).encode() + b"\n")

    def _answer(self, line: bytes) -> Advice:
        try:
            question: dict[str, Any] = json.loads(line)
            given = {str(name): str(value) for name, value in question["options"].items()}
            vetted = self.vetter.vet(given[SERVERS], client=given, wait_seconds=self.wait_seconds)
            version = parse_version(str(question.get("version", "")))
            local = is_local(str(question.get("master", "")))
            version = version if version != UNKNOWN else self.fallback_version
            advice = advise(vetted, given, local=local, version=version, inject=self.inject)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            advice = Advice(options={}, say=(f"a question was not understood: {error!r}",))
        except DiscoveryError as error:
            advice = Advice(options={}, say=(f"{SERVERS} stays as it is: {error}",))
        except Exception:  # noqa: BLE001 - the job goes on with what it had
            _log.exception("bug", sentence=BUG_PHRASE, where="advice to a job")
            advice = Advice(options={}, say=())
        self.on_advice(advice)
        return advice


def _line(asked: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < _QUESTION_BYTES:
        more = asked.recv(65_536)
        if not more:
            break
        data += more
    return data
