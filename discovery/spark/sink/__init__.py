"""Exactly-once writes to Kafka. Queries call `with_lanes` and `exactly_once`.

They are imported at their first use only: workers unpickle writers from this package and need neither.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discovery.spark.sink.foreach import exactly_once
    from discovery.spark.sink.public import with_lanes

__all__ = ["exactly_once", "with_lanes"]


def __getattr__(name: str) -> Any:
    if name == "with_lanes":
        from discovery.spark.sink.public import with_lanes  # noqa: PLC0415 - see the module

        return with_lanes
    if name == "exactly_once":
        from discovery.spark.sink.foreach import exactly_once  # noqa: PLC0415 - see the module

        return exactly_once
    raise AttributeError(name)
