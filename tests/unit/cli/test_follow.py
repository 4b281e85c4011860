"""`bootstrap` and `status` print what is known of all addresses, not of the first."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from discovery.cli import follow
from discovery.cli.app import app
from discovery.core.model import BrokerAddress, Verdict
from discovery.feed.base import AddressReport
from tests.support.fakes.feed import view_of


def test_given_an_address_that_was_not_asked_yet_when_the_list_is_wanted_then_its_answer_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two, dead = (BrokerAddress("b", port) for port in (1, 2, 3))
    known = {one: AddressReport(verdict=Verdict.ALIVE), dead: AddressReport(verdict=Verdict.REFUSED)}
    early = replace(view_of({}), bootstrap=(one,), addresses={**known, two: AddressReport(verdict=None)})
    whole = {**known, two: AddressReport(verdict=Verdict.ALIVE)}
    views = iter([early, replace(early, bootstrap=(one, two), addresses=whole)])
    monkeypatch.setattr(follow, "_of_loop", lambda _: views)
    assert CliRunner().invoke(app, ["bootstrap", "--bootstrap", "b:1,b:3"]).output == "b:1,b:2\n"
