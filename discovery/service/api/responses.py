"""Answers of the API: JSON, with what caches and followers need to know; errors as one line."""

from starlette.responses import Response

from discovery.core.errors import DiscoveryError
from discovery.feed.base import FeedView
from discovery.service.api.documents import age_of
from discovery.service.hub import encoded

AGE_HEADER = "Kafka-Discovery-Age-Seconds"
"""The age to the millisecond; `Age` itself is whole seconds."""
STATE_HEADER = "Kafka-Discovery-State"
_JSON = "application/json"


class ApiError(DiscoveryError):
    """A request that gets another status than 200; the text is one line for the caller."""

    def __init__(self, status: int, text: str) -> None:
        """Keep the status beside the text."""
        super().__init__(text)
        self.status = status


def answer(document: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return JSON; bytes are JSON already."""
    body = document if isinstance(document, bytes) else encoded(document)
    return Response(body, status_code=status, media_type=_JSON, headers=headers)


def refusal(status: int, text: str, **more: str) -> Response:
    """Return an error: `{"error": "one line"}`, and what else `models.Error` has."""
    headers = {"Retry-After": "1"} if status in {429, 503} else None
    return answer({"error": text.replace("\n", " "), **more}, status=status, headers=headers)


def freshness(view: FeedView | None) -> dict[str, str]:
    """Return the headers that say how old an answer is and how far it can be trusted."""
    age = age_of(view)
    headers = {STATE_HEADER: view.state.value if view else "cold", "Cache-Control": "no-cache"}
    return headers if age is None else {**headers, "Age": str(int(age)), AGE_HEADER: f"{age:.3f}"}


def etag(epoch: str, generation: int) -> str:
    """Return the entity tag of what changes only with the generation."""
    return f'"{epoch}-{generation}"'
