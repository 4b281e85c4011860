from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from discovery.config.flags import AsJson, Yes, together


@dataclass(frozen=True, kw_only=True)
class Asked:
    name: Annotated[str, typer.Argument()]
    number: Annotated[int, typer.Option("--number", min=1)] = 7
    as_json: AsJson = False


app = typer.Typer()
heard: list[tuple[Asked, bool]] = []


@app.command()
@together(Asked)
def first(asked: Asked) -> None:
    """Do the first thing."""
    heard.append((asked, False))


@app.command()
@together(Asked)
def second(asked: Asked, *, yes: Yes = False) -> None:
    """Do the second thing."""
    heard.append((asked, yes))


def test_given_shared_options_when_commands_take_them_then_they_come_as_one_value_beside_their_own() -> None:
    heard.clear()
    assert CliRunner().invoke(app, ["first", "a"]).exit_code == 0
    assert CliRunner().invoke(app, ["second", "b", "--number", "3", "--json", "--yes"]).exit_code == 0
    assert heard == [(Asked(name="a"), False), (Asked(name="b", number=3, as_json=True), True)]


def test_given_a_wrong_shared_option_when_given_then_the_command_refuses_it_by_name() -> None:
    refused = CliRunner().invoke(app, ["first", "a", "--number", "0"], env={"COLUMNS": "200"})
    assert refused.exit_code == 2
    assert "--number" in refused.output


def test_given_shared_options_when_help_is_asked_for_then_all_are_shown_under_the_command_s_own_words() -> None:
    shown = CliRunner().invoke(app, ["second", "--help"], env={"COLUMNS": "200"}).output
    assert all(text in shown for text in ("Do the second thing.", "--number", "--json", "--yes"))
    assert "--yes" not in CliRunner().invoke(app, ["first", "--help"], env={"COLUMNS": "200"}).output
