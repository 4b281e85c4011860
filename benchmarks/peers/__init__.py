"""The peer matrix: one cluster, one load, one fault, and one system at a time."""

from collections.abc import Mapping
from typing import Any

from benchmarks.peers.report import chart as chart_of
from benchmarks.peers.report import full_tables, reported_cases

_ABOUT = """\
## Beside its peers

`make bench-peers` plays every case for every system on the same real brokers under the same load (600 records/s,
acks=all, six partitions), one system at a time; one cell: `python -m benchmarks.peers --case killed --system flink`.
Cells are single runs, kept one by one; *load* is the machine's load average before and after: brokers, load and
system share two cores, so differences below a third of a second, or a tenth, mean nothing.
[What it means](../explanation/peers.md).

- Every system has a parallelism of 2 and writes each row it delivers to a plain file; a row counts when it is there.
  Spark does so in `foreachBatch`, every 200 ms: after the batch's job. Flink does so row by row. Neither sink is
  transactional, so rows that are *repeated* after a restart are those an idempotent or transactional sink would have
  to drop.
- Flink: 2.2.1, connector 5.0.0, checkpoints every second, discovery every second, its own restart strategy. Spark: a
  query that dies is started again a second later. Both may restart as often as they like.
- *usual*: with nothing wrong, the longest time without a row in the 5 s before, or, where the case is a restart, from
  the same system's first start to its first row: what a busy machine costs. *Gap*: the longest time without a new row
  from any partition that can be read. *Slowest partition*: the same for the one that was worst off. `>`: not over when
  watching ended. *Read all again*: from the moment the fault was over
  (or had happened, where nothing ends it) until every readable partition had brought a record written half a second
  later or more, for some were under way; for starts, from the definition of the query or job, so neither pays for its
  JVM. *The load's own*: both gaps between the writer's acknowledgements: what Kafka made everybody wait.
- *lost*: skipped, later records of the same partition came. *unread*: not read 20 s after the brokers were well.
  *foreign*: another cluster's records, taken for this one's.
- ★: a peer does better there than our source by itself; none for a peer that lost rows or read foreign ones."""


def section(result: Mapping[str, Any]) -> str:
    """Tell the kept cells; see `benchmarks.report`."""
    return f"{_ABOUT}\n\n{full_tables(result)}"


def charts(result: Mapping[str, Any]) -> dict[str, str]:
    """Return a chart for each case, by file name."""
    return {f"peers-{name}.svg": chart_of(name, result["cells"][name]) for name in reported_cases(result)}
