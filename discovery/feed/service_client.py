"""The HTTP side of a followed service: every call with a hard limit, every failure one kind of error."""

import json
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from discovery.config.hosts import is_loopback
from discovery.config.logs import event_log
from discovery.config.service_files import ServiceFiles
from discovery.core.errors import ConfigError, DiscoveryError, KafkaUnreachableError
from discovery.feed.wire import Position

AGE_HEADER = "Kafka-Discovery-Age-Seconds"
_CONNECT_SECONDS = 1.0
_CONFLICT, _UNAVAILABLE, _UNAUTHORIZED, _FORBIDDEN = 409, 503, 401, 403
_MAX_BYTES = 256 * 1024 * 1024
_ROTATION_CHECK_SECONDS = 10.0
"""How often token, authorities and certificate are looked at: they may be rotated while a query runs."""
_log = event_log("discovery.feed")


class ServiceSilentError(DiscoveryError):
    """The service did not answer, or not as it should: time to look for ourselves."""


class ServiceRefusesError(KafkaUnreachableError):
    """The service may not do this for us: it was started without the token that a change of a group needs."""


class ServiceUnavailableError(KafkaUnreachableError):
    """The service lives and cannot say now: it is starting, has no room, or Kafka did not answer it."""


class ConsumerIdTakenError(DiscoveryError):
    """Another process reports under our id."""

    def __init__(self, text: str, *, holder: str) -> None:
        """Keep its name, as `instance_name` made it; empty where the service does not say."""
        super().__init__(text)
        self.holder = holder


