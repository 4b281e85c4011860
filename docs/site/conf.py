"""How Sphinx makes the site: `make docs`.

The source is the repository itself, so that a link means the same in a checkout, on a forge and on the site; what is
no page (code, rules, pictures) is copied beside the pages. `docs/index.md` is the only table of contents: each heading
of it becomes a part of the navigation, each page it links an entry.
"""

import re
from pathlib import PurePosixPath

from sphinx.application import Sphinx

project = "kafka-discovery"
author = "the authors of kafka-discovery"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "deploy/runbooks/*.md",
    "docs/*.md",
    "docs/*/*.md",
]
exclude_patterns = [".*", "build", "dist", "spark-warehouse", "tests", "**/__pycache__"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = [
    "myst.header",  # a changelog begins its sections where it likes
    "misc.highlighting_failure",  # shell that holds `…` for what the reader puts in
]
html_theme = "furo"
html_title = "kafka-discovery"
html_show_copyright = False
html_copy_source = False
templates_path = ["templates"]
html_additional_pages = {"index": "to_contents.html"}

_PART = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE = re.compile(r"\]\(([^)#]+\.md)\)")


def setup(app: Sphinx) -> None:
    """Let the contents grow out of the links of the first page."""
    app.connect("source-read", _add_contents)


def _add_contents(_app: Sphinx, name: str, source: list[str]) -> None:
    if name == root_doc:
        parts = _PART.split(source[0])[1:]
        source[0] += "".join(_contents(*part) for part in zip(parts[::2], parts[1::2], strict=True))
    elif name == "docs/decisions/README":
        source[0] += _toctree("Decisions", ["/docs/decisions/[0-9]*"], glob=True)
    elif name == "deploy/runbooks/README":
        source[0] += _toctree("Runbooks", ["/deploy/runbooks/Discovery*"], glob=True)


def _contents(part: str, text: str) -> str:
    here = PurePosixPath(root_doc).parent
    pages = [_plain(here / link).removesuffix(".md") for link in dict.fromkeys(_PAGE.findall(text))]
    return _toctree(part, [f"/{page}" for page in pages])


def _toctree(caption: str, entries: list[str], *, glob: bool = False) -> str:
    options = [":hidden:", f":caption: {caption}", *([":glob:"] if glob else [])]
    return "\n".join(["", "```{toctree}", *options, "", *entries, "```", ""])


def _plain(path: PurePosixPath) -> str:
    kept: list[str] = []
    for part in path.parts:
        kept = kept[:-1] if part == ".." else [*kept, part]
    return "/".join(kept)
