"""The documentation holds together: links lead somewhere, all pages can be found, each snippet has its test."""

import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

from discovery.core.diff import EventKind
from discovery.core.errors import ConfigError
from discovery.spark.sink.options import parse_options as parse_sink_options
from discovery.spark.source.options.parse import parse_options
from tests.support.manual.commands import wrong_commands
from tests.support.manual.markdown import (
    PYTHON,
    ROOT,
    RUNBOOKS,
    RUNNABLE,
    Link,
    MarkerError,
    anchors,
    blocks,
    links,
    pages,
)
from tests.support.manual.options import given_options

CONTENTS = Path("docs/index.md")
LISTED_BY_A_PATTERN = ("docs/decisions/0", "docs/decisions/1", "deploy/runbooks/Discovery")
"""`docs/site/conf.py` finds these by their names."""
PAGES = pytest.mark.parametrize("page", pages(), ids=str)


def target_of(link: Link) -> tuple[Path, str]:
    """Return the file a link leads to, from the root, and the anchor in it."""
    path, _, anchor = unquote(link.target).partition("#")
    file = (ROOT / link.page.parent / path).resolve() if path else ROOT / link.page
    return (file.relative_to(ROOT) if file.is_relative_to(ROOT) else file), anchor


def broken(link: Link) -> str:
    """Say what is wrong with a link; nothing if it is sound."""
    file, anchor = target_of(link)
    if not (ROOT / file).is_file():
        return f"{link.page} links {link.target}, which is no file"
    if anchor and file.suffix == ".md" and anchor not in anchors(file):
        return f"{link.page} links {link.target}, but {file} has no such heading: {', '.join(sorted(anchors(file)))}"
    return ""


@PAGES
def test_given_a_page_when_its_links_are_followed_then_each_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert [complaint for link in links(page) if (complaint := broken(link))] == []


def test_given_a_link_to_nothing_when_followed_then_it_is_found() -> None:
    assert "no file" in broken(Link(CONTENTS, "how-to/nowhere.md"))
    assert "no file" in broken(Link(CONTENTS, "decisions")), "a folder is no page of the site"
    assert "no such heading" in broken(Link(CONTENTS, "how-to/service.md#nowhere"))
    assert broken(Link(CONTENTS, "how-to/service.md#beyond-loopback")) == ""


def test_given_all_pages_when_the_contents_are_read_then_every_page_is_in_them() -> None:
    listed = {target_of(link)[0] for link in links(CONTENTS)} | {CONTENTS}
    missing = {page.as_posix() for page in pages() if page not in listed}
    missing = {page for page in missing if not page.startswith(LISTED_BY_A_PATTERN)}
    assert missing == set(), f"name these in {CONTENTS}, below one of its headings"


@PAGES
def test_given_a_page_when_its_snippets_are_read_then_each_is_run_or_says_why_not(page: Path) -> None:
    for block in blocks(page):
        by = block.marker.run_by
        if by:
            assert (ROOT / by).is_file(), f"{block.place}: there is no {by}"
            name = RUNBOOKS.as_posix() if page.parent == RUNBOOKS else page.name
            assert name in (ROOT / by).read_text(encoding="utf-8"), f"{block.place}: {by} does not name this page"


@PAGES
def test_given_a_page_when_its_snippets_are_read_then_python_and_toml_are_well_formed(page: Path) -> None:
    for block in blocks(page):
        if RUNNABLE.get(block.language) == PYTHON:
            compile(block.text, block.place, "exec")
        elif block.language == "toml":
            assert tomllib.loads(block.text), block.place


def test_given_the_python_of_all_pages_when_its_options_are_read_then_source_and_sink_take_every_one() -> None:
    read = written = 0
    for block in (block for page in pages() for block in blocks(page) if RUNNABLE.get(block.language) == PYTHON):
        for given in given_options(block.text):
            try:
                parse_options(given.options) if given.reads else parse_sink_options(given.options)
            except ConfigError as error:
                pytest.fail(f"{block.place}: {error}")
            read, written = read + given.reads, written + (not given.reads)
    assert (read >= 7, written >= 4) == (True, True), (read, written)


def test_given_an_option_that_nobody_knows_when_a_snippet_is_read_then_it_is_found() -> None:
    text = 'spark.readStream.format("kafka-discovery").option("subscribe", "t").option("sourceID2", "x").load()'
    (given,) = given_options(text)
    assert given == (True, {"subscribe": "t", "sourceID2": "x"})
    with pytest.raises(ConfigError, match="sourceID2"):
        parse_options({**given.options, "kafka.bootstrap.servers": "b1:9092"})


def test_given_a_comment_that_is_no_marker_when_it_stands_before_a_block_then_it_is_reported() -> None:
    text = "# A page\n\n<!-- not run -->\n```sh\ntrue\n```\n"
    with pytest.raises(MarkerError, match=r"page.md:4: the comment before this block is no marker: 'not run'"):
        blocks(Path("page.md"), text)
    (block,) = blocks(Path("page.md"), text.replace("not run", "not run: needs a moon"))
    assert (block.run_here, block.marker.reason) == (False, "needs a moon")
    (block,) = blocks(Path("page.md"), text.replace("not run", 'long, exit 0 1, says "a, b"'))
    assert block.run_here
    assert (block.marker.long, block.marker.exit_codes, block.marker.says) == (True, (0, 1), "a, b")


@PAGES
def test_given_a_page_when_its_commands_are_looked_up_then_each_exists_and_takes_the_options(page: Path) -> None:
    assert list(wrong_commands(page)) == []


def test_given_a_command_or_an_option_that_is_not_there_when_a_page_names_it_then_it_is_found() -> None:
    text = "`kafka-discovery docter --json`\n\n```sh\nkafka-discovery state list \\\n  --statedir x -- y --z\n```\n"
    command, option = wrong_commands(Path("page.md"), text)
    assert ("no command docter" in command, "no --statedir" in option, "--z" in option) == (True, True, False)


def test_given_a_runbook_that_looks_for_events_when_their_kinds_are_looked_up_then_each_exists() -> None:
    runbooks = "".join((ROOT / page).read_text() for page in pages() if page.parent == RUNBOOKS)
    named = set(re.findall(r'"([a-z_]+)"', "".join(re.findall(r'\["kind"\] in \((.*?)\)', runbooks))))
    assert named
    assert named <= {kind.value for kind in EventKind}


def test_given_the_targets_of_make_when_a_page_names_one_then_it_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {(page, name) for page in pages() for name in re.findall(r"`make ([a-z-]+)", (ROOT / page).read_text())}
    assert len(named) > 20
    assert {(str(page), name) for page, name in named if name not in targets} == set()


def test_given_the_first_page_when_its_words_are_counted_then_there_are_at_most_900() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 900


def test_given_the_targets_of_make_when_the_table_for_contributors_is_read_then_each_is_in_it() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)) - {"help"}
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Targets")[2]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([a-z-]+)`", "".join(first_cells))) == targets