class ServiceClient:
    """Asks one service about one cluster. Thread-safe; the constructor does no I/O."""

    @classmethod
    def of(cls, url: str, *, cluster: str = "default", files: ServiceFiles) -> "ServiceClient":
        """Make one from the files that name trust and login.

        Raises:
            ConfigError: the address is none, or a file cannot be read.

        Runs: anywhere; reads the files.
        """
        held = files.fingerprint()  # before they are read: what changes meanwhile is noticed at the next look
        tls = files.tls() if url.lower().startswith("https:") else None
        made = cls(url, cluster=cluster, token=files.read_token(), tls=tls)
        made._files, made._fingerprint = files, held
        return made

    def __init__(
        self, url: str, *, cluster: str = "default", token: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Remember where.

        Args:
            url: `http://host:port` or `https://…`, with nothing behind it.
            cluster: Its name there.
            token: What a service beyond loopback asks for.
            tls: How to verify it and to log in by certificate; None: public authorities alone, and without.

        Raises:
            ConfigError: the address is none.
        """
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ConfigError(f"discoveryUrl: {url!r} is no address: {error}; write http://127.0.0.1:9463") from error
        if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.path not in {"", "/"} or parsed.userinfo:
            raise ConfigError(f"discoveryUrl: {url!r} is not like http://127.0.0.1:9463")
        if token and parsed.scheme == "http" and not is_loopback(parsed.host):
            raise ConfigError(
                f"discoveryUrl: {url!r} would carry the token readable over the network; use https, or no token"
            )
        self.url = str(parsed).rstrip("/")
        self._scope = f"/v1/clusters/{_quoted(cluster)}"
        self._http = _made(self.url, token, tls)
        self._files: ServiceFiles | None = None
        """What to look at again; None: nothing."""
        self._fingerprint = ""
        self._looked_at = time.monotonic()
        self._looking = threading.Lock()
        self._old: httpx.Client | None = None
        """The one before, closed at the next rotation: other threads may be in the middle of a question."""

    def follow(
        self,
        held: Position,
        *,
        topics: str | None,
        pattern: str | None,
        isolation: str | None = None,
        wait_seconds: float,
        silence_seconds: float,
    ) -> tuple[dict[str, Any], float]:
        """Return the next document and the age of what it shows.

        Raises:
            ServiceSilentError: no answer within `wait_seconds + silence_seconds`, or none of the service's.
        """
        wanted = {"topics": topics, "pattern": pattern, "isolation": isolation, "epoch": held.epoch or None}
        parameters = {name: value for name, value in wanted.items() if value is not None}
        response = self._send(
            "GET",
            f"{self._scope}/follow",
            params={"version": str(held.version), "wait": f"{wait_seconds:g}s", **parameters},
            timeout_seconds=wait_seconds + silence_seconds,
        )
        try:
            age_seconds = float(response.headers.get(AGE_HEADER, "inf"))
        except ValueError as error:
            raise ServiceSilentError(f"{self.url} tells no age: {error}") from error
        return self._document(response), age_seconds

    def refresh(self, timeout_seconds: float) -> None:
        """Let the service ask Kafka now.

        Raises:
            KafkaUnreachableError: Kafka did not answer it.
            ServiceSilentError: the service did not answer.
        """
        self._send(
            "POST",
            f"{self._scope}/refresh",
            params={"timeout": f"{timeout_seconds:g}s"},
            timeout_seconds=timeout_seconds + 1,
        )

    def resolve(
        self, wanted: Mapping[str, Mapping[str, int]], *, by_timestamp: bool, isolation: str, timeout_seconds: float
    ) -> Mapping[str, Mapping[str, int]]:
        """Return offsets by topic and partition; raises as `refresh` does."""
        return self._offsets(
            "POST",
            "resolve",
            {"timestamps" if by_timestamp else "offsets": wanted},
            timeout_seconds,
            isolation=isolation,
        )

    def committed(self, group: str, topics: str, *, timeout_seconds: float) -> Mapping[str, Mapping[str, int]]:
        """Return a group's offsets by topic and partition; raises as `refresh` does."""
        return self._offsets("GET", f"groups/{_quoted(group)}", None, timeout_seconds, topics=topics)

    def commit(self, group: str, offsets: Mapping[str, Mapping[str, int]], *, timeout_seconds: float) -> None:
        """Set a group's offsets; raises as `refresh` does, and ServiceRefusesError where the service has no token."""
        self._offsets("PUT", f"groups/{_quoted(group)}", {"offsets": offsets}, timeout_seconds)

    def removal(
        self,
        brokers: str,
        *,
        temporary: bool,
        verify: bool,
        timeout_seconds: float,
        lists: str | None = None,
        assume_no_other_clients: bool = False,
    ) -> dict[str, Any]:
        """Ask whether brokers may be removed, or whether they are; raises as `refresh` does.

        `lists` are lines of `name = host:port,host:port`, of clients that do not report.
        """
        given = {"temporary": temporary, "verify": verify, "assume_no_other_clients": assume_no_other_clients}
        flags = {name: str(value).lower() for name, value in given.items()} | ({"lists": lists} if lists else {})
        response = self._send(
            "GET",
            f"{self._scope}/removal",
            params={"brokers": brokers, "timeout": f"{timeout_seconds:g}s", **flags},
            timeout_seconds=2 * timeout_seconds + 2,
        )
        return self._document(response)

    def report(self, consumer_id: str, report: Mapping[str, Any]) -> None:
        """Say that a consumer lives, and what it does.

        Raises:
            ConsumerIdTakenError: another living process reports under this id.
            ServiceUnavailableError: the service lives, and cannot take it now.
            ServiceSilentError: the service did not take it.
        """
        self._send("PUT", _consumer(consumer_id), body=report, timeout_seconds=2.0)

    def unregister(self, consumer_id: str, instance: str) -> None:
        """Say that a consumer ends, unless another process has its id by now; raises as `report` does."""
        path = _consumer(consumer_id)
        self._send("DELETE", path, params={"instance": instance}, timeout_seconds=1.0)

    def close(self) -> None:
        """Release the connections."""
        self._http.close()
        if self._old is not None:
            self._old.close()

    def _offsets(
        self, method: str, what: str, body: Mapping[str, Any] | None, timeout_seconds: float, **parameters: str
    ) -> Mapping[str, Mapping[str, int]]:
        response = self._send(
            method,
            f"{self._scope}/{what}",
            params={"timeout": f"{timeout_seconds:g}s", **parameters},
            body=body,
            timeout_seconds=timeout_seconds + 1,
        )
        offsets = self._document(response).get("offsets")
        if not isinstance(offsets, dict):
            raise ServiceSilentError(f"{self.url} did not answer with offsets")
        return offsets

    def _send(
        self,
        method: str,
        path: str,
        *,
        timeout_seconds: float,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> httpx.Response:
        """Send and read within one limit: httpx's own bounds each read, and a drip of bytes would never end."""
        deadline = time.monotonic() + timeout_seconds
        timeout = httpx.Timeout(timeout_seconds, connect=min(_CONNECT_SECONDS, timeout_seconds))
        content = None if body is None else json.dumps(body).encode()
        try:
            with self._current().stream(method, path, params=params, content=content, timeout=timeout) as response:
                read = bytearray()
                for chunk in response.iter_raw(65_536):
                    read += chunk
                    if time.monotonic() > deadline or len(read) > _MAX_BYTES:
                        raise ServiceSilentError(f"{self.url} did not end its answer in time")
        except httpx.HTTPError as error:
            remedy = "; set discoveryCaFile (--ca-file)" if "CERTIFICATE_VERIFY_FAILED" in str(error) else ""
            text = f"{self.url} does not answer: {type(error).__name__}: {error}{remedy}"
            raise ServiceSilentError(text) from error
        whole = httpx.Response(response.status_code, headers=response.headers, content=bytes(read))
        self._judge(whole)
        return whole

    def _current(self) -> httpx.Client:
        """Return the client, made again where token, authorities or certificate were rotated."""
        if self._files is None or time.monotonic() - self._looked_at < _ROTATION_CHECK_SECONDS:
            return self._http
        with self._looking:
            self._looked_at = time.monotonic()
            found = self._files.fingerprint()
            if found != self._fingerprint:
                self._fingerprint = found
                try:
                    tls = self._files.tls() if self.url.startswith("https:") else None
                    made = _made(self.url, self._files.read_token(), tls)
                    if self._old is not None:
                        self._old.close()
                    self._old, self._http = self._http, made
                    _log.info("service_files_rotated", service=self.url)
                except ConfigError as error:
                    _log.warning("service_files_refused", error=str(error), consequence="the old ones stay in use")
            return self._http

    def _judge(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        text = _said(response, "error") or response.text[:200]
        if response.status_code == _CONFLICT:
            raise ConsumerIdTakenError(text, holder=_said(response, "holder") or "")
        if response.status_code == _FORBIDDEN:
            raise ServiceRefusesError(f"{self.url} refused: {text}; a query names it by discoveryTokenFile")
        if response.status_code == _UNAVAILABLE:
            raise ServiceUnavailableError(text)
        remedy = "; set discoveryTokenFile" if response.status_code == _UNAUTHORIZED else ""
        raise ServiceSilentError(f"{self.url} answered {response.status_code}: {text}{remedy}")

    def _document(self, response: httpx.Response) -> dict[str, Any]:
        try:
            document = response.json()
        except ValueError as error:
            raise ServiceSilentError(f"{self.url} did not answer with JSON") from error
        if not isinstance(document, dict):
            raise ServiceSilentError(f"{self.url} did not answer with a JSON object")
        return document


def _made(url: str, token: str | None, tls: ssl.SSLContext | None) -> httpx.Client:
    return httpx.Client(
        base_url=url,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        trust_env=False,  # proxies of the environment are not for an address the user gave for this purpose
        timeout=_CONNECT_SECONDS,
        verify=True if tls is None else tls,
    )


def _said(response: httpx.Response, name: str) -> str | None:
    """Return a text of an error's document; None where it has none."""
    try:
        return str(response.json()[name])
    except (ValueError, KeyError, TypeError):
        return None


def _consumer(consumer_id: str) -> str:
    return f"/v1/consumers/{_quoted(consumer_id)}"


def _quoted(text: str) -> str:
    return quote(text, safe="")
