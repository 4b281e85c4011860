# ruff: noqa: E501 - a page, with the line breaks it has
"""What the simulation found, in words: a section of the benchmarks' page, and a page of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.chart import Line, lines
from benchmarks.scale.client import cores

ROOM = 0.7
"""How much of a core a process may use, if its answers are not to be late."""


def section(result: Mapping[str, Any]) -> str:
    """Return what `benchmarks/README.md` says."""
    return f"""## Ten thousand brokers

`make simulate-scale` (5 minutes, no broker): {sentence(result)}. The loop's own code, in simulated time; [what it
means](../docs/explanation/scale.md).

{table(result)}

![requests to one broker, an outage of all](results/scale.svg)
"""


def sentence(result: Mapping[str, Any]) -> str:
    """Say what was simulated."""
    size = result["size"]
    queries, partitions = size["clusters"] * size["topics"], size["clusters"] * size["topics"] * size["partitions"]
    return (
        f"{size['clusters']} clusters of {size['brokers']} brokers, {partitions:,} partitions, {queries:,} queries "
        f"on a topic each; {result['played_clusters']} clusters are played and multiplied"
    )


def table(result: Mapping[str, Any]) -> str:
    """Return the cases at rest beside those of the outage."""
    heads = (
        "who looks", "loops", "requests a second to one broker", "cores, the loop", "cores, client library",
        "outage: during", "highest second after", "all known again",
    )  # fmt: skip
    told = [f"| {' | '.join(heads)} |", f"{'|---' * len(heads)}|"]
    for rest, out in zip(result["at_rest"], result["outage"], strict=True):
        asked = sum(rest["requests_a_second_to_one_broker"].values())
        known = out["all_offsets_known_after_seconds"]
        told.append(
            f"| {rest['way']} | {rest['loops']:,} | {asked:.1f} | {rest['cores_of_our_code']:.1f} "
            f"| {library(result, rest):.1f} | {out['during']:.1f} | {out['peak_after_the_return']:.1f} "
            f"| {'not in time' if known is None else f'{known:.1f} s'} |"
        )
    return "\n".join(told)


def library(result: Mapping[str, Any], rest: Mapping[str, Any]) -> float:
    """Return the cores that the client library takes for a case at rest."""
    return cores(result["costs_microseconds"], rest["work_a_second"])


def total(result: Mapping[str, Any], case: int) -> float:
    """Return the cores that all loops of a case at rest take."""
    rest = result["at_rest"][case]
    return float(rest["cores_of_our_code"]) + library(result, rest)


def of_one(result: Mapping[str, Any], case: int) -> float:
    """Return the cores that one loop of a case at rest takes."""
    return total(result, case) / int(result["at_rest"][case]["loops"])


def processes(result: Mapping[str, Any], case: int) -> int:
    """Return how many services a case needs, whole clusters in each; 0 where one cluster is too much for one."""
    fit = _clusters(result, case)
    return -(-result["size"]["clusters"] // fit) if fit else 0


def kinds(result: Mapping[str, Any]) -> str:
    """Return what the requests to one broker are."""
    names = sorted({kind for rest in result["at_rest"] for kind in rest["requests_a_second_to_one_broker"]})
    rows = [f"| who looks | {' | '.join(names)} |", f"|---{'|---' * len(names)}|"]
    for rest in result["at_rest"]:
        asked = rest["requests_a_second_to_one_broker"]
        rows.append(f"| {rest['way']} | {' | '.join(f'{asked.get(name, 0):.2f}' for name in names)} |")
    return "\n".join(rows)


def chart(result: Mapping[str, Any]) -> str:
    """Draw the outages."""
    rows: Sequence[Mapping[str, Any]] = result["outage"]
    drawn = [Line(label=row["way"], values=tuple(row["requests_to_one_broker_by_second"])) for row in rows]
    shaded = (5, 5 + int(rows[0]["outage_seconds"]))
    return lines(
        "All brokers silent, then all back at one instant", drawn, shaded=shaded, unit="requests a second to one broker"
    )


def page(result: Mapping[str, Any]) -> str:
    """Return `docs/explanation/scale.md`."""
    _, _, followed, _, alone = result["at_rest"]
    out, out_alone = result["outage"][2], result["outage"][4]
    size, costs, small = result["size"], result["costs_microseconds"], result["like_the_measured_one"]
    told = ", ".join(f"{name} {result['environment'][name]}" for name in ("python", "cores"))
    explained = (float(small["cores_of_our_code"]) + library(result, small)) * 100
    return f"""# Ten thousand brokers

<!-- Written by `python -m benchmarks.report`; do not edit. -->

