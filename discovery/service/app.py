"""The two listeners as ASGI applications: the API behind its guard, probes and metrics in the open."""

import re
from collections.abc import Awaitable, Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as AsgiRoute
from starlette.types import ASGIApp, Scope

from discovery.config.logs import event_log
from discovery.core.errors import BUG_PHRASE, ConfigError
from discovery.service.api.handlers import Api
from discovery.service.api.openapi import description
from discovery.service.api.responses import ApiError, answer, refusal
from discovery.service.api.routes import Call, Route, routes_of
from discovery.service.consumers import ConflictError
from discovery.service.health import Check, live, ready
from discovery.service.hub import TooManyWaitersError
from discovery.service.limits import BodyLimit, BodyTooLargeError, Guard
from discovery.service.page import page
from discovery.service.service import Service

_SCOPED = "/v1/clusters/{cluster}/"
_STATUSES = {ConfigError: 400, TooManyWaitersError: 503, BodyTooLargeError: 413}
_FOLD_SECONDS = 10.0
_NEEDS_TOKEN = "only callers with a token may do this, also on loopback; set api.token_file and send its token"  # noqa: S105
_log = event_log("discovery.service")
_Endpoint = Callable[[Request], Awaitable[Response]]


def api_app(service: Service) -> ASGIApp:
    """Return the API and the status page.

    Runs: once per process.
    """
    api, routes, refusals = Api(service), routes_of(Api), Refusals(service)
    document = description(routes)

    async def openapi(_: Request) -> Response:
        return answer(document)

    async def index(_: Request) -> Response:
        return page(service)

    asgi = [AsgiRoute("/", index, methods=["GET"]), AsgiRoute("/openapi.json", openapi, methods=["GET"])]
    for route in routes:
        endpoint = _endpoint(service, api, route, refusals)
        path = re.sub(r"\{(id|group)\}", r"{\1:path}", route.path)  # these names may hold a slash
        asgi.append(AsgiRoute(path, endpoint, methods=[route.method]))
        if route.path.startswith(_SCOPED):
            asgi.append(AsgiRoute(f"/v1/{path.removeprefix(_SCOPED)}", endpoint, methods=[route.method]))
    app = Starlette(routes=asgi, exception_handlers={HTTPException: _not_here})
    limited = BodyLimit(app, service.settings.api.body_max_bytes)
    return Guard(limited, lambda: service.opened.tokens, refusals.note)


def probe_app(service: Service, registry: CollectorRegistry) -> ASGIApp:
    """Return probes and metrics: no token, no I/O, nothing else.

    Runs: once per process.
    """

    async def livez(request: Request) -> Response:
        return _reported(request, live(service.health()))

    async def readyz(request: Request) -> Response:
        checks = ready(service.health()) or [Check("start", ok=False, reason="the loops are being started")]
        # One dead cluster must not take the others' followers away.
        return _reported(request, checks, ok=any(check.ok for check in checks))

    async def startupz(request: Request) -> Response:
        return _reported(request, [Check("listening", service.listening, "configuration read, listeners open")])

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type})

    paths = {"/livez": livez, "/healthz": livez, "/readyz": readyz, "/startupz": startupz, "/metrics": metrics}
    routes = [AsgiRoute(path, endpoint, methods=["GET"]) for path, endpoint in paths.items()]
    return Starlette(routes=routes, exception_handlers={HTTPException: _not_here})


class Refusals:
    """Counts the requests that were not let in, and logs them: at most one line per status in ten seconds."""

    def __init__(self, service: Service) -> None:
        """Count for this service."""
        self._service = service
        self._logged: dict[int, tuple[float, int]] = {}
        """Status -> when a line was written, and how many refusals there were until then."""

    def note(self, status: int, scope: Scope) -> None:
        """Take one. Runs: the event loop's thread."""
        key = ("refused", str(status))
        total = self._service.requests[key] = self._service.requests.get(key, 0) + 1
        now = self._service.clock.monotonic()
        at, before = self._logged.get(status, (float("-inf"), 0))
        if now - at >= _FOLD_SECONDS:
            self._logged[status] = (now, total)
            client, path = (scope.get("client") or ("",))[0], scope["path"][:100]
            _log.warning(
                "refused", status=status, method=scope["method"], path=path, client=client, times=total - before
            )


def _endpoint(service: Service, api: Api, route: Route, refusals: "Refusals") -> _Endpoint:
    async def endpoint(request: Request) -> Response:
        if route.needs_token and not service.opened.tokens:
            refusals.note(403, request.scope)
            return refusal(403, _NEEDS_TOKEN)
        response = await _guarded(Call(request, route), api)
        key = (f"{route.method} {route.path}", str(response.status_code))
        service.requests[key] = service.requests.get(key, 0) + 1
        return response

    return endpoint


async def _guarded(call: Call, api: Api) -> Response:
    """Answer every deliberate error as one line; an unexpected one under the phrase that tests look for."""
    try:
        return await call.answer(api)
    except ApiError as error:
        return refusal(error.status, str(error))
    except ConflictError as error:
        return refusal(409, str(error), holder=error.holder)
    except (ConfigError, TooManyWaitersError, BodyTooLargeError) as error:
        return refusal(_STATUSES[type(error)], str(error))
    except ClientDisconnect:
        return refusal(400, "the request was not sent to its end")
    except Exception:  # noqa: BLE001 - the border to clients: one bad request must not end the rest
        _log.exception("bug", sentence=BUG_PHRASE, route=call.route.path)
        return refusal(500, f"{BUG_PHRASE}: the log of the service has the traceback; please report it")


async def _not_here(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = {404: f"{request.url.path[:100]!r} is no route of this listener", 405: "this route has another method"}
    response = refusal(status, words.get(status, str(error)))
    response.headers.update(getattr(error, "headers", None) or {})
    return response


def _reported(request: Request, checks: list[Check], *, ok: bool | None = None) -> Response:
    """Return 200 or 503; the reasons where something is wrong or `?verbose` asks for them."""
    passed = all(check.ok for check in checks) if ok is None else ok
    verbose = "verbose" in request.query_params or not passed
    lines = [f"[{'+' if check.ok else '-'}] {check.name}: {check.reason}" for check in checks] if verbose else []
    text = "\n".join([*lines, "ok" if passed else "failed"]) + "\n"
    return Response(text, status_code=200 if passed else 503, media_type="text/plain")
