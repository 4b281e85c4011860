"""What stands in a page: fenced blocks with their markers, headings as anchors, links.

Python that begins with a comment that is a file's name is saved as that file, for commands below it.
A comment in the line before a fence says how the block below it is tested:

- nothing: on pages of shell alone `tests/integration/test_manual.py` runs it; `make test-docs` also does so on real
  brokers, and walks the pages with Python in them (`tests/spark/test_manual.py`);
- `<!-- long -->`: only `make test-docs` does;
- `<!-- exit 0 1 -->`: the commands of the block end with these codes, in order;
- `<!-- says "TEXT" -->`: TEXT stands in its output;
- `<!-- until "TEXT" -->`: it runs until it is stopped; TEXT is what it says when it is up;
  these may be combined: `<!-- long, exit 0 1, says "TEXT" -->`;
- `<!-- run by FILE -->`: this test, or script, runs it, and names the page;
- `<!-- not run: REASON -->`: why no test can.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[3]
SHELL, PYTHON = "sh", "python"
RUNNABLE = {"sh": SHELL, "bash": SHELL, "shell": SHELL, "console": SHELL, "python": PYTHON, "py": PYTHON}
"""Languages of blocks that must be run, or say why not."""
RUNBOOKS, WALKED_BY = Path("deploy/runbooks"), "tests/stack/test_alerts.py"
"""That test runs every `sh` block of these pages while the alert is firing."""
OPERATED_BY = "tests/stack/test_runbooks.py"
"""That one runs what their `console` blocks say of systemd."""
_COMMENT = re.compile(r"^\s*<!--\s*(.*?)\s*-->\s*$")
_PART = re.compile(r'(?P<long>long)|exit (?P<codes>\d+(?: \d+)*)|until "(?P<until>[^"]+)"|says "(?P<says>[^"]+)"')
_ELSEWHERE = re.compile(r"run by (?P<by>\S+)|not run: (?P<why>\S.{9,})")
_FILE = re.compile(r"# ([\w.-]+\.py)\n")
_BETWEEN = ", "


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """How a block is tested."""

    long: bool = False
    exit_codes: tuple[int, ...] = ()
    """Of each command; all 0 if empty."""
    until: str = ""
    says: str = ""
    """What must stand in its output."""
    run_by: str = ""
    reason: str = ""
    """Why it is not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: Path
    """From the root."""
    line: int
    language: str
    """As the fence says."""
    text: str
    marker: Marker

    @property
    def place(self) -> str:
        """Where to look: for messages and test names."""
        return f"{self.page.as_posix()}:{self.line}"

    @property
    def file(self) -> str:
        """The name under which Python is to be saved; empty where it is to be run."""
        named = _FILE.match(self.text) if RUNNABLE.get(self.language) == PYTHON else None
        return named[1] if named else ""

    @property
    def run_here(self) -> bool:
        """Tell whether the tests of the manual run it themselves."""
        return self.language in RUNNABLE and not self.marker.run_by and not self.marker.reason


class Link(NamedTuple):
    """Where a page points to."""

    page: Path
    target: str


class MarkerError(ValueError):
    """A comment before a fence that is no marker."""


def pages() -> tuple[Path, ...]:
    """Return every page a reader may open, from the root."""
    fixed = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
    found = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy/runbooks").glob("*.md")]
    return (*map(Path, fixed), *sorted(path.relative_to(ROOT) for path in found))


def blocks(page: Path, text: str | None = None) -> tuple[Block, ...]:
    """Return a page's fenced blocks in order; raises MarkerError for a comment before one that says nothing known."""
    source = (ROOT / page).read_text(encoding="utf-8") if text is None else text
    lines = source.splitlines()
    return tuple(
        Block(
            page=page,
            line=token.map[0] + 1,
            language=token.info.strip(),
            text=token.content,
            marker=_marker(lines[token.map[0] - 1] if token.map[0] else "", f"{page}:{token.map[0] + 1}")
            or _of_runbook(page, token.info),
        )
        for token in _tokens(source)
        if token.type == "fence" and token.map
    )


def _of_runbook(page: Path, language: str) -> Marker:
    if page.parent != RUNBOOKS:
        return Marker()
    return Marker(run_by=WALKED_BY if language == "sh" else OPERATED_BY)


def _marker(line: str, place: str) -> Marker | None:
    comment = _COMMENT.match(line)
    if comment is None:
        return None
    if found := _ELSEWHERE.fullmatch(comment[1]):
        return Marker(run_by=found["by"] or "", reason=found["why"] or "")
    parts = list(_PART.finditer(comment[1]))
    if _BETWEEN.join(part[0] for part in parts) != comment[1] or not parts:
        raise MarkerError(f"{place}: the comment before this block is no marker: {comment[1]!r}; see {__name__}")
    return Marker(
        long=any(part["long"] for part in parts),
        exit_codes=tuple(int(code) for part in parts for code in (part["codes"] or "").split()),
        until=next((part["until"] for part in parts if part["until"]), ""),
        says=next((part["says"] for part in parts if part["says"]), ""),
    )


def links(page: Path) -> tuple[Link, ...]:
    """Return what a page links or shows that is not on another host."""
    found = _targets(_tokens((ROOT / page).read_text(encoding="utf-8")))
    return tuple(Link(page, target) for target in found if not re.match(r"[a-z]+:", target))


def _targets(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        for name in ("href", "src"):
            if value := token.attrGet(name):
                yield str(value)
        yield from _targets(token.children or [])


def anchors(page: Path) -> frozenset[str]:
    """Return the names of a page's headings as forges and the site make them."""
    tokens = _tokens((ROOT / page).read_text(encoding="utf-8"))
    headings = [tokens[at + 1].children or [] for at, token in enumerate(tokens) if token.type == "heading_open"]
    return frozenset(_slug("".join(child.content for child in children)) for children in headings)


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _tokens(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)