Nobody has such a fleet to try things on. So `make simulate-scale` runs the loop's own code (`discovery.loop`, `discovery.core`) on
a simulated clock and simulated brokers, counts every request, and measures the processor time that this code takes for real:
{sentence(result)}.

{table(result)}

![requests to one broker while all brokers are silent, and after](../../benchmarks/results/scale.svg)

What one broker is asked, a second:

{kinds(result)}

*Connect* is a knock at the door, *metadata* includes the proof that an address belongs to its cluster, *offsets* are requests for ends
and starts, at most 500 partitions each. *The client library* was measured with real calls to mock brokers in another process
({costs["end"]:.1f} us for an offset, {costs["offsets request"]:.0f} us for a request, {costs["partition described"]:.1f} us for a partition described,
{costs["knock"]:.0f} us for a knock, {costs["proof"] / 1000:.1f} ms for a proof) and multiplied. What is left out is not little: for three brokers and
1,000 partitions with one reader of all of them this account comes to {explained:.0f} % of a core, and a real service took {result["measured_percent"]:g} %
when it was [last measured](../../benchmarks/README.md#the-service): threads, and HTTP to the reader. So take the figures for brokers as they
are, and those for processors as a lower bound.

## What it shows

- **For brokers the service is what counts.** With a loop in every query each broker is asked {_asked(alone):.0f} times a second, with a
  service {_asked(followed):.1f} times, however many queries follow: {_asked(alone) / _asked(followed):.0f} times less. Nearly all of it are end
  offsets, five times a second from every leader.
- **For processors it counts as well, in sum, and then one core becomes the limit.** Loops in queries take {total(result, 4):.0f} cores,
  {of_one(result, 4) * 100:.0f} % of one in each of {alone["loops"]:,} drivers, where nobody notices. Services take {total(result, 2):.0f}, or
  {total(result, 1):.0f} where one topic of five is followed; but {of_one(result, 2):.2f} of a core for one followed cluster is spent in one process,
  and a Python process has one core for its own code.
- **There is no storm.** While all brokers are silent each is asked {out["during"]:.1f} times a second instead of {out["before"]:.1f}: dead ones
  rest, with jitter, up to a minute, and only where a leader of followed partitions listens, or hardly anybody lives, one knock a second
  goes on. When all return at one instant, the highest second is {out["peak_after_the_return"] / out["before"]:.1f} times what it was before the
  outage ({out_alone["peak_after_the_return"] / out_alone["before"]:.1f} times with a loop in every query), and after
  {out["all_offsets_known_after_seconds"]:.1f} s everything is known again.

## The limits, and what lies beyond them

| limit | where | beyond it |
|---|---|---|
| one core of a process | {_clusters(result, 2)} followed cluster(s) of {size["brokers"]} brokers and {size["topics"] * size["partitions"]:,} partitions in one service; {_clusters(result, 0)} that nobody follows | several services, each with some clusters: they share nothing, so it takes {processes(result, 2)} for this fleet |
| the same, and offsets may be a second old | `offsets_interval_seconds = 1`, `topics_interval_seconds = 1` in `[loop]`: {_clusters(result, 3)} such clusters in one service | {processes(result, 3)} services for this fleet; new records are planned up to a second later |
| one cluster larger than a core | about {ROOM / of_one(result, 2) * size["topics"] * size["partitions"]:,.0f} followed partitions | leave `discoveryUrl` out for the busiest queries: each then follows its own topics alone |
| memory | 2.8 MB for 1 000 partitions over a base of 70 MB ([measured](../../benchmarks/README.md#the-service)) | the same: shards by cluster |
| watchers of one service | 10 000, [measured](../../benchmarks/README.md#the-service) | not reached: this fleet has {size["clusters"] * size["topics"]:,} queries over all services |

**Sharding by cluster** needs nothing new: a service is given the clusters it follows (`[clusters.NAME]`,
[how](../how-to/service.md#several-clusters)), a query the URL of the service that has its cluster, and every other service can be
restarted, moved or lost without it. Two services that follow the same cluster do no harm either: each asks for itself.

## What it leaves out

The network, TLS, and the service's HTTP side; brokers that are slow and not silent; leaders that move (all of a cluster are silent,
or none). A single interpreter is assumed to have its core for itself. Played on one machine ({told}).
"""


def _asked(rest: Mapping[str, Any]) -> float:
    return float(sum(rest["requests_a_second_to_one_broker"].values()))


def _clusters(result: Mapping[str, Any], case: int) -> int:
    """Return how many clusters fit into one process; 0 where not even one does."""
    return int(ROOM / of_one(result, case))
