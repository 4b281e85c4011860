"""The options of the source as a reference page, made from the code: `python -m spark_jobs.source.reference`."""

from dataclasses import dataclass

from spark_jobs.source.options import KNOWN, NOT_YET


@dataclass(frozen=True, slots=True)
class Row:
    """One option as a user reads it."""

    name: str
    default: str
    native: str
    meaning: str


ROWS = (
    Row("subscribe", "", "same", "Topics, separated by commas. Exactly one of the three is required."),
    Row("subscribePattern", "", "same", "Regular expression that a part of the topic's name must match."),
    Row("assign", "", "same", 'Partitions as JSON, `{"topic":[0,1]}`; new ones are not discovered.'),
    Row(
        "startingOffsets",
        "latest",
        "same",
        "`earliest`, `latest`, `committed` (where the group `kafka.group.id` stands), or JSON per partition "
        "(-2 earliest, -1 latest). Only a new query looks at it; partitions found later start at earliest. "
        "A batch read begins at `earliest` by default.",
    ),
    Row(
        "startingOffsetsByTimestamp",
        "none",
        "same",
        'First record at or after a time: `{"topic":{"0":1767225600000}}`, in ms. Goes before `startingOffsets`.',
    ),
    Row("startingTimestamp", "none", "same", "The same with one time for all partitions. Goes before the two others."),
    Row(
        "startingOffsetsByTimestampStrategy",
        "error",
        "same",
        "Where no record is at or after the time: `error` fails, `latest` begins with what comes next.",
    ),
    Row(
        "startingOffsetsFallback",
        "error",
        "new",
        "With `startingOffsets=committed`, a partition without a committed offset, or with one that is not there any "
        "more: `error` names it, `earliest` or `latest` begins there.",
    ),
    Row(
        "commitOffsets",
        "false",
        "new",
        "Tell the group `kafka.group.id` where the query stands, after Spark has recorded each batch. Never read back; "
        "a failure is counted and logged once and never fails the query.",
    ),
    Row("endingOffsets", "latest", "same", "Batch reads only: `latest` or JSON per partition (-1 latest), exclusive."),
    Row(
        "endingOffsetsByTimestamp",
        "none",
        "same",
        "Batch reads only: up to the first record at or after a time; where there is none, to the end.",
    ),
    Row("endingTimestamp", "none", "same", "The same with one time for all partitions. Goes before the two others."),
    Row("maxOffsetsPerTrigger", "none", "same", "Most records of one batch, shared out by backlog."),
    Row("minPartitions", "one task per leader", "differs", "Least tasks of a batch; more than leaders splits ranges."),
    Row(
        "failOnDataLoss",
        "true",
        "same",
        "Fail when records were deleted before they were read, or a topic was recreated.",
    ),
    Row("includeHeaders", "false", "same", "Add the column `headers`."),
    Row("groupIdPrefix", "spark-kafka-discovery", "same", "Begins the group id under which brokers see the readers."),
    Row(
        "onParked",
        "continue",
        "new",
        "`continue` reads on without partitions that cannot be read, whose rows then come late; `hold` waits for them.",
    ),
    Row(
        "startupTimeout",
        "10m",
        "new",
        "How long a start waits for a living broker before it fails with a verdict per address.",
    ),
    Row(
        "sourceId",
        "none",
        "new",
        "Names this source; its saved view is found whatever the address list says. One living query may hold it.",
    ),
    Row(
        "stateDir",
        "the user's state folder",
        "new",
        "Where the saved view is kept. A mounted volume where drivers move between hosts.",
    ),
    Row(
        "cutAfter",
        "1s",
        "new",
        "With `sourceId`: how long a batch waits for a partition without a leader before it ends without the rest.",
    ),
    Row(
        "cutLedger",
        "file",
        "new",
        "Where cuts are recorded: `file` in `stateDir`, or `kafka`, where drivers move and share no volume.",
    ),
    Row("cutLedgerTopic", "__kafka_discovery_cuts", "new", "The ledger's topic; made when it is not there."),
    Row("coordinatorHost", "spark.driver.host", "new", "Where workers reach the driver to ask how far a batch goes."),
    Row("coordinatorPort", "any free port", "new", "The port for that; name it where a firewall stands between."),
    Row(
        "discoveryUrl",
        "an own loop",
        "new",
        "A `kafka-discovery serve` to follow, `http://127.0.0.1:9463`; an own loop takes over while it is silent.",
    ),
    Row("discoveryCluster", "`default`", "new", "The cluster's name at that service; `default` is its only one."),
    Row("discoveryTokenFile", "no token", "new", "File with the token that a service beyond loopback asks for."),
    Row("clusterId", "found by vote", "new", "The right cluster; addresses that lead elsewhere are rejected."),
    Row(
        "fetchEngine",
        "auto",
        "new",
        "How workers read: `native` (compiled), `python` (several times slower, equal to the byte), or `auto`: native "
        "where it works.",
    ),
    Row(
        "fetchMaxMemory",
        "64m",
        "new",
        "What one worker may hold of records that Spark has not taken yet, whatever the number of partitions; "
        "8m to 4g. `kafka.fetch.max.bytes` and the like take precedence.",
    ),
)


def page() -> str:
    """Return the page as Markdown.

    Raises:
        LookupError: the code knows an option that has no row, or the other way round.

    Runs: anywhere.
    """
    odd = {row.name for row in ROWS} ^ set(KNOWN)
    if odd:
        raise LookupError(f"options and their rows differ: {', '.join(sorted(odd))}")
    rows = [f"| `{r.name}` | {r.default} | {r.native} | {r.meaning} |" for r in ROWS]
    refused = [f"| `{name}` | {remedy} |" for name, remedy in sorted(NOT_YET.items())]
    return "\n".join(
        [
            "# Options of the source",
            "",
            "Generated by `python -m spark_jobs.source.reference`; `kafka.bootstrap.servers` is required. Names may be",
            "written in any case, durations as Spark does (`10s`, `10m`). *Native* compares with Spark's own",
            "`kafka` source.",
            "",
            "| option | default | native | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            "## Client options",
            "",
            "`kafka.*` takes the names of the JVM client or of librdkafka. Names that librdkafka does not have are",
            "translated (`kafka.sasl.jaas.config`; PEM, PKCS12 and JKS stores), accepted without effect where they",
            "mean nothing here, or refused with the name of the replacement (interceptors, deserializers,",
            "`kafka.auto.offset.reset`, `kafka.enable.auto.commit`): [the fate of each](client-options.md), and",
            "[how to log in](../how-to/security.md).",
            "",
            "## Refused for now",
            "",
            "| option | instead |",
            "|---|---|",
            *refused,
            "",
        ]
    )


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - its purpose
