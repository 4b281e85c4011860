"""The routes of the API: declared at their handlers; router, validation and description are made from them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request
from starlette.responses import Response

from discovery.config.provenance import expected
from discovery.service.api.models import Body, Query
from discovery.service.api.responses import ApiError

_MODEL = TypeVar("_MODEL", bound=BaseModel)
_HANDLER = TypeVar("_HANDLER", bound=Callable[..., Awaitable[Response]])
_LONGEST_ERROR = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation: where it is, what it takes, what it returns."""

    method: str
    path: str
    """`{cluster}` in it: a shorter path without `/clusters/{cluster}` answers for the only cluster."""
    name: str
    """Its handler's."""
    summary: str
    query: type[Query]
    body: type[Body] | None
    response: Any
    media_type: str
    statuses: tuple[int, ...]
    """Besides 400, 401, 404 and 421, which any may return, and 403 of those that change something."""
    needs_token: bool = False
    """Also on loopback, where everybody on this host may ask for the rest."""


def route(
    method: str,
    path: str,
    response: Any = None,
    *others: int,
    media_type: str = "application/json",
    needs_token: bool = False,
) -> Callable[[_HANDLER], _HANDLER]:
    """Declare a handler's route; what it takes are its parameters `query` and `body`, validated by their models.

    Args:
        method: Of HTTP.
        path: With names in braces.
        response: The shape of what it returns with status 200; None: it answers 204.
        others: What it may answer besides.
        media_type: Of what it returns.
        needs_token: Also on loopback.
    """

    def declare(handler: _HANDLER) -> _HANDLER:
        takes = get_type_hints(handler)
        handler.route = Route(  # type: ignore[attr-defined]
            method=method,
            path=path,
            name=handler.__name__,
            summary=(handler.__doc__ or "").partition("\n")[0].removesuffix("."),
            query=takes.get("query", Query),
            body=takes.get("body"),
            response=response,
            media_type=media_type,
            statuses=(200 if response is not None else 204, *others),
            needs_token=needs_token,
        )
        return handler

    return declare


def routes_of(api: type) -> tuple[Route, ...]:
    """Return what the handlers of a class declare."""
    return tuple(one.route for one in vars(api).values() if hasattr(one, "route"))


@dataclass(frozen=True, slots=True)
class Call:
    """One request and the route it took."""

    request: Request
    route: Route

    @property
    def cluster(self) -> str:
        """The cluster named in the path; `default` is the only one."""
        return str(self.request.path_params.get("cluster", "default"))

    @property
    def client(self) -> str:
        """The address that asks; empty where it has none."""
        return self.request.client.host if self.request.client else ""

    def path(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])

    async def answer(self, api: object) -> Response:
        """Let the route's handler answer what was validated.

        Raises:
            ApiError: 400, a parameter or the body is not what the route takes; one line says which.
        """
        query = _query(self.route.query, self.request)
        taken: dict[str, object] = {} if self.route.query is Query else {"query": query}
        if (model := self.route.body) is not None:
            raw = await self.request.body()
            taken["body"] = _validated(lambda: model.model_validate_json(raw), model, "field")
        response: Response = await getattr(api, self.route.name)(self, **taken)
        return response


def _query(model: type[Query], request: Request) -> Query:
    given = request.query_params
    for name in given:
        if len(given.getlist(name)) > 1:
            raise ApiError(400, f"{name[:50]}: given {len(given.getlist(name))} times; give it once")
    return _validated(lambda: model.model_validate(dict(given)), model, "parameter")


def _validated(validate: Callable[[], _MODEL], model: type[BaseModel], noun: str) -> _MODEL:
    try:
        return validate()
    except ValidationError as error:
        # A misspelt name first: what it was meant for is missing only because of that.
        first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        raise ApiError(400, _sentence(first, model, noun)[:_LONGEST_ERROR]) from None


def _sentence(error: ErrorDetails, model: type[BaseModel], noun: str) -> str:
    name = ".".join(str(part)[:50] for part in error["loc"] if part != "[key]")
    match error["type"]:
        case "json_invalid":
            return "the body is not JSON"
        case "model_type":
            return "the body must be a JSON object"
        case "extra_forbidden":
            return f"{name}: unknown {noun}; known are {', '.join(sorted(model.model_fields)) or 'none'}"
        case "missing":
            return f"{name}: it is missing"
        case "value_error":
            return ": ".join(filter(None, (name, str(error["ctx"]["error"]))))
    return f"{name}: {repr(error['input'])[:50]}: {expected(error)}"
