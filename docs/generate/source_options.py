"""The options of the source as a page, made from the code: `python -m docs.generate.source_options`."""

from pathlib import Path

from discovery.spark.source.options.parse import KNOWN, WITHOUT_EFFECT
from docs.generate.option_rows import Row, check_rows, tests_table

PAGE = Path(__file__).parents[2] / "docs/reference/options.md"

_BATCH = "spark/test_batch.py::test_given_bounds_when_read_at_once_then_both_sources_give_the_same_rows"
_STARTS = "spark/test_source_options.py::test_given_a_start_when_a_query_begins_then_both_sources_give_the_same_rows"
_MISTAKES = "unit/source/test_options.py::test_given_a_mistake_when_parsed_then_one_line_names_it"

_CUT = "spark/test_cut.py::test_given_a_batch_in_flight_when_its_sole_leaders_die_then_it_ends_without_them_and_they_resume_exactly"  # noqa: E501 - a name
_REPORTED = "unit/source/test_options.py::test_given_options_that_tune_asking_again_when_parsed_then_they_are_reported_to_have_no_effect"  # noqa: E501 - a name

ROWS = (
    Row(
        "subscribe",
        "",
        "Topics, separated by commas. Exactly one of the three is required.",
        ("spark/test_source.py::test_given_records_when_read_from_earliest_then_each_comes_once_with_all_columns",),
        "same",
    ),
    Row(
        "subscribePattern",
        "",
        "Regular expression that a part of the topic's name must match.",
        ("spark/test_source.py::test_given_a_pattern_when_a_topic_appears_then_it_is_read_too",),
        "same",
    ),
    Row(
        "assign",
        "",
        'Partitions as JSON, `{"topic":[0,1]}`; new ones are not discovered.',
        ("spark/test_source.py::test_given_assign_when_read_then_only_those_partitions_come",),
        "same",
    ),
    Row(
        "startingOffsets",
        "latest",
        "`earliest`, `latest`, `committed` (the offsets of the group `kafka.group.id`), or JSON per partition "
        "(-2 earliest, -1 latest). Only a new query looks at it; partitions found later start at earliest. "
        "A batch read begins at `earliest` by default.",
        (_STARTS, _BATCH, "spark/test_source.py::test_given_latest_when_the_query_runs_then_only_later_records_come"),
        "same",
    ),
    Row(
        "startingOffsetsByTimestamp",
        "none",
        'First record at or after a time: `{"topic":{"0":1767225600000}}`, in ms. Goes before `startingOffsets`.',
        (_STARTS, _BATCH),
        "same",
    ),
    Row(
        "startingTimestamp",
        "none",
        "The same with one time for all partitions. Goes before the two others.",
        (_STARTS, _BATCH),
        "same",
    ),
    Row(
        "startingOffsetsByTimestampStrategy",
        "error",
        "Where no record is at or after the time: `error` fails, `latest` begins with what comes next.",
        (_STARTS, "spark/test_source_options.py::test_given_no_record_at_a_time_when_that_is_an_error_then_both_fail"),
        "same",
    ),
    Row(
        "endingOffsets",
        "latest",
        "Batch reads only: `latest` or JSON per partition (-1 latest), exclusive.",
        (_BATCH,),
        "same",
    ),
    Row(
        "startingOffsetsFallback",
        "error",
        "With `startingOffsets=committed`, a partition without a committed offset, or with one that is not there any "
        "more: `error` names it, `earliest` or `latest` begins there.",
        (
            "unit/source/test_groups.py::test_given_a_fallback_when_offsets_cannot_be_read_then_only_those_partitions_take_it_and_are_named",
        ),
        "new",
    ),
    Row(
        "commitOffsets",
        "false",
        "Commit the query's offsets to the group `kafka.group.id` after Spark has recorded each batch. Never read "
        "back; a failure is counted and logged once and never fails the query.",
        (
            "spark/test_groups.py::test_given_a_group_when_a_query_starts_there_then_it_reads_on_and_the_group_follows_through_kills_and_failures",
        ),
        "new",
    ),
    Row(
        "endingOffsetsByTimestamp",
        "none",
        "Batch reads only: up to the first record at or after a time; where there is none, to the end.",
        (_BATCH,),
        "same",
    ),
    Row(
        "endingTimestamp",
        "none",
        "The same with one time for all partitions. Goes before the two others.",
        (_BATCH,),
        "same; but accepted and ignored in streams, refused here",
    ),
    Row(
        "maxOffsetsPerTrigger",
        "none",
        "Most records of one batch, shared out by backlog. Holds with Trigger.AvailableNow too, not with Trigger.Once.",
        (
            "spark/test_source.py::test_given_a_rate_limit_when_read_then_no_batch_exceeds_it",
            "spark/test_source_options.py::test_given_both_limits_when_read_to_the_end_then_nothing_is_left_behind",
        ),
        "same",
    ),
    Row(
        "minOffsetsPerTrigger",
        "none",
        "A batch waits until so many records are there, or `maxTriggerDelay` is over. The first batch never waits.",
        (
            "spark/test_source_options.py::test_given_a_least_batch_when_too_few_records_are_there_then_both_sources_wait",
            "spark/test_source_options.py::test_given_both_limits_when_read_to_the_end_then_nothing_is_left_behind",
        ),
        "same; but with Trigger.AvailableNow the rest below it is left unread there, read here",
    ),
    Row(
        "maxTriggerDelay",
        "15m",
        "How long `minOffsetsPerTrigger` may hold records back after the last batch; a number alone is milliseconds.",
        (
            "spark/test_source_options.py::test_given_a_least_batch_when_too_few_records_are_there_then_both_sources_wait",
        ),
        "same",
    ),
    Row(
        "minPartitions",
        "a task per 1 000 records",
        "Least tasks of a batch. By itself a batch has a task per 1 000 records, at most one per partition; ranges are "
        "split only where this is more than there are partitions.",
        (
            "property/test_source_plan.py::test_given_min_partitions_when_packed_then_only_too_few_partitions_make_pieces",
            "spark/test_source_options.py::test_given_task_limits_when_read_then_tasks_follow_them",
        ),
        "one task per partition",
    ),
    Row(
        "maxRecordsPerPartition",
        "none",
        "Most records of one task; larger ranges are split evenly. Spark's own batch reads ignore it.",
        (
            "property/test_source_plan.py::test_given_a_most_per_task_when_packed_then_no_task_exceeds_it",
            "spark/test_source_options.py::test_given_task_limits_when_read_then_tasks_follow_them",
        ),
        "same",
    ),
    Row(
        "failOnDataLoss",
        "true",
        "Fail when records were deleted before they were read, or a topic was recreated.",
        (
            "unit/source/test_losses.py::test_given_lost_records_when_a_fresh_answer_confirms_then_the_query_fails_with_the_remedy",
            "unit/source/test_losses.py::test_given_losses_are_accepted_when_planned_then_it_goes_on_behind_them",
            "spark/test_data_loss.py::test_given_records_that_aged_out_when_loss_must_fail_then_both_sources_fail",
            "spark/test_data_loss.py::test_given_records_that_aged_out_when_loss_is_accepted_then_both_sources_read_the_rest",
        ),
        "same; a recreated topic that grew is not noticed there",
    ),
    Row(
        "onTopicRecreated",
        "fail, or restart with failOnDataLoss=false",
        "A topic that was deleted and recreated, found by its id: `fail` names it, `restart` reads the new one from "
        "its beginning. With a `sourceId` also where that happened while the query was down. Before this "
        "project's sink `restart` wants `onMismatch=keep-committed`.",
        (
            "unit/source/test_losses.py::test_given_a_recreated_topic_when_the_policy_says_so_then_it_fails_or_restarts",
            "spark/test_faults_topics.py::test_given_a_topic_recreated_while_the_query_was_down_then_the_policy_decides",
        ),
        "new",
    ),
    Row(
        "bootstrapServersFile",
        "none",
        "A file on the driver's host with the addresses, by commas or lines; then `kafka.bootstrap.servers` may be "
        "left out. Looked at once a second: a changed list is used at once, a bad one is logged and the old one stays.",
        (
            "unit/feed/test_bootstrap_file.py::test_given_a_running_loop_when_the_file_changes_then_its_list_does",
            "integration/test_bootstrap_file.py::test_given_a_dead_list_when_the_file_names_living_brokers_then_they_are_found",
        ),
        "new",
    ),
    Row(
        "includeHeaders",
        "false",
        "Add the column `headers`.",
        (
            "spark/test_source.py::test_given_headers_when_asked_for_then_nulls_repeats_and_their_absence_are_kept",
            "spark/test_batch.py::test_given_headers_when_read_at_once_then_both_sources_give_the_same",
        ),
        "same",
    ),
    Row(
        "groupIdPrefix",
        "spark-kafka-discovery",
        "Begins the group id under which brokers see the readers. `kafka.group.id` goes first.",
        (
            "unit/source/test_reader.py::test_given_group_options_when_tasks_are_made_then_the_id_goes_before_the_prefix",
        ),
        "spark-kafka-source",
    ),
    Row(
        "onParked",
        "continue",
        "`continue` reads on without partitions that cannot be read, whose rows then come late; `hold` waits for them.",
        (
            "unit/source/test_planner.py::test_given_hold_when_a_partition_is_parked_then_nothing_is_planned",
            "spark/test_faults_brokers.py::test_given_leaders_dead_before_the_start_when_read_then_others_flow_and_the_parked_are_named_and_return",
        ),
        "new",
    ),
    Row(
        "parkAfter",
        "1s",
        "How long a leader may owe its end offsets before its partitions are parked, 100ms to 4s; until then they are "
        "planned to the last known end. One that was slow before is given four times what its last answer took. "
        "A service that is followed has its own limit, `leader_silence_seconds`.",
        (
            "unit/core/test_asking.py::test_given_another_limit_of_silence_when_a_leader_owes_an_answer_then_it_is_parked_after_that",
            "unit/source/test_options.py::test_given_a_limit_of_silence_or_none_when_a_loop_is_made_then_it_parks_after_that",
            _MISTAKES,
        ),
        "new",
    ),
    Row(
        "stallTimeout",
        "2m",
        "How long a task of a source without `sourceId`, or of a batch read, may wait for a leader before it fails and "
        "names broker and partition. With `sourceId` the batch ends without that leader instead; ranges that are "
        "never cut (those of a replayed batch, all of them with `onParked=hold`) wait as long as it takes.",
        (
            "unit/fetch/test_task.py::test_given_a_stalled_task_when_its_time_is_up_then_it_fails_and_names_broker_and_option",
        ),
        "new",
    ),
    Row(
        "startupTimeout",
        "10m",
        "How long a start waits for a living broker before it fails with a verdict per address. A bounded read waits "
        "as long, but 60 s at most, or twice `kafka.default.api.timeout.ms` if that is longer, for partitions that "
        "cannot be read.",
        (
            "spark/test_faults_addresses.py::test_given_no_saved_view_when_a_query_starts_on_a_dead_list_then_it_fails_in_time_with_a_verdict_per_address",
        ),
        "new",
    ),
    Row(
        "sourceId",
        "none",
        "Names this source; its saved view is found whatever the address list says. One living query may hold it.",
        (
            "spark/test_faults_addresses.py::test_given_a_running_query_when_another_takes_its_source_id_then_that_one_fails_and_says_so",
        ),
        "new",
    ),
    Row(
        "stateDir",
        "the user's state folder",
        "Where the saved view is kept. A mounted volume where drivers move between hosts.",
        (
            "spark/test_source_faults.py::test_given_an_unfinished_batch_when_restarted_on_a_list_of_dead_brokers_then_it_is_replayed_from_the_saved_view",
        ),
        "new",
    ),
    Row(
        "clusterId",
        "found by vote",
        "The right cluster; addresses that lead elsewhere are rejected.",
        ("spark/test_bad_input.py::test_given_another_clusters_id_when_started_then_the_query_says_both",),
        "new",
    ),
    Row(
        "cutAfter",
        "1s",
        "With `sourceId`: how long a batch waits for a silent leader before it ends without the rest; "
        "one whose host refuses connections is not waited for.",
        (_CUT, _MISTAKES),
        "new",
    ),
    Row(
        "cutLedger",
        "file",
        "Where cuts are recorded: `file` in `stateDir`, or `kafka`, where drivers move and share no volume.",
        (_CUT, _MISTAKES),
        "new",
    ),
    Row(
        "cutLedgerTopic",
        "__kafka_discovery_cuts",
        "The ledger's topic; made when it is not there: with five brokers or more 5 replicas and `min.insync.replicas` "
        "3 (any two may die), with three 3 and 2. One that is not compacted, or has 3 replicas and less in sync, is "
        "refused.",
        (_MISTAKES,),
        "new",
    ),
    Row(
        "coordinatorHost",
        "spark.driver.host",
        "Where workers reach the driver to ask how far a batch goes.",
        (_CUT, _MISTAKES),
        "new",
    ),
    Row(
        "coordinatorPort",
        "any free port",
        "The port for that; name it where a firewall stands between.",
        (_CUT, _MISTAKES),
        "new",
    ),
    Row(
        "discoveryUrl",
        "an embedded loop",
        "A `kafka-discovery serve` to follow, `http://127.0.0.1:9463`; an embedded loop takes over while it is silent.",
        (
            "spark/test_sidecar.py::test_given_a_query_that_follows_a_service_when_it_is_killed_restarted_and_frozen_then_every_record_comes_once",
        ),
        "new",
    ),
    Row(
        "discoveryCluster",
        "`default`",
        "The cluster's name at that service; `default` is its only one.",
        ("unit/source/test_options.py::test_given_a_service_when_parsed_then_its_address_cluster_and_token_are_kept",),
        "new",
    ),
    Row(
        "discoveryTokenFile",
        "no token",
        "File with the token that a service beyond loopback asks for; never sent over plain http to another host.",
        (
            "unit/source/test_options.py::test_given_a_service_when_parsed_then_its_address_cluster_and_token_are_kept",
            "unit/feed/test_sidecar_end.py::test_given_a_token_when_it_would_travel_readable_then_one_line_refuses_it",
        ),
        "new",
    ),
    Row(
        "discoveryCaFile",
        "SSL_CERT_FILE, SSL_CERT_DIR, public ones",
        "PEM file with the authorities of the service, the only ones then trusted; read on the driver.",
        (
            "unit/source/test_options.py::test_given_a_service_when_parsed_then_its_address_cluster_and_token_are_kept",
            "integration/test_service_tls.py::test_given_a_private_authority_when_a_reader_follows_then_the_service_leads_and_commands_answer",
        ),
        "new",
    ),
    Row(
        "discoveryCertificateFile",
        "none",
        "PEM file with a certificate chain to log in by, where the service wants one.",
        (
            "unit/source/test_options.py::test_given_a_service_when_parsed_then_its_address_cluster_and_token_are_kept",
            "integration/test_service_tls.py::test_given_a_private_authority_when_a_reader_follows_then_the_service_leads_and_commands_answer",
        ),
        "new",
    ),
    Row(
        "discoveryKeyFile",
        "the certificate's file",
        "PEM file with its key, without a password.",
        (
            "unit/source/test_options.py::test_given_a_service_when_parsed_then_its_address_cluster_and_token_are_kept",
            "integration/test_service_tls.py::test_given_a_private_authority_when_a_reader_follows_then_the_service_leads_and_commands_answer",
        ),
        "new",
    ),
    Row(
        "discoveryMaxAge",
        "10s",
        "How old what the service says may be; then an embedded loop asks, and leads while it sees more.",
        (
            "unit/source/test_options.py::test_given_a_service_when_parsed_then_its_address_cluster_and_token_are_kept",
            "integration/test_sidecar_feed.py::test_given_a_service_that_has_lost_kafka_when_followed_then_the_embedded_loop_serves_until_it_is_fresh_again",
        ),
        "new",
    ),
    Row(
        "fetchEngine",
        "auto",
        "How workers read: `native` (compiled), `python` (several times slower, equal to the byte), or `auto`: native "
        "where it works.",
        ("contract/test_fetch_engines.py::test_given_odd_records_when_both_read_then_every_byte_is_equal", _MISTAKES),
        "new",
    ),
    Row(
        "clientRackVariable",
        "",
        "An environment variable that holds each worker's rack (`client.rack`): a replica near it may answer; "
        "`kafka.client.rack` is one rack for all. A worker without it says so and reads from the leaders.",
        (
            "unit/fetch/test_consumers.py::test_given_a_variable_that_names_the_rack_when_built_then_it_is_this_workers_own",
        ),
        "new",
    ),
    Row(
        "fetchMaxMemory",
        "64m",
        "What one worker may hold of records that Spark has not taken yet, whatever the number of partitions; "
        "8m to 4g. `kafka.fetch.max.bytes` and the like take precedence. One answer of each leader comes on top, a "
        "sixteenth as it is sent: what it holds once decompressed, and a single larger record, cannot be bounded.",
        (_MISTAKES,),
        "new",
    ),
    *(
        Row(name, "", f"Accepted without effect: {reason}.", (_REPORTED,), "has effect")
        for name, reason in WITHOUT_EFFECT.items()
    ),
)


