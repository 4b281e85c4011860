"""The loop over a fake network: turned by hand, on its clock."""

from collections.abc import Callable
from typing import Any

from discovery.core.policy import Policy
from discovery.core.state import State
from discovery.loop.cycle import Cycle
from tests.support.fakes.calls import InlineCalls
from tests.support.fakes.cluster import FakeNetwork
from tests.support.fakes.gateway import FakeGatewayFactory, FakeVetter


def turned(network: FakeNetwork, state: State, **parts: Any) -> tuple[Cycle, Callable[[float], None]]:
    """Return a cycle, with these parts of its own, and what lets it run for so many seconds."""
    usual = {
        "policy": Policy(),
        "factory": FakeGatewayFactory(network),
        "vetter": FakeVetter(network),
        "calls": InlineCalls(),
        "clock": network.clock,
        "persistence": None,
        "show": lambda _: None,
    }
    cycle = Cycle(state=state, **{**usual, **parts})

    def run(seconds: float) -> None:
        until = network.clock.monotonic() + seconds
        while network.clock.monotonic() < until:
            network.clock.advance(max(cycle.turn(), 0.01))

    return cycle, run
