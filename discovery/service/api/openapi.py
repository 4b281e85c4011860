"""The description of the API, made from its routes."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from discovery import __version__
from discovery.service.api.routes import Route
from discovery.service.api.schemas import ERROR

_ANY = (400, 401, 404, 421)
_ANY_CHANGE = (403,)
_ABOUT = (
    "Brokers, topics and offsets of the followed clusters, from memory. With one cluster its name may be `default`, and"
    " `/clusters/default` may be left out: `/v1/brokers`. `Cache-Control: max-age=SECONDS` asks for an answer at most"
    " so old, `stale-if-error=SECONDS` takes an older one where Kafka does not answer; every answer carries its `Age`."
)


def description(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI document.

    Runs: anywhere (pure).
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "kafka-discovery", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{route.handler.__name__}",
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {str(status): _response(route, status) for status in sorted(_statuses(route))},
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.body}}}
    return operation


def _statuses(route: Route) -> set[int]:
    return {*route.statuses, *_ANY, *(() if route.method == "GET" else _ANY_CHANGE)}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "in": "query", "required": one.required, "schema": one.schema, "description": one.meaning}
        for one in route.parameters
    ]


def _response(route: Route, status: int) -> dict[str, Any]:
    said: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if status == HTTPStatus.OK:
        said["content"] = {route.media_type: {"schema": route.response}}
    elif status >= HTTPStatus.BAD_REQUEST:
        said["content"] = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return said
