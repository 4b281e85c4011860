"""A source's report with a value in every field."""

from dataclasses import fields

from discovery.spark.progress.reports import SourceReport

A_REPORT = SourceReport(
    **{
        **dict.fromkeys((f.name for f in fields(SourceReport)), 0),
        "metrics": {"minOffsetsBehindLatest": "0"}, "brokers": {"healthy": 1}, "state": "fresh", "group": "g",
        "certificates": (),
    }  # type: ignore[arg-type]
)  # fmt: skip
