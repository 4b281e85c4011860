"""The description of the API as a file: `python -m docs.generate.openapi`."""

import json
from pathlib import Path
from typing import cast

from discovery.service.api.handlers import Api
from discovery.service.api.openapi import description
from discovery.service.api.operations import table
from discovery.service.service import Service

PAGE = Path("docs/reference/openapi.json")


def page() -> str:
    """Return the file's content."""
    # The handlers are only named, never called: no service is needed to describe one.
    routes = table(Api(cast("Service", None)))
    return json.dumps(description(routes), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
