"""The reference page of all metrics: `python -m docs.generate.metrics` writes docs/reference/metrics.md."""

from pathlib import Path

from discovery.config.metric_families import CLUSTER_LABEL, PREFIX, Family, row
from discovery.endpoint.metrics import FAMILIES as ENDPOINT_FAMILIES
from discovery.service.metrics import FAMILIES, PROCESS
from discovery.spark.progress.metrics import SourceCollector

PAGE = Path("docs/reference/metrics.md")
_TABLE = "| name | kind | labels | meaning |\n|---|---|---|---|\n"
_HEAD = """# Metrics

<!-- Written by `python -m docs.generate.metrics`; do not edit. -->

## Of the service

At `/metrics` of the probe listener, from memory: a scrape asks no broker. Timestamps instead of ages, so that a dead
service does not look fresh. Series of brokers and topics that are gone go with them. Of the process itself, here and
from `endpoint` and a ready job with `--metrics`, there are `process_open_fds`, `process_max_fds`,
`process_resident_memory_bytes`, `process_cpu_seconds_total` and `process_start_time_seconds`.

"""
_SOURCES = """
## Of the sources of a Spark driver

Where the driver [exports them](../how-to/progress.md): `source` is the `sourceId`, else the subscription, `query` the
query's name, else its id.

"""


def page() -> str:
    """Return the page.

    Runs: anywhere (pure).
    """
    followed = (*FAMILIES.values(), *ENDPOINT_FAMILIES.values())
    rows = [row(family, (CLUSTER_LABEL, *family.labels)) for family in followed]
    rows += [row(family, family.labels) for family in PROCESS.values()]
    sources = [row(family, family.labels) for family in _of_sources()]
    return "".join((_HEAD, _TABLE, *(f"{one}\n" for one in rows), _SOURCES, _TABLE, *(f"{one}\n" for one in sources)))


def _of_sources() -> list[Family]:
    return [
        Family(one.name.removeprefix(PREFIX), one.type, vars(one)["_labelnames"], one.documentation)
        for one in SourceCollector(lambda: (), dict).collect()
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
