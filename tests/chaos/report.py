"""Makes pages of `docs/figures` from `tests/chaos/results`, the last runs we keep: `python -m tests.chaos.report`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos import cut_rounds_figures, prediction
from tests.chaos.joint import rounds as joint_rounds
from tests.chaos.joint import soak as joint_soak
from tests.chaos.service import rounds as service_rounds
from tests.chaos.service import soak as service_soak
from tests.chaos.sink import figures as sink_figures
from tests.support.results import PAGES, page_of

RESULTS = Path(__file__).parent / "results"
SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "cut_rounds": cut_rounds_figures.section,
    "joint": joint_rounds.section,
    "prediction": prediction.section,
    "service": service_rounds.section,
    "sink": sink_figures.section,
    "soak_joint": joint_soak.section,
    "soak_service": service_soak.section,
}


def made() -> dict[Path, str]:
    """Return the page of each kept result, by the file it belongs into."""
    return {
        PAGES / f"chaos-{name.replace('_', '-')}.md": page_of(RESULTS / f"{name}.json", section, "tests.chaos.report")
        for name, section in SECTIONS.items()
    }


if __name__ == "__main__":
    for page, text in made().items():
        page.write_text(text)
