"""The options of the sink as a reference page, made from the code: `python -m docs.generate.sink_options`."""

from pathlib import Path

from discovery.spark.sink.options import KNOWN, PRODUCER_OPTIONS
from docs.generate.option_rows import Row, check_rows, tests_table

PAGE = Path(__file__).parents[2] / "docs/reference/sink-options.md"

_WRITER = "integration/test_sink_writer.py::test_given_"
_MISTAKES = "unit/sink/test_options.py::test_given_a_wrong_option_when_parsed_then_one_line_names_it"
_LEAST = "unit/sink/test_options.py::test_given_the_least_options_when_parsed_then_the_defaults_hold"
_REPLAY = "spark/test_sink.py::test_given_lanes_when_a_confirmed_batch_is_replayed_then_every_record_is_there_once"
_UNFIT = f"{_WRITER}options_that_do_not_fit_the_cluster_when_checked_then_one_line_says_so"
_LARGE = f"{_WRITER}a_record_too_large_when_written_then_it_fails_or_becomes_a_dead_letter_of_the_same_transaction"

_SERVICE = f"{_WRITER}a_service_and_only_dead_addresses_when_written_then_its_brokers_are_used"

ROWS = (
    Row("topic", "the column `topic`", "Where records go; goes before the column. It must exist.", (_REPLAY, _UNFIT)),
    Row(
        "sinkId",
        "",
        "Required for streams: a name that no other query writes under. It begins the transactional ids "
        "(`SINKID-LANE`) and names the markers' group (`__spark_sink.SINKID`). Each output of a `foreachBatch` has its "
        "own. For batch writes `batch`.",
        (
            f"{_WRITER}a_used_sink_when_another_writes_then_it_is_refused_before_any_output",
            _MISTAKES,
        ),
    ),
    Row(
        "lanes",
        "1",
        "Tasks that write, each in one transaction per batch; 1 to 128. The frame must come from "
        "`with_lanes(df, by=…, lanes=…)`. May be changed between two complete batches.",
        (_REPLAY, f"{_WRITER}a_complete_batch_when_the_number_of_lanes_changes_then_it_goes_on"),
    ),
    Row(
        "onMismatch",
        "fail",
        "A replayed batch has other records than the committed one: `fail`, `keep-committed` (logged, and counted in "
        "`sink status`), or `rewrite` (then both are in the topic).",
        (f"{_WRITER}other_records_at_a_replay_when_judged_by_policy_then_it_fails_keeps_or_rewrites",),
    ),
    Row(
        "writeId",
        "",
        "Required for batch writes, and only for them: a second write of this name writes nothing, and one with other "
        "records or another topic is refused.",
        ("spark/test_sink.py::test_given_a_batch_write_when_repeated_under_its_name_then_its_records_are_there_once",),
    ),
    Row(
        "onBadRecord",
        "fail",
        "A record that can never be written (larger than the topic's `max.message.bytes`, without a topic; with "
        "`dead-letter` also for a partition that is not there, or a topic that is not and that the record names): "
        "`fail`, or `dead-letter`.",
        (_LARGE,),
    ),
    Row(
        "deadLetterTopic",
        "",
        "With `onBadRecord=dead-letter`: gets the first 10 000 bytes of key and value, fewer where it takes no "
        "more, and the reason with the value's true size and SHA-256 in the header `kafka-discovery-error`, in the "
        "same transaction.",
        (_LARGE, _UNFIT),
    ),
    Row(
        "transactionTimeout",
        "2m",
        "After so long brokers abort a transaction that nobody ends; 10s to 15m, more than the slowest task takes, "
        "not above the brokers' `transaction.max.timeout.ms`.",
        (
            f"{_WRITER}a_timeout_above_the_brokers_cap_when_checked_then_one_line_says_so",
            _MISTAKES,
        ),
    ),
    Row("startupTimeout", "10m", "How long a start waits for a living broker before it fails.", (_LEAST, _MISTAKES)),
    Row(
        "markerTopic",
        "__spark_sink_ledger",
        "The topic whose committed offsets, and beyond their retention records, are the markers; compacted. "
        "Made when it is not there: "
        "32 partitions (more with more lanes), 3 replicas. Name another one per cluster-wide naming rules.",
        (_LEAST, _UNFIT),
    ),
    Row("discoveryUrl", "an embedded loop", "A `kafka-discovery serve` that vets the brokers.", (_SERVICE, _MISTAKES)),
    Row("discoveryCluster", "`default`", "The cluster's name at that service.", (_SERVICE, _LEAST)),
    Row("discoveryTokenFile", "no token", "File with the token that a service beyond loopback asks for.", (_LEAST,)),
    Row("discoveryCaFile", "as in the source", "PEM file with the authorities of the service.", (_LEAST,)),
    Row("discoveryCertificateFile", "none", "PEM file with a certificate to log in to the service by.", (_LEAST,)),
    Row("discoveryKeyFile", "the certificate's file", "PEM file with its key.", (_LEAST,)),
    Row("clusterId", "found by vote", "The right cluster; addresses that lead elsewhere are rejected.", (_LEAST,)),
    Row(
        "stateDir",
        "the user's state folder",
        "Where the driver keeps the saved view of the cluster, and for some minutes what it checked.",
        (f"{_WRITER}a_batch_when_written_and_replayed_then_its_records_are_there_once",),
    ),
)


def page() -> str:
    """Return the page as Markdown.

    Raises:
        LookupError: the code knows an option that has no row, or the other way round.

    Runs: anywhere.
    """
    check_rows(ROWS, KNOWN)
    return "\n".join(
        [
            "# Options of the sink",
            "",
            "Generated by `python -m docs.generate.sink_options`; `kafka.bootstrap.servers` is required.",
            "Names may be written in any case. Columns: `value` (binary or string) is required; `key`, `topic`,",
            "`partition` and `headers` as in Spark's own Kafka sink; others are ignored.",
            "",
            "| option | default | meaning |",
            "|---|---|---|",
            *[f"| `{r.name}` | {r.default} | {r.meaning} |" for r in ROWS],
            "",
            "## Client options",
            "",
            "`kafka.*` for the connection is the same as [for the source](client-options.md). Of a producer's:",
            "",
            "| option | becomes | |",
            "|---|---|---|",
            *[
                f"| `kafka.{name}` | {f'`{property_name}`' if property_name else 'nothing'} | {what} |"
                for name, (property_name, what) in PRODUCER_OPTIONS.items()
            ],
            "",
            "Refused: `kafka.transactional.id` (it is made of `sinkId` and lane), `kafka.transaction.timeout.ms` (set",
            "`transactionTimeout`), serializers (cast in the DataFrame), `asyncProgressTrackingEnabled=true`.",
            "",
            *tests_table(ROWS),
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
