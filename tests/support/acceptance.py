"""The acceptance cases of source and discovery with tests: `python -m tests.support.acceptance` makes the page."""

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reference/acceptance.md"


@dataclass(frozen=True, slots=True)
class Case:
    """One case: shown by tests, or of no concern, then `note` says why."""

    name: str
    text: str
    tests: tuple[str, ...] = ()
    note: str = ""


def no(name: str, text: str, why: str) -> Case:
    """A case that does not concern a source."""
    return Case(name, text, note=why)


_DECIDE = "unit/core/test_decide.py::test_given_"
_PARTS = "unit/core/test_core_parts.py::test_given_"
_PLAN = "unit/source/test_planner.py::test_given_"
_LOSS = "unit/source/test_losses.py::test_given_"
_BOUNDED = "unit/source/test_bounded.py::test_given_"
_SOURCE = "spark/test_source.py::test_given_"
_TOPICS = "spark/test_faults_topics.py::test_given_"
_BROKERS = "spark/test_faults_brokers.py::test_given_"
_ADDRESSES = "spark/test_faults_addresses.py::test_given_"
_STARTS = "spark/test_source_faults.py::test_given_"
_LOOP = "integration/test_loop_faults.py::test_given_"
_GROUPS = "unit/source/test_groups.py::test_given_"
_CALLS = "unit/loop/test_calls.py::test_given_"

_CYCLE = "unit/loop/test_cycle.py::test_given_"
_FIRST = "unit/store/test_first_versions.py::test_given_"

_ADDED = _TOPICS + "a_load_when_partitions_are_added_twice_then_the_same_query_reads_them_from_their_first_record"
_PATTERN = _SOURCE + "a_pattern_when_a_topic_appears_then_it_is_read_too"
_RECREATED = _TOPICS + "a_recreated_topic_when_loss_must_fail_then_the_query_ends_with_a_line_that_says_recreated"
_RESTART = _SOURCE + "a_restart_from_the_checkpoint_when_read_then_nothing_is_lost_or_repeated"
_DEAD_LIST = _ADDRESSES + "a_saved_view_when_a_query_restarts_on_a_list_of_dead_brokers_then_it_goes_on_and_is_exact"
_NO_BROKER = _STARTS + "no_living_broker_when_started_then_it_fails_in_time_with_a_verdict_per_address"
_ALL_DEAD = _BROKERS + "all_brokers_dead_when_they_return_then_the_same_query_goes_on_and_is_exact"
_PARKED = _BROKERS + "leaders_dead_before_the_start_when_read_then_others_flow_and_the_parked_are_named_and_return"
_KILLED = _BROKERS + "a_load_when_two_of_six_brokers_are_killed_then_the_query_goes_on_and_is_exact"
_RETURNS = _LOSS + "a_gone_topic_is_accepted_when_it_returns_then_it_resumes_where_it_stood"
_HANGS = _CALLS + "calls_that_hang_when_overdue_then_they_are_named_abandoned_counted_and_capped"
_SINGLE = _CALLS + "a_running_call_when_started_again_then_it_is_single_flight"
_PACE = _CYCLE + "a_running_loop_when_a_minute_passes_then_it_asks_once_per_interval"
_ONE = "one source reads one cluster; run one query per cluster"
_SPARK = "Spark plans its tasks again for every batch; nothing stays assigned"

