"""The alerts of sources fire and resolve: real Prometheus, Alertmanager and metrics, reports that the test changes."""

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from deploy.generate import tried_rows
from deploy.source.alerts import SOURCE_ALERTS
from discovery.spark.progress.metrics import SourceCollector
from tests.stack.monitoring import EXTERNAL, monitoring
from tests.support.helpers import eventually
from tests.support.results import commit
from tests.support.source_report import A_REPORT

pytestmark = [pytest.mark.timeout(600)]
_DEADLINE_SECONDS = 120.0
WORSE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "SourceBatchStalled": ("a batch that does not end", {"batch_since": 1.0}),
    "SourceTasksWaiting": ("two partitions that tasks wait for", {"waiting_partitions": 2}),
    "SourceCut": ("a range that was cut", {"cuts": 1}),
    "SourceLedgerFailing": ("a ledger without its brokers", {"ledger_trouble": "no answer in time"}),
    "SourceRecordsLate": ("records of a partition that came back", {"late_records": 90}),
    "SourceRowsDropped": ("rows behind a watermark", {}),
    "SourceFallback": ("a service that is silent", {"fallback": "the service does not answer"}),
    "SourceEngineFallback": ("a worker without numba", {"engine_fallback": "numba is not installed"}),
}
"""By alert: what a report says, in words and in its fields; of dropped rows Spark's progress tells."""
_CHANGES = {name: value for _, fields in WORSE.values() for name, value in fields.items()}
_WELL = {"batch_since": None, "waiting_partitions": 0, "fallback": "", "engine_fallback": "", "ledger_trouble": ""}


class Driver:
    """Serves the metrics of a driver's sources as `SourceProgress` does."""

    def __init__(self) -> None:
        self.dropped_rows = 0
        self.report = replace(A_REPORT, source="dau", **_WELL)  # type: ignore[arg-type]

    def say(self, **changes: Any) -> None:
        self.report = replace(self.report, **changes)

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        registry = CollectorRegistry()
        registry.register(SourceCollector(lambda: [("daily", self.report)], lambda: {"daily": self.dropped_rows}))
        server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def test_given_reports_of_sources_when_they_get_worse_and_well_again_then_alerts_are_delivered_and_resolved(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    driver, rows = Driver(), []
    with driver.served() as target, monitoring(target, tmp_path) as heard:
        cuts = "kafka_discovery_source_cuts_total"
        eventually(lambda: heard.federated(cuts), 30, "a first scrape")
        assert [one["cluster"] for one in heard.federated(cuts)] == [EXTERNAL]
        began = time.monotonic()
        driver.say(**_CHANGES)
        driver.dropped_rows = 2
        for alert in WORSE:
            eventually(partial(heard.fired, alert, began), _DEADLINE_SECONDS, alert)
        ended = time.monotonic()
        driver.say(**_WELL)
        for alert, (fault, _) in WORSE.items():
            eventually(partial(heard.is_over, alert), _DEADLINE_SECONDS, f"the end of {alert}")
            fired = (heard.fired(alert, began) or began) - began
            rows.append((alert, fault, round(fired), round(max(0.0, max(heard.resolved[alert].values()) - ended))))
    assert WORSE.keys() == {alert.name for alert in SOURCE_ALERTS}
    assert {labels["cluster"] for labels in heard.labels.values()} == {EXTERNAL}
    said = [text for name in WORSE for text in heard.annotations[name].values()]
    assert [text for text in said if re.search(r"no value|error|\{\{", text, re.IGNORECASE)] == []
    names = ("alert", "fault", "fired_after_seconds", "resolved_after_seconds")
    seen = {"commit": commit(), "cores": os.cpu_count(), "alerts": [dict(zip(names, row, strict=True)) for row in rows]}
    target_file = Path("build/source_alerts.json")
    target_file.parent.mkdir(parents=True, exist_ok=True)
    target_file.write_text(json.dumps(seen, indent=2) + "\n", encoding="utf-8")
    with capfd.disabled():
        print("\n\n" + tried_rows(seen))  # noqa: T201 - what `make test-alerts` is asked for
