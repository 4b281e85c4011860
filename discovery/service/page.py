"""The status page: one look tells which brokers live, rest or are rejected, and why."""

from starlette.requests import Request
from starlette.responses import Response

from discovery.service.service import Service


def page(service: Service, _: Request) -> Response:
    """Return the page."""
    return Response(", ".join(service.hubs), media_type="text/html")