CASES = (
    no("A01", "discovery off: one run, no timer", "discovery is never off here; `assign` follows no new partition"),
    Case(
        "A02",
        "discovery on: one periodic task",
        ("unit/loop/test_supervisor.py::test_given_a_loop_started_twice_when_it_turns_then_one_thread_turns_it", _PACE),
    ),
    Case(
        "A03",
        "unchanged metadata changes nothing; a new topic is read within a cycle",
        (
            _DECIDE + "an_unchanged_answer_when_taken_then_nothing_is_published_and_the_generation_stays",
            _PLAN + "nothing_new_when_asked_a_thousand_times_then_one_plan_is_made_and_start_comes_back",
            _PATTERN,
        ),
    ),
    Case(
        "A04",
        "later partitions start at earliest while the first keep latest",
        (_SOURCE + "a_query_at_latest_when_partitions_are_added_then_theirs_come_from_the_first",),
    ),
    Case(
        "A05",
        "what changed is exactly what was added and removed",
        (
            _DECIDE + "more_partitions_when_reported_then_they_are_published_and_announced",
            "property/test_core_properties.py::test_given_any_answers_in_any_order_when_decided_then_nothing_good_is_lost",
        ),
    ),
    Case(
        "A06",
        "the default interval is the documented one, an explicit one is kept",
        (_PACE,),
    ),
    Case(
        "A07",
        "list, pattern and explicit partitions; an unknown one is a named error",
        (
            _PATTERN,
            _SOURCE + "assign_when_read_then_only_those_partitions_come",
            "spark/test_bad_input.py::test_given_an_unknown_topic_or_partition_when_a_query_starts_then_it_is_named_in_time",
        ),
    ),
    Case(
        "A08",
        "a bounded read ends",
        (
            _SOURCE + "a_rate_limit_when_read_then_no_batch_exceeds_it",
            _BOUNDED + "a_bounded_run_when_more_is_written_then_it_ends_exactly_at_its_target",
        ),
    ),
    Case(
        "A09",
        "client options reach the discovery client",
        (
            "unit/kafka/test_vet_parts.py::test_given_user_options_then_what_discovery_insists_on_wins",
            "spark/test_security.py::test_given_the_options_of_a_jvm_client_when_read_then_the_rows_are_those_of_the_native_source",
        ),
    ),
    Case(
        "A10",
        "a failure at a cold start without saved view is reported",
        (
            _NO_BROKER,
            _LOOP + "no_saved_view_when_started_on_a_dead_list_then_it_stays_cold_and_heals_when_the_broker_returns",
        ),
    ),
    Case(
        "A11",
        "failures are served from the last view; one success resets",
        (
            _DECIDE + "failures_in_a_row_when_one_answer_comes_then_the_view_stayed_and_counts_restart",
            _DECIDE + "three_failures_in_a_row_when_counted_then_the_client_is_rebuilt_once",
            _ALL_DEAD,
        ),
    ),
    Case(
        "A12",
        "a failure during a restart: the saved view is used, flagged as such",
        (_DEAD_LIST, _LOOP + "a_saved_view_when_started_on_a_dead_list_then_ends_are_known_as_soon_as_on_a_living_one"),
    ),
    no("A13", "a timeout from an inactive cluster is swallowed", _ONE),
    Case(
        "A14",
        "a timeout degrades and does not fail the job",
        (
            _LOOP + "all_brokers_frozen_when_asked_then_the_view_answers_from_memory_and_heals_after_the_thaw",
            _BROKERS + "a_load_when_two_brokers_freeze_and_thaw_then_the_others_flow_and_all_is_exact",
        ),
    ),
    Case("A15", "an address that does not exist: an error, no hang", (_NO_BROKER,)),
    Case(
        "A16",
        "a refresh goes on while another call is blocked",
        (
            _CALLS + "one_slow_call_when_gathered_then_the_others_are_returned_at_the_deadline",
            _LOOP
            + "sole_leaders_dead_when_followed_then_theirs_are_parked_with_a_reason_and_the_others_keep_their_pace",
        ),
    ),
    Case("A17", "a refresh has a worker of its own", (_SINGLE,)),
    Case(
        "A18",
        "closing is bounded and unblocks",
        (
            _HANGS,
            "integration/test_sidecar_process.py::test_given_waiters_when_asked_to_end_then_all_are_answered_and_it_exits_0_in_time",
        ),
    ),
    no(
        "A19",
        "a client that is not thread-safe is never called twice at once",
        "librdkafka's clients are thread-safe; one cycle runs at a time",
    ),
    Case(
        "A20",
        "an error of a call that ends late is not lost",
        (_CALLS + "work_that_raises_when_it_ends_then_it_is_heard_and_its_key_is_free",),
    ),
    Case(
        "A21",
        "no broker at all: bounded, with a named limit",
        (
            _NO_BROKER,
            _ADDRESSES
            + "no_saved_view_when_a_query_starts_on_a_dead_list_then_it_fails_in_time_with_a_verdict_per_address",
        ),
    ),
    Case(
        "A22",
        "kill leaders under load: exact results",
        (
            _KILLED,
            "spark/test_cut.py::test_given_every_kind_of_sink_when_leaders_workers_and_the_driver_die_then_each_row_is_once_in_each",
        ),
    ),
    no("A23", "a refresh adds a cluster", _ONE),
    no("A24", "migration from one cluster to another", _ONE),
    Case(
        "A25",
        "a topic removed and added again is read again",
        (
            _RETURNS,
            _TOPICS
            + "a_recreated_topic_when_loss_is_accepted_then_the_same_query_reads_the_new_one_from_its_first_record",
        ),
    ),
    Case(
        "A26",
        "no stale partitions after a removal",
        (
            _PLAN + "a_deleted_topic_in_the_feed_when_a_new_query_starts_then_it_is_left_out",
            _PLAN + "hold_and_a_deleted_topic_when_planned_then_the_others_go_on",
        ),
    ),
    Case(
        "A27",
        "offsets of a removed topic are kept",
        (
            _RETURNS,
            _DECIDE + "a_topic_that_vanishes_when_confirmed_then_it_becomes_a_tombstone_and_returns_with_what_it_had",
        ),
    ),
    Case(
        "A28",
        "removed, restarted, added again: it resumes where it stood",
        (
            _LOSS + "a_gone_topic_and_a_restart_when_it_returns_then_it_resumes_at_its_offset",
            "property/test_source_plan.py::test_given_any_cluster_when_planned_then_no_partition_is_dropped_or_goes_back",
        ),
    ),
    Case(
        "A29",
        "our own options never reach a Kafka client",
        ("unit/source/test_options.py::test_given_every_option_of_ours_when_clients_are_built_then_none_reaches_one",),
    ),
    Case(
        "A30",
        "readers get new metadata before old clients are closed",
        (
            _CYCLE + "an_old_client_that_hangs_in_close_when_replaced_then_news_come_at_once",
            "spark/test_source_fetch.py::test_given_brokers_on_new_addresses_when_the_cached_consumer_knows_nobody_then_the_tasks_list_is_used",
        ),
    ),
    no("A31", "an update never assigns an assigned split again", _SPARK),
    no("A32", "the last partition removed marks the reader idle", _SPARK),
    no(
        "A33",
        "watermark holders of removed splits are released",
        "watermarks are Spark's; a source has no part in them",
    ),
    no("A34", "one topic changes on one cluster, the other keeps its offsets", _ONE),
    no("A35", "the gauge of active splits goes to 0", _SPARK),
    Case("A36", "a pattern picks up new topics", (_PATTERN,)),
    Case(
        "A37",
        "snapshots before, between and after phases",
        (
            _SOURCE + "a_checkpoint_of_each_phase_when_restarted_then_it_holds_what_was_found",
            "spark/test_groups.py::test_given_a_new_query_at_latest_when_it_is_stopped_before_its_first_record_then_the_next_run_skips_nothing",
        ),
    ),
    Case("A38", "what was read before a restart is not read again, the rest is", (_RESTART,)),
    no("A39", "splits of a failed worker keep their offsets", _SPARK),
    Case(
        "A40",
        "every old state version is read, another is named",
        (
            _FIRST + "a_view_of_the_first_version_when_read_then_it_is_complete",
            _FIRST + "topic_ids_of_the_first_version_when_read_then_each_partition_has_one",
            _FIRST + "a_ledger_of_the_first_version_when_opened_then_its_cuts_are_in_force",
            _FIRST + "markers_of_the_first_version_when_read_then_they_are_complete",
            _FIRST + "a_later_version_when_read_then_the_message_says_so",
            "unit/store/test_store.py::test_given_another_schema_when_read_then_the_message_says_which",
            "contract/test_ledger.py::test_given_a_ledger_of_another_version_when_opened_then_it_is_an_error",
            _SOURCE + "the_native_sources_checkpoint_when_taken_over_and_handed_back_then_every_record_comes_once",
        ),
    ),
    Case(
        "A41",
        "unresolved offsets are resolved late, and only those",
        (
            _PLAN + "a_leaderless_partition_when_starting_at_latest_then_its_history_is_never_read",
            _PLAN + "a_leaderless_partition_when_starting_at_earliest_then_it_is_left_out_and_begins_there_later",
        ),
    ),
    no("A42", "a restart converges to the latest set of clusters", _ONE),
    Case(
        "A43",
        "a restart takes fresh credentials and a fresh bootstrap list",
        (
            "spark/test_security.py::test_given_a_changed_password_when_the_query_restarts_with_it_then_it_goes_on",
            _ADDRESSES
            + "no_saved_view_when_a_query_starts_on_a_dead_list_then_it_fails_in_time_with_a_verdict_per_address",
        ),
    ),
    no("A44", "the recovery gate of assignments", _SPARK),
    no("A45", "readers registered before or after discovery", _SPARK),
    no("A46", "balance across clusters", _ONE),
    no("A47", "pause and resume of an unassigned partition", _SPARK),
    Case(
        "A48",
        "empty topic, empty partition, more workers than partitions",
        (
            _PLAN + "a_new_empty_partition_when_planned_then_no_batch_is_made_for_it",
            _BOUNDED + "a_bounded_run_when_a_partition_is_empty_and_new_then_it_does_not_wait_for_it",
            "spark/test_batch.py::test_given_bounds_when_read_at_once_then_both_sources_give_the_same_rows",
        ),
    ),
    Case(
        "A49",
        "a failed commit never fails the stream and is counted",
        (_GROUPS + "a_group_that_refuses_when_committing_then_it_is_counted_said_once_and_over_when_it_is_over",),
    ),
    Case(
        "A50",
        "no committed offset: a named error, or earliest, or latest",
        (
            _GROUPS + "offsets_that_cannot_be_read_when_there_is_no_fallback_then_each_is_named_with_the_remedy",
            _GROUPS + "a_fallback_when_offsets_cannot_be_read_then_only_those_partitions_take_it_and_are_named",
        ),
    ),
    Case(
        "A51",
        "a start by time on an empty partition falls back to its end",
        (
            _PLAN + "no_record_at_a_time_when_starting_then_the_strategy_decides",
            "spark/test_source_options.py::test_given_a_start_when_a_query_begins_then_both_sources_give_the_same_rows",
        ),
    ),
    Case(
        "A52",
        "the rack is evaluated on the worker",
        (
            "unit/fetch/test_consumers.py::test_given_a_variable_that_names_the_rack_when_built_then_it_is_this_workers_own",
        ),
    ),
    Case(
        "A53",
        "a broker stops in mid-write: the error shows, nothing is lost in silence",
        (
            "integration/test_sink_writer.py::test_given_a_broker_that_stops_in_mid_write_when_it_returns_then_only_the_retry_is_there",
            "integration/test_sink_chaos.py::test_given_seeds_of_faults_when_played_then_nothing_is_lost_repeated_or_torn",
        ),
    ),
    Case(
        "A54",
        "a retriable commit error is retried",
        (
            "unit/kafka/test_transactions.py::test_given_an_error_that_passes_when_tried_again_then_the_answer_counts",
            "integration/test_sink_replies.py::test_given_a_lost_reply_to_the_commit_when_the_client_asks_again_then_the_batch_is_there_once",
        ),
    ),
    Case(
        "A55",
        "a scale-in before the first checkpoint aborts orphans",
        (
            "integration/test_sink_writer.py::test_given_an_attempt_that_stopped_before_its_commit_when_retried_then_only_the_retry_is_visible",
            "integration/test_sink_writer.py::test_given_a_complete_batch_when_the_number_of_lanes_changes_then_it_goes_on",
        ),
    ),
    Case(
        "A56",
        "a topic recreated under a running stream is found by its id",
        (
            _RECREATED,
            "spark/test_faults_topics.py::test_given_a_topic_recreated_while_the_query_was_down_then_the_policy_decides",
            "unit/source/test_losses.py::test_given_lost_records_when_a_fresh_answer_confirms_then_the_query_fails_with_the_remedy",
        ),
    ),
    Case(
        "B01",
        "most of the list dead, in any way: discovery succeeds in its budget",
        (
            _LOOP + "eleven_of_twelve_addresses_black_holed_when_started_cold_then_all_ends_are_known_at_once",
            _LOOP + "everything_a_list_may_wrongly_hold_when_followed_then_each_is_named_and_the_view_stays_fresh",
            _ADDRESSES + "eleven_of_twelve_addresses_black_holed_when_a_query_starts_cold_then_rows_come_at_once",
            "spark/test_batch.py::test_given_mostly_dead_addresses_when_read_at_once_then_the_rows_come",
        ),
    ),
    Case(
        "B02",
        "all listed dead, learned ones alive: it goes on",
        (
            _DEAD_LIST,
            _DECIDE + "a_saved_view_when_the_listed_are_dead_and_a_learned_one_lives_then_the_client_is_built_from_it",
        ),
    ),
    Case(
        "B03",
        "all dead: the stream stays up on what it knows",
        (_ALL_DEAD, _DECIDE + "all_dead_when_time_passes_then_the_state_is_failsafe_and_the_view_is_kept"),
    ),
    Case(
        "B04",
        "a new list at run time is taken without a restart",
        (
            _ADDRESSES + "a_running_query_when_the_file_of_its_list_changes_then_it_goes_on",
            "unit/feed/test_bootstrap_file.py::test_given_a_running_loop_when_the_file_changes_then_its_list_does",
            "integration/test_bootstrap_file.py::test_given_a_dead_list_when_the_file_names_living_brokers_then_they_are_found",
        ),
    ),
    Case(
        "B05",
        "an address that belongs to another cluster now is rejected",
        (
            _ADDRESSES + "a_broker_whose_address_goes_to_another_cluster_when_read_then_its_records_never_come",
            _LOOP + "a_brokers_address_taken_by_another_cluster_when_followed_then_no_foreign_offset_is_ever_shown",
        ),
    ),
    Case(
        "B06",
        "scale-in by a third under load: exact, no restart (12 to 8; here 6 to 4, drained first, then removed; in the"
        " demo a third is killed)",
        (
            _BROKERS + "a_load_when_a_third_of_the_brokers_is_drained_and_removed_then_it_is_exact",
            "integration/test_demo.py::test_given_the_fast_demo_when_played_then_nothing_is_lost_or_doubled_and_all_is_measured",
        ),
    ),
    Case(
        "B07",
        "a leaderless partition is parked, the others go on",
        (_PARKED, _PLAN + "a_parked_partition_when_planned_then_the_others_go_on_and_it_is_named_once"),
    ),
    Case("B08", "a metadata call that hangs is bounded, and the next is not queued behind it", (_HANGS, _SINGLE)),
    Case(
        "B09",
        "partial and empty answers delete nothing",
        (
            _DECIDE + "a_view_when_an_empty_answer_comes_then_the_view_stays_and_it_counts_as_a_failure",
            _DECIDE + "four_of_twelve_missing_when_reported_once_then_they_are_held_back_until_two_others_confirm",
            _DECIDE + "fewer_partitions_when_the_topic_id_is_the_same_or_unknown_then_they_are_kept_without_a_leader",
        ),
    ),
    Case(
        "B10",
        "one cluster black-holed, the other undisturbed",
        (
            "integration/test_sidecar_clusters.py::test_given_a_black_holed_cluster_when_it_is_asked_all_the_time_then_the_other_one_answers_as_without_it",
            "unit/service/test_metrics.py::test_given_one_black_holed_cluster_of_two_when_served_then_the_other_is_fresh_and_has_its_own_numbers",
        ),
    ),
    Case(
        "B11",
        "an interval shorter than the latency: nothing twice, no queue",
        (
            _CYCLE + "answers_slower_than_the_interval_when_asked_then_one_at_a_time_and_taken_once",
            _SINGLE,
        ),
    ),
    Case(
        "B12",
        "a crash between discovery and first reading: each partition starts once, at the first answer",
        (
            "spark/test_groups.py::test_given_a_new_query_when_it_dies_before_its_first_row_then_each_partition_starts_once",
            _PLAN + "a_replay_with_a_new_partition_of_a_dead_leader_when_planned_then_the_task_finds_its_beginning",
        ),
    ),
    Case(
        "B13",
        "a hundred streams recover together: jittered, bounded requests",
        (
            _PARTS + "a_hundred_loops_when_brokers_return_then_all_find_them_at_once_and_ask_the_dead_apart",
            "property/test_core_properties.py::test_given_any_failures_when_quarantined_then_it_is_bounded_and_grows_with_them",
            _PARTS + "an_old_proof_when_asked_who_is_due_then_it_must_be_given_again_and_not_by_all_at_once",
        ),
    ),
    Case(
        "B14",
        "an error shows its root cause and the host",
        (
            _NO_BROKER,
            _ADDRESSES + "wrong_credentials_when_a_query_starts_then_it_fails_in_time_and_the_password_shows_nowhere",
        ),
    ),
    Case(
        "B15",
        "age, failures and dead hosts are shown",
        (
            "unit/service/test_metrics.py::test_given_dead_brokers_when_scraped_then_it_is_answered_and_the_view_ages",
            "unit/source/test_status.py::test_given_a_query_that_stands_when_written_then_lag_parked_partitions_and_discovery_are_reported",
        ),
    ),
    Case(
        "B16",
        "a deleted topic is not created again by our own client",
        (
            _TOPICS + "brokers_that_create_topics_when_one_is_deleted_then_no_query_recreates_it",
            "contract/test_gateway.py::test_given_no_such_topic_when_asked_then_it_is_unknown_and_stays_uncreated",
            "unit/kafka/test_vet_parts.py::test_given_the_probe_topic_then_kafka_can_never_create_it",
        ),
    ),
    Case(
        "B17",
        "a parked partition is reported once, not every cycle",
        (_PLAN + "a_parked_partition_when_planned_then_the_others_go_on_and_it_is_named_once",),
    ),
    Case(
        "B18",
        "a start at latest or at a group without records, then a restart: nothing skipped",
        (
            "spark/test_groups.py::test_given_a_new_query_at_latest_when_it_is_stopped_before_its_first_record_then_the_next_run_skips_nothing",
            _GROUPS + "a_restart_before_the_first_batch_when_the_group_moved_on_then_the_replay_is_as_planned",
        ),
    ),
    Case(
        "B19",
        "credentials show nowhere",
        (
            "spark/test_security.py::test_given_wrong_secrets_when_queries_start_then_each_fails_in_one_line_and_no_secret_is_written_anywhere",
            "unit/config/test_client_options.py::test_given_secrets_then_no_representation_shows_them",
        ),
    ),
    Case(
        "B20",
        "timeouts that contradict each other are refused; those of JVM clients, and what dead addresses cost them, are"
        " the doctor's",
        (
            _PARTS + "timeouts_that_contradict_when_made_then_both_fields_are_named",
            "unit/config/test_config.py::test_given_a_mistake_when_loaded_then_one_line_names_it_and_the_remedy",
            "unit/core/test_clients.py::test_given_contradictions_when_checked_then_each_is_said",
            "unit/core/test_forecast.py::test_given_nobody_alive_when_forecast_then_it_fails_at_the_api_timeout",
        ),
    ),
)

