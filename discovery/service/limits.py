"""What one client can cost us: bytes of headers and bodies, seconds to send them; and who may ask at all."""

import asyncio
import hmac
from base64 import b64decode
from collections.abc import Callable, Collection
from typing import Any, ClassVar

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from discovery.config.hosts import is_loopback
from discovery.service.api.responses import refusal

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


_ONE_READ = 262_144


class LimitedProtocol(HttpToolsProtocol):
    """An HTTP protocol that hangs up on slow and on large requests, which httptools itself would not.

    Between requests a connection may be silent as long as the server's keep-alive; a request that has begun must be
    complete, headers and body, within `request_timeout_seconds`; so must the first one.
    """

    header_max_bytes = 16_384
    request_timeout_seconds = 10.0
    idle: ClassVar[dict["LimitedProtocol", None]] = {}
    """Connections of this listener without a request being served."""
    opened: ClassVar[set["LimitedProtocol"]] = set()
    """All of them."""
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _in_headers = True

    def connection_made(self, transport: Any) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self.opened.add(self)
        self.idle[self] = None
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._unwatch()
        self.idle.pop(self, None)
        self.opened.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._in_headers:
            self._header_bytes += len(data)
            # A body that follows in the same packet counts too, so a packet with the end in it may be larger.
            limit = self.header_max_bytes + (_ONE_READ if b"\r\n\r\n" in data else 0)
            if self._header_bytes > limit:
                self._reject("request headers are too large")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """See httptools."""
        super().on_message_begin()
        if self._timer is None:
            self._watch()

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._in_headers = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """See httptools."""
        self._unwatch()
        self._in_headers, self._header_bytes = True, 0
        super().on_message_complete()
        if not self.cycle.response_complete:
            self.idle.pop(self, None)

    def on_response_complete(self) -> None:
        """See uvicorn."""
        super().on_response_complete()
        if self.cycle.response_complete and self in self.opened:
            self.idle.pop(self, None)
            self.idle[self] = None

    def abort(self) -> None:
        """Close at once: the place is needed."""
        self.idle.pop(self, None)
        self.opened.discard(self)
        self.transport.abort()

    def _watch(self) -> None:
        self._timer = self.loop.call_later(self.request_timeout_seconds, self._reject, "the request took too long")

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _reject(self, why: str) -> None:
        self._unwatch()
        if self.transport is None or self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.send_400_response(why)
        else:
            self.transport.abort()


def protocol(**limits: object) -> type[LimitedProtocol]:
    """Return the protocol with these limits and places to be counted: uvicorn makes one per connection, passing none.

    Runs: once per listener.
    """
    return type("LimitedProtocol", (LimitedProtocol,), limits)


class BodyLimit:
    """Refuses a body that is too large, before and while it is read."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        """Stand before `app`."""
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        length = Headers(scope=scope).get("content-length", "0") if scope["type"] == "http" else "0"
        if length.isdigit() and int(length) > self._max_bytes:
            await refusal(413, f"the body has {length} bytes; at most {self._max_bytes} are read")(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max_bytes:
                raise BodyTooLargeError(self._max_bytes)
            return message

        await self._app(scope, counted, send)


class BodyTooLargeError(Exception):
    """A chunked body went over the limit."""

    def __init__(self, max_bytes: int) -> None:
        """Keep the limit for the message."""
        super().__init__(f"the body is too large; at most {max_bytes} bytes are read")


class Guard:
    """Lets in who has the token; without a token only requests that name this very host.

    A page in a browser can send requests to loopback, also through a name that it lets point there; the Host header
    tells them. What changes something is refused where a page of another origin sends it: it may point to this very
    name, and a browser adds the credentials it knows. Basic credentials are taken too, for browsers know them: any
    user, the token as password.
    """

    def __init__(
        self, app: ASGIApp, tokens: Callable[[], Collection[bytes]], on_refused: Callable[[int, Scope], None]
    ) -> None:
        """Stand before `app`.

        Args:
            app: Whom to guard.
            tokens: Asked at each request, since they may be rotated; each of them is good.
            on_refused: Hears the status of every request that is not let in.
        """
        self._app = app
        self._tokens = tokens
        self._on_refused = on_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope)
        if refused is not None:
            self._on_refused(refused.status_code, scope)
        await (refused or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        tokens = self._tokens()
        if not tokens and not _names_loopback(headers.get("host", "localhost")):
            return refusal(421, f"this API answers on loopback only, not as {headers['host'][:100]!r}")
        if tokens and not _has_one(tokens, headers.get("authorization", "")):
            response = refusal(401, "a bearer token is required: Authorization: Bearer <token>")
            response.headers["WWW-Authenticate"] = 'Basic realm="kafka-discovery", Bearer'
            return response
        if scope["method"] not in _SAFE and not _is_own_page(headers):
            origin = headers.get("origin", "another site")[:100]
            return refusal(403, f"a page of {origin!r} may not change anything here; only this service's own pages may")
        return None


def _has_one(tokens: Collection[bytes], authorization: str) -> bool:
    scheme, _, value = authorization.partition(" ")
    given = value.strip().encode("utf-8", "surrogateescape")
    if scheme.lower() == "basic":
        try:
            given = b64decode(given, validate=True).partition(b":")[2]
        except ValueError:
            return False
    elif scheme.lower() != "bearer":
        return False
    return any(hmac.compare_digest(given, token) for token in tokens)


def _is_own_page(headers: Headers) -> bool:
    """Tell whether a request comes from no page at all, or from one that this service served."""
    if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")


def _names_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
    return is_loopback(name)
