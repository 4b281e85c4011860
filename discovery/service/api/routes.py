"""The routes of the API as a table: the router, the description and its page are made from it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from discovery.config.durations import seconds
from discovery.service.api.responses import ApiError

Handler = Callable[["Call"], Awaitable[Response]]
Schema = dict[str, Any]
STRING: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
DURATION: Schema = {"type": "string", "pattern": r"^\d+(\.\d+)?(ms|s|m|h)?$", "examples": ["30s"]}
_MAX_SECONDS = 60.0
_DIGITS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a query."""

    name: str
    schema: Schema
    meaning: str
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation: where it is, what it takes, what it returns."""

    method: str
    path: str
    """`{cluster}` in it: a shorter path without `/clusters/{cluster}` answers for the only cluster."""
    handler: Handler
    summary: str
    parameters: tuple[Parameter, ...] = ()
    body: Schema | None = None
    response: Schema = field(default_factory=lambda: {"type": "object"})
    media_type: str = "application/json"
    statuses: tuple[int, ...] = (200,)
    """Besides 400, 401, 404 and 421, which any may return, and 403 of those that change something."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request and the route it took; reads parameters, complaining in one line."""

    request: Request
    route: Route

    @property
    def cluster(self) -> str:
        """The cluster named in the path; `default` is the only one."""
        return str(self.request.path_params.get("cluster", "default"))

    def path(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])

    def text(self, name: str) -> str | None:
        """Return a parameter, or None where it is not given.

        Raises:
            ApiError: 400, it is given more than once.
        """
        given = self.request.query_params.getlist(name)
        if len(given) > 1:
            raise ApiError(400, f"{name}: given {len(given)} times; give it once")
        return given[0] if given else None

    def number(self, name: str, default: int) -> int:
        """Return a whole number of 0 or more.

        Raises:
            ApiError: 400, it is none.
        """
        given = self.text(name)
        if given is None:
            return default
        if not (given.isascii() and given.isdigit() and len(given) < _DIGITS) or int(given) >= 2**63:
            raise ApiError(400, f"{name}: {given[:50]!r} is not a whole number of 0 or more")
        return int(given)

    def flag(self, name: str) -> bool:
        """Return whether it is said to be true; false where it is not given.

        Raises:
            ApiError: 400, it is neither true nor false.
        """
        given = self.text(name)
        if given not in {None, "true", "false"}:
            raise ApiError(400, f"{name}: {(given or '')[:50]!r} is neither true nor false")
        return given == "true"

    def duration(self, name: str, default: float) -> float:
        """Return seconds, at most 60.

        Raises:
            ApiError: 400, it is no duration.
        """
        given = self.text(name)
        if given is None:
            return default
        try:
            return min(seconds(given), _MAX_SECONDS)
        except ValueError as error:
            raise ApiError(400, f"{name}: {given[:50]!r}: {error}") from None

    async def body(self) -> Any:
        """Return the body as JSON.

        Raises:
            ApiError: 400, it is not JSON.
        """
        try:
            return await self.request.json()
        except (ValueError, RecursionError):
            raise ApiError(400, "the body is not JSON") from None

    def check(self) -> None:
        """Refuse parameters the route does not know: a misspelt `generation` would not wait.

        Raises:
            ApiError: 400, names it and those there are.
        """
        known = [parameter.name for parameter in self.route.parameters]
        for name in self.request.query_params:
            if name not in known:
                raise ApiError(400, f"{name[:50]}: unknown parameter; known are {', '.join(known) or 'none'}")