LOSSES = (
    Case("partition added", "read from its first record", (_ADDED,)),
    Case(
        "partition added, its first records aged out",
        "there an error; here it begins with the first record there is",
        (
            "spark/test_data_loss.py::test_given_a_partition_that_begins_late_when_found_under_the_query_then_it_is_read_from_its_first_record",
        ),
    ),
    Case(
        "new partition vanishes again",
        "kept without a leader until the topic's id says otherwise",
        (_DECIDE + "fewer_partitions_when_the_topic_id_is_the_same_or_unknown_then_they_are_kept_without_a_leader",),
    ),
    Case(
        "partition missing for a moment",
        "parked, never lost",
        (_PARKED, _LOSS + "unknown_offsets_or_ids_when_judged_then_nothing_is_lost"),
    ),
    Case(
        "the same with `failOnDataLoss=false`",
        "there it is read again from earliest; here it resumes where it stood",
        (_RETURNS,),
    ),
    Case(
        "topic deleted",
        "an error, or the other topics go on",
        (
            "spark/test_data_loss.py::test_given_a_deleted_topic_of_two_when_loss_must_fail_then_it_ends_and_when_accepted_the_other_goes_on",
        ),
    ),
    Case(
        "topic recreated, shorter",
        "an error, or read from its first record",
        (_RECREATED, _LOSS + "losses_are_accepted_when_planned_then_it_goes_on_behind_them"),
    ),
    Case(
        "topic recreated, longer",
        "not noticed there; here found by its id",
        (_RECREATED, _SOURCE + "a_recreated_topic_when_the_query_runs_then_it_ends_with_one_line_of_data_loss"),
    ),
    Case(
        "offset aged out",
        "an error, or the rest is read, on both",
        (
            "spark/test_data_loss.py::test_given_records_that_aged_out_when_loss_must_fail_then_both_sources_fail",
            "spark/test_data_loss.py::test_given_records_that_aged_out_when_loss_is_accepted_then_both_sources_read_the_rest",
        ),
    ),
    Case(
        "AvailableNow, partitions change",
        "there an error; here it ends at its target",
        (_BOUNDED + "a_bounded_run_when_more_is_written_then_it_ends_exactly_at_its_target",),
    ),
    Case("`assign`", "never discovers, on both", (_SOURCE + "assign_when_read_then_only_those_partitions_come",)),
    Case(
        "JSON `startingOffsets`",
        "must name exactly the partitions, on both",
        (
            "spark/test_bad_input.py::test_given_offsets_that_are_not_there_when_a_query_starts_then_one_line_says_what_is",
        ),
    ),
)


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([
        "# Acceptance cases",
        "",
        "Generated by `python -m tests.support.acceptance`; a unit test checks that every named test exists.",
        "A01 to A56 are what the tests of Flink's Kafka sources show, B01 to B20 what none of them does.",
        "",
        "| case | what | shown by |",
        "|---|---|---|",
        *(f"| {case.name} | {case.text} | {_shown(case)} |" for case in CASES),
        "",
        "## Discovery and data loss beside Spark's own source",
        "",
        "| event | what happens | shown by |",
        "|---|---|---|",
        *(f"| {case.name} | {case.text} | {_shown(case)} |" for case in LOSSES),
        "",
    ])  # fmt: skip


def _shown(case: Case) -> str:
    tests = "<br>".join(f"`{test}`" for test in case.tests)
    return tests or f"does not concern a source: {case.note}"


if __name__ == "__main__":
    PAGE.write_text(page())
