"""The commands of ours that a page names, with the options it gives them."""

import re
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.core import TyperCommand, TyperGroup

from discovery.cli.app import app
from tests.support.manual.markdown import ROOT

_CODE = re.compile(r"^ *```.*?\n(?P<fenced>.*?)^ *```|`(?P<inline>[^`]+)`", re.MULTILINE | re.DOTALL)
_OURS = re.compile(r"(?<!install )(?<!-c )(?<!-u )kafka-discovery (?P<given>[a-z][^|;&)\n]*)")
_OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")


def wrong_commands(page: Path, text: str | None = None) -> Iterator[str]:
    """Yield what a page says of our command line that is not so: a command or an option that does not exist."""
    for code in _CODE.finditer((ROOT / page).read_text(encoding="utf-8") if text is None else text):
        code_text = code["fenced"] if code["fenced"] is not None else code["inline"].replace("\n", " ")
        for ours in _OURS.finditer(code_text.replace("\\\n", " ")):
            given = ours["given"].partition(" # ")[0].partition(" -- ")[0]
            if complaint := _complaint(given):
                yield f"{page}: kafka-discovery {given.strip()}: {complaint}"


def _complaint(given: str) -> str:
    command = typer.main.get_command(app)
    for word in given.split():
        if not isinstance(command, TyperGroup):
            break
        if word not in command.commands:
            return f"there is no command {word}"
        command = command.commands[word]
    assert isinstance(command, TyperGroup | TyperCommand)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [option for option in _OPTION.findall(given) if option not in {*known, "--help"}]
    return f"there is no {', '.join(unknown)}" if unknown else ""
