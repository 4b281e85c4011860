"""The description of the API, made from its routes and their models."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from discovery import __version__
from discovery.service.api.models import Error
from discovery.service.api.routes import Route

_ANY = (400, 401, 404, 421)
_ANY_CHANGE = (403,)
_REF = "#/components/schemas/{model}"
_ABOUT = (
    "Brokers, topics and offsets of the followed clusters, from memory. With one cluster its name may be `default`, and"
    " `/clusters/default` may be left out: `/v1/brokers`. `Cache-Control: max-age=SECONDS` asks for an answer at most"
    " so old, `stale-if-error=SECONDS` takes an older one where Kafka does not answer; every answer carries its `Age`."
)
_NULL = {"type": "null"}


class _Untitled(GenerateJsonSchema):
    """A field's title would only repeat its name."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def description(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI document.

    Runs: anywhere (pure).
    """
    shapes = {shape for route in routes for shape in (route.body, route.response) if shape is not None}
    made, parts = TypeAdapter.json_schemas(
        [(shape, "validation", TypeAdapter(shape)) for shape in (*shapes, Error)],
        schema_generator=_Untitled,
        ref_template=_REF,
    )
    schemas = {shape: schema for (shape, _), schema in made.items()}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "kafka-discovery", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": parts["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    statuses = {*route.statuses, *_ANY, *(() if route.method == "GET" else _ANY_CHANGE)}
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{route.name}",
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {str(status): _response(route, status, schemas) for status in sorted(statuses)},
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schemas[route.body]}}}
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    model = route.query.model_json_schema(schema_generator=_Untitled)
    required = model.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": schema.pop("description"),
            "schema": next((kind for kind in schema.get("anyOf", ()) if kind != _NULL), schema),
        }
        for name, schema in model.get("properties", {}).items()
    ]


def _response(route: Route, status: int, schemas: dict[Any, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if status == HTTPStatus.OK:
        said["content"] = {route.media_type: {"schema": schemas[route.response]}}
    elif status >= HTTPStatus.BAD_REQUEST:
        said["content"] = {"application/json": {"schema": schemas[Error]}}
    return said
