import threading
from pathlib import Path
from typing import Any

import pytest

from discovery.demo.recording import Recording
from discovery.demo.scenario import Scenario
from discovery.demo.settings import DemoSettings
from discovery.demo.stage import Stage


def test_given_an_interrupt_while_the_sampler_starts_when_a_demo_ends_then_the_sampler_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begin = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        begin(thread)
        if thread.name == "sampler":
            raise KeyboardInterrupt

    view: Any = None
    scenario = Scenario(Stage(DemoSettings(), tmp_path), Recording(), view)
    with monkeypatch.context() as signalled:
        signalled.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            scenario.run()
    assert "sampler" not in [thread.name for thread in threading.enumerate()]