def page() -> str:
    """Return the page as Markdown.

    Raises:
        LookupError: the code knows an option that has no row, or the other way round.

    Runs: anywhere.
    """
    check_rows(ROWS, KNOWN)
    rows = [f"| `{r.name}` | {r.native} | {r.default} | {r.meaning} |" for r in ROWS]
    return "\n".join(
        [
            "# Options of the source",
            "",
            "Generated by `python -m docs.generate.source_options`; `kafka.bootstrap.servers` is required.",
            "Names may be written in any case, durations as Spark does (`10s`, `10m`).",
            "*Native* compares with Spark's own `kafka` source.",
            "",
            "| option | native | default here | meaning here |",
            "|---|---|---|---|",
            *rows,
            "",
            "Three triggers are supported: processing time, `availableNow` and `once`. `once` takes all there is in",
            "one batch, whatever the limits, after asking the brokers again; a partition that stays unreadable for a",
            "minute is left to the next run, and the log says so. `availableNow` fails instead, once everything else",
            "is read.",
            "",
            "A batch read asks the brokers once per `load()`, at the first action, and keeps to these offsets: two",
            "actions on one frame see the same records (Spark's own source asks again for each). It is complete or it",
            "fails: a partition that stays unreadable for a minute ends it with its name and the reason.",
            "",
            "## Client options",
            "",
            "`kafka.*` takes the names of the JVM client or of librdkafka. Names that librdkafka does not have are",
            "translated (`kafka.sasl.jaas.config`; PEM, PKCS12 and JKS stores), accepted without effect where they",
            "mean nothing here, or refused with the name of the replacement (interceptors, deserializers,",
            "`kafka.auto.offset.reset`, `kafka.enable.auto.commit`): [the fate of each](client-options.md), and",
            "[how to log in](../how-to/security.md).",
            "",
            *tests_table(ROWS),
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
