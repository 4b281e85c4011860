"""The description of the API as a file: `python -m docs.generate.openapi`."""

import json
from pathlib import Path

from discovery.service.api.handlers import Api
from discovery.service.api.openapi import description
from discovery.service.api.routes import routes_of

PAGE = Path("docs/reference/openapi.json")


def page() -> str:
    """Return the file's content."""
    return json.dumps(description(routes_of(Api)), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
