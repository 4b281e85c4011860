import pytest

from discovery.core.answers import (
    CallEnded,
    MetadataFailure,
    NewBootstrap,
    OffsetsAnswer,
    ProbeOutcome,
    StuckCall,
    TopicIdsAnswer,
)
from discovery.core.decide import Decision, Persist, RebuildClient
from discovery.core.diff import EventKind
from discovery.core.errors import FailureKind
from discovery.core.model import (
    BrokerId,
    ClusterId,
    LoopState,
    Snapshot,
    TopicId,
    TopicName,
    TopicPartition,
    Verdict,
)
from discovery.core.model import PartitionOffsets as Offsets
from discovery.core.parking import parked_reason
from discovery.core.quarantine import due
from discovery.core.questions import AskMetadata, AskOffsets
from discovery.core.state import State, initial_state
from discovery.core.topics import is_confirmed
from tests.support.core_values import (
    OURS,
    POLICY,
    THEIRS,
    address,
    alive,
    answer,
    brokers,
    dead,
    run,
    settled,
    snapshot_of,
    topic,
)


def kinds(decision: Decision) -> list[EventKind]:
    return [event.kind for event in decision.events]


def test_given_two_agreeing_addresses_when_probed_then_the_cluster_is_pinned_and_a_client_is_built() -> None:
    state = initial_state([address(1), address(2), address(3)])
    decision = run(state, alive(1, 1, 2, 3), alive(2, 1, 2, 3))
    assert decision.state.pin == OURS
    assert [i.bootstrap for i in decision.instructions if isinstance(i, RebuildClient)] == [(address(1), address(2))]


def test_given_the_first_trusted_answer_when_taken_then_it_is_persisted() -> None:
    state = initial_state([address(1)])
    state = run(state, alive(1, 1)).state
    decision = run(state, answer(1, topics=(topic(),)))
    assert decision.instructions == (Persist(snapshot_of(decision.state)),)
    assert decision.state.loop_state is LoopState.FRESH


def test_given_a_lonely_first_answer_when_others_are_not_judged_then_the_pin_waits_for_the_settle_time() -> None:
    state = initial_state([address(1), address(2)])
    early = run(state, alive(1, 1, cluster=THEIRS))
    assert early.state.pin is None
    contradicted = run(early.state, alive(2, 2), now=0.1)
    assert contradicted.state.pin is None
    assert "clusterId" in (contradicted.state.fatal or "")
    alone = run(early.state, now=POLICY.settle_seconds)
    assert alone.state.pin == THEIRS


def test_given_a_majority_when_one_address_belongs_to_another_cluster_then_it_is_rejected() -> None:
    state = initial_state([address(1), address(2), address(3)])
    decision = run(state, alive(3, 3, cluster=THEIRS), alive(1, 1, 2), alive(2, 1, 2))
    assert decision.state.pin == OURS
    assert decision.state.addresses[address(3)].verdict is Verdict.FOREIGN_CLUSTER
    assert address(3) not in decision.state.living
    assert EventKind.CLUSTER_MISMATCH in kinds(decision)


def test_given_a_pinned_view_when_an_answer_comes_from_another_cluster_then_it_is_dropped_and_the_client_rebuilt() -> (
    None
):
    state = settled(3, topic())
    decision = run(state, answer(1, 2, 3, topics=(topic("foreign"),), cluster=THEIRS))
    assert snapshot_of(decision.state) == snapshot_of(state)
    assert any(isinstance(i, RebuildClient) for i in decision.instructions)
    assert all(known.proved_at is None for known in decision.state.addresses.values())


def test_given_a_view_when_an_empty_answer_comes_then_the_view_stays_and_it_counts_as_a_failure() -> None:
    state = settled(3, topic())
    decision = run(state, answer())
    assert snapshot_of(decision.state) == snapshot_of(state)
    assert decision.state.metadata_failures == 1


def test_given_three_failures_in_a_row_when_counted_then_the_client_is_rebuilt_once() -> None:
    state = settled(3)
    failure = MetadataFailure(kind=FailureKind.TRANSIENT, detail="timed out")
    rebuilt = []
    for _ in range(5):
        decision = run(state, failure)
        state = decision.state
        rebuilt.append(any(isinstance(i, RebuildClient) for i in decision.instructions))
    assert rebuilt == [False, False, True, False, False]


def test_given_failures_in_a_row_when_one_answer_comes_then_the_view_stayed_and_counts_restart() -> None:
    state = settled(3, topic())
    failure = MetadataFailure(kind=FailureKind.TRANSIENT, detail="timed out")
    for _ in range(2):
        view = snapshot_of(state)
        for number in (1, 2):
            decision = run(state, failure, now=float(number))
            state = decision.state
            assert state.metadata_failures == number, "two are less than the three that cost the client"
            assert not any(isinstance(i, RebuildClient) for i in decision.instructions)
            assert snapshot_of(state) == view
        state = run(state, answer(1, 2, 3, topics=(topic(),)), now=6.0).state
        assert (state.metadata_failures, state.loop_state, state.confirmed_at) == (0, LoopState.FRESH, 6.0)


def test_given_an_unchanged_answer_when_taken_then_nothing_is_published_and_the_generation_stays() -> None:
    state = settled(3, topic())
    decision = run(state, answer(1, 2, 3, topics=(topic(),)), now=1.0)
    assert decision.instructions == ()
    assert snapshot_of(decision.state).generation == snapshot_of(state).generation
    assert decision.state.confirmed_at == 1.0


def test_given_more_partitions_when_reported_then_they_are_published_and_announced() -> None:
    state = settled(3, topic(partitions=3))
    decision = run(state, answer(1, 2, 3, topics=(topic(partitions=5),)))
    assert len(snapshot_of(decision.state).topics[TopicName("t")].partitions) == 5
    assert kinds(decision) == [EventKind.PARTITIONS_ADDED]


def test_given_fewer_partitions_when_the_topic_id_is_the_same_or_unknown_then_they_are_kept_without_a_leader() -> None:
    state = settled(3, topic(partitions=3, topic_id="a"))
    decision = run(state, answer(1, 2, 3, topics=(topic(partitions=2),)))
    kept = snapshot_of(decision.state).topics[TopicName("t")].partitions
    assert [(p.leader_id, p.is_listed) for p in kept] == [(1, True), (1, True), (None, False)]
    assert EventKind.SHRINK_BLOCKED in kinds(decision)
    lost = parked_reason(kept[2], decision.state, end_known=True, unanswered=None)
    assert lost is not None
    assert "recreated with fewer partitions, stop the query" in lost
    back = run(decision.state, answer(1, 2, 3, topics=(topic(partitions=3),)), now=1.0)
    assert all(p.is_listed and p.leader_id for p in snapshot_of(back.state).topics[TopicName("t")].partitions)


def test_given_fewer_partitions_when_the_topic_id_is_new_then_the_topic_was_recreated() -> None:
    state = settled(3, topic(partitions=3, topic_id="a"))
    state = run(state, TopicIdsAnswer(topic_ids={TopicName("t"): TopicId("b")})).state
    decision = run(state, answer(1, 2, 3, topics=(topic(partitions=2),)))
    assert len(snapshot_of(decision.state).topics[TopicName("t")].partitions) == 2
    assert kinds(decision) == [EventKind.TOPIC_RECREATED]


def test_given_a_topic_that_vanishes_when_confirmed_then_it_becomes_a_tombstone_and_returns_with_what_it_had() -> None:
    state = settled(3, topic(topic_id="a"))
    gone = answer(1, 2, 3, unknown=("t",))
    for second in range(3):
        state = run(state, gone, now=float(second)).state
    assert not snapshot_of(state).topics
    assert TopicName("t") in snapshot_of(state).tombstones
    decision = run(state, answer(1, 2, 3, topics=(topic(topic_id="a"),)), now=4.0)
    assert kinds(decision) == [EventKind.TOPIC_RETURNED]
    assert not snapshot_of(decision.state).tombstones


def test_given_one_broker_of_three_missing_when_reported_once_then_it_leaves() -> None:
    decision = run(settled(3, topic()), answer(1, 2, topics=(topic(),)))
    assert snapshot_of(decision.state).brokers == brokers(1, 2)


def test_given_four_of_twelve_missing_when_reported_once_then_they_are_held_back_until_two_others_confirm() -> None:
    state = settled(12, topic())
    left = tuple(range(1, 9))
    seen = answer(*left, topics=(topic(),))
    decision = run(state, seen, now=1.0)
    assert len(snapshot_of(decision.state).brokers) == 12
    assert EventKind.SHRINK_BLOCKED in kinds(decision)
    state = decision.state
    for second in (2.0, 3.0, 4.0):
        state = run(state, seen, now=second).state
    assert len(snapshot_of(state).brokers) == 12, "three equal answers of one client are one voice"
    state = run(state, alive(1, *left), alive(2, *left), now=5.0).state
    state = run(state, seen, now=6.0).state
    assert snapshot_of(state).brokers == brokers(*left)


def test_given_many_small_losses_when_they_add_up_within_a_cycle_then_the_brake_holds_them_too() -> None:
    state = settled(12, topic())
    for count in (11, 10, 9, 8):
        state = run(state, answer(*range(1, count + 1), topics=(topic(),)), now=1.0).state
    assert len(snapshot_of(state).brokers) == 10


def test_given_a_silent_leader_when_it_tells_no_offset_then_it_must_prove_itself_at_once() -> None:
    state = settled(3, topic())
    asked = (TopicPartition(TopicName("t"), 0),)
    state = run(state, OffsetsAnswer(leader_id=BrokerId(1), asked=asked, offsets={})).state
    assert state.addresses[address(1)].proved_at is None


def test_given_a_quarantined_leader_when_it_reports_offsets_then_it_is_alive_at_once() -> None:
    state = run(settled(3, topic()), dead(1, Verdict.SILENT)).state
    asked = TopicPartition(TopicName("t"), 0)
    seen = OffsetsAnswer(leader_id=BrokerId(1), asked=(asked,), offsets={asked: Offsets(high_watermark=5)})
    assert run(state, seen).state.addresses[address(1)].alive


def test_given_all_dead_when_time_passes_then_the_state_is_failsafe_and_the_view_is_kept() -> None:
    state = settled(2, topic())
    decision = run(state, dead(1), dead(2), now=5.0)
    assert decision.state.loop_state is LoopState.FAILSAFE
    assert "kept the last view of 2 brokers" in decision.sentence
    assert "refused: b1:9092, b2:9092" in decision.sentence


def test_given_an_outage_of_all_when_one_lives_again_then_the_client_is_rebuilt_and_its_leader_is_asked_at_once() -> (
    None
):
    state = run(settled(2, topic()), now=1.0).state
    (name,) = [name for name, question in state.agenda.calls.items() if isinstance(question, AskOffsets)]
    for failures in range(9):
        silence = OffsetsAnswer(leader_id=BrokerId(1), asked=(), offsets={})
        state = run(state, CallEnded(name=name, client=1, answer=silence), now=2.0 + failures).state
        (name,) = [name for name, question in state.agenda.calls.items() if isinstance(question, AskOffsets)]
    state = run(state, dead(1), dead(2), CallEnded(name=name), now=10.1).state
    quiet = run(state, alive(1, 1, 2), now=10.2)
    assert not any(isinstance(i, RebuildClient) for i in quiet.instructions), "the client has shown no trouble"
    state = run(state, MetadataFailure(kind=FailureKind.TRANSIENT, detail="timed out"), now=10.3).state
    back = run(state, alive(1, 1, 2), alive(2, 1, 2), now=10.5)
    assert [i.client for i in back.instructions if isinstance(i, RebuildClient)] == [2]
    assert any(isinstance(call.question, AskMetadata) for call in back.calls)
    assert any(isinstance(call.question, AskOffsets) for call in back.calls), "it does not wait out its back-off"
    again = run(back.state, dead(1), alive(1, 1, 2), now=13.0)
    assert not any(isinstance(i, RebuildClient) for i in again.instructions), "another broker lived all the time"


def test_given_nobody_alive_when_time_passes_then_the_dead_are_asked_three_times_a_second() -> None:
    state = run(settled(2, topic()), *[dead(n) for n in (1, 2) for _ in range(9)], now=5.0).state
    assert not due(state, policy=POLICY, now=5.2).full
    assert set(due(state, policy=POLICY, now=5.31).full) == {address(1), address(2)}
    one = run(state, alive(2, 1, 2), now=5.31).state
    assert not due(one, policy=POLICY, now=5.9, idle=True).full, "with one alive and no reader, once a second is enough"


def test_given_no_confirmation_when_older_than_staleness_then_the_state_is_stale() -> None:
    assert run(settled(2), now=POLICY.staleness_seconds + 1).state.loop_state is LoopState.STALE


def test_given_a_saved_view_when_all_listed_addresses_are_foreign_then_waiting_is_called_useless() -> None:
    saved = snapshot_of(settled(2, topic()))
    state = initial_state([address(8), address(9)], snapshot=saved)
    decision = run(state, alive(8, 8, cluster=THEIRS), alive(9, 8, cluster=THEIRS), dead(1), dead(2))
    assert decision.state.loop_state is LoopState.REJECTING
    assert "theirs" in (decision.state.fatal or "")
    assert "state reset" in (decision.state.fatal or "")


def test_given_a_saved_view_when_the_list_is_foreign_though_a_learned_broker_lives_then_a_start_is_called_useless() -> (
    None
):
    saved = snapshot_of(settled(2, topic()))
    state = initial_state([address(8), address(9)], snapshot=saved)
    decision = run(state, alive(1), alive(8, 8, cluster=THEIRS))
    assert decision.state.fatal is None, "the other address may be ours"
    decision = run(decision.state, alive(9, 8, cluster=THEIRS))
    assert "the saved state says" in (decision.state.fatal or "")


def new_query_of_a_moved_list() -> tuple[State, Snapshot]:
    """A start without offsets whose two listed addresses belong to another cluster than the saved view's."""
    saved = snapshot_of(settled(2, topic()))
    return initial_state([address(8), address(9)], snapshot=saved, list_outvotes=True), saved


def test_given_nothing_read_yet_when_the_saved_brokers_are_gone_then_the_cluster_of_the_list_is_pinned() -> None:
    state, saved = new_query_of_a_moved_list()
    foreign = [alive(n, 8, 9, cluster=THEIRS) for n in (8, 9)]
    state = run(state, *foreign).state
    assert (state.pin, state.fatal) == (OURS, None), "a broker of the saved view may live"
    decision = run(state, dead(1), dead(2))
    assert decision.state.left == saved
    assert set(decision.state.addresses) == {address(8), address(9)}
    assert "the saved view of cluster ours is left" in decision.events[-1].sentence
    state = run(decision.state, *foreign).state
    assert (state.pin, state.fatal) == (THEIRS, None)
    state = run(state, answer(8, 9, topics=(topic(),), cluster=THEIRS)).state
    assert snapshot_of(state).cluster_id == THEIRS
    assert snapshot_of(state).generation == saved.generation + 1


def test_given_nothing_read_yet_when_a_saved_broker_lives_or_the_list_disagrees_then_the_saved_view_stays() -> None:
    state, _ = new_query_of_a_moved_list()
    foreign = [alive(n, 8, 9, cluster=THEIRS) for n in (8, 9)]
    lives = run(state, *foreign, alive(1, 1, 2), dead(2)).state
    assert lives.pin == OURS
    assert "state reset" in (lives.fatal or "")
    split = run(state, foreign[0], alive(9, 9, cluster=ClusterId("third")), dead(1), dead(2)).state
    silent = run(state, foreign[0], dead(9), dead(1), dead(2)).state
    assert split.pin == silent.pin == OURS
    assert "state reset" in (split.fatal or "")


def test_given_a_saved_view_when_the_listed_are_dead_and_a_learned_one_lives_then_the_client_is_built_from_it() -> None:
    saved = snapshot_of(settled(3, topic()))
    state = initial_state([address(3)], snapshot=saved)
    decision = run(state, dead(3), alive(2, 1, 2))
    assert [i.bootstrap for i in decision.instructions if isinstance(i, RebuildClient)] == [(address(2),)]
    assert snapshot_of(decision.state).topics


def test_given_a_cluster_id_option_when_the_saved_view_is_of_another_then_the_option_wins() -> None:
    state = initial_state([address(1)], snapshot=snapshot_of(settled(2)), cluster_id=THEIRS)
    assert state.snapshot is None
    assert run(state, alive(1, 1)).state.addresses[address(1)].verdict is Verdict.FOREIGN_CLUSTER


def test_given_a_removed_broker_that_still_answers_for_itself_then_it_is_stale_but_an_alias_is_alive() -> None:
    state = settled(3, topic())
    state = run(state, alive(1, 1, 2, 3)).state
    shrunk = run(state, answer(1, 2, topics=(topic(),))).state
    stale = run(shrunk, alive(3, 1, 2, 3)).state
    assert stale.addresses[address(3)].verdict is Verdict.STALE
    alias = run(shrunk, alive(3, 1, 2)).state
    assert alias.addresses[address(3)].verdict is Verdict.ALIVE


def test_given_a_stuck_call_when_reported_then_the_client_is_rebuilt_and_it_is_announced() -> None:
    decision = run(settled(1), StuckCall(name="metadata", seconds=11.0))
    assert EventKind.STUCK_CALL in kinds(decision)
    assert any(isinstance(i, RebuildClient) for i in decision.instructions)


def test_given_an_answer_for_a_retired_address_when_it_comes_late_then_it_is_ignored() -> None:
    state = settled(2)
    assert run(state, dead(9)).state.addresses.keys() == state.addresses.keys()


def test_given_equal_knowledge_when_described_then_the_sentence_is_equal() -> None:
    state = settled(3, topic(leader=None))
    first, second = run(state, now=0.1), run(state, now=0.2)
    assert first.sentence == second.sentence
    assert "3 partitions without a leader" in first.sentence


def test_given_a_learned_broker_that_leaves_when_accepted_then_only_a_configured_address_stays() -> None:
    state = run(initial_state([address(1), address(2)]), alive(1, 1, 2, 3), alive(2, 1, 2, 3)).state
    state = run(state, answer(1, 2, 3)).state
    assert address(3) in state.addresses
    assert address(3) not in run(state, answer(1, 2)).state.addresses
    assert address(2) in run(state, answer(1, 3)).state.addresses


def test_given_a_leader_nobody_lists_when_it_tells_offsets_then_nothing_changes() -> None:
    state = settled(2, topic())
    seen = OffsetsAnswer(leader_id=BrokerId(9), asked=(), offsets={})
    assert run(state, seen).state == run(state).state


def test_given_a_living_leader_when_it_tells_offsets_then_nobody_announces_it() -> None:
    asked = TopicPartition(TopicName("t"), 0)
    seen = OffsetsAnswer(leader_id=BrokerId(1), asked=(asked,), offsets={asked: Offsets(high_watermark=5)})
    decision = run(settled(2, topic()), seen)
    assert (decision.instructions, decision.events) == ((), ())


def after_answers(*answers: tuple[float, dict[int, Offsets]]) -> State:
    """Take in answers of broker 1, each with the time at which it was asked for."""
    state = settled(2, topic())
    for asked_at, offsets in answers:
        known = {TopicPartition(TopicName("t"), number): one for number, one in offsets.items()}
        seen = OffsetsAnswer(leader_id=BrokerId(1), asked=tuple(known), offsets=known, asked_at=asked_at)
        state = run(state, seen).state
    return state


@pytest.mark.parametrize(
    ("earlier", "known"),
    [
        (Offsets(high_watermark=7, leader_epoch=3), Offsets(high_watermark=9, leader_epoch=3)),
        (Offsets(high_watermark=10, leader_epoch=3), Offsets(high_watermark=10, leader_epoch=3)),
        (Offsets(high_watermark=7, start_offset=5), Offsets(high_watermark=9, leader_epoch=3, start_offset=5)),
        (Offsets(high_watermark=7, leader_epoch=4), Offsets(high_watermark=7, leader_epoch=4)),
    ],
    ids=["smaller", "larger", "with a start", "in a newer term"],
)
def test_given_an_answer_when_one_that_was_asked_for_earlier_comes_in_then_no_end_of_the_term_goes_back(
    earlier: Offsets, known: Offsets
) -> None:
    state = after_answers((2.0, {0: Offsets(high_watermark=9, leader_epoch=3)}), (1.0, {0: earlier}))
    assert state.offsets.offsets[TopicPartition(TopicName("t"), 0)] == known
    assert bool(state.suspicions) is (known.high_watermark == 7)


def test_given_a_smaller_end_when_what_was_asked_for_later_says_nothing_of_it_then_it_counts() -> None:
    first = TopicPartition(TopicName("t"), 0)
    known = (1.0, {0: Offsets(high_watermark=9)})
    assert after_answers(known, (2.0, {0: Offsets(high_watermark=6)})).offsets.offsets[first].high_watermark == 6
    about_another = (3.0, {2: Offsets(high_watermark=1)})
    state = after_answers(known, about_another, (2.0, {0: Offsets(high_watermark=6)}))
    assert state.offsets.offsets[first].high_watermark == 6
    assert state.suspicions


def test_given_a_topic_that_was_kept_once_when_the_answer_repeats_then_it_is_announced_only_once() -> None:
    state = settled(3, topic(partitions=3, topic_id="a"))
    short = answer(1, 2, 3, topics=(topic(partitions=2),))
    first = run(state, short)
    assert kinds(run(first.state, short)) == []


def test_given_a_tombstone_when_the_topic_returns_with_another_id_then_it_was_recreated() -> None:
    state = settled(3, topic(topic_id="a"))
    for second in range(3):
        state = run(state, answer(1, 2, 3, unknown=("t",)), now=float(second)).state
    returned = run(state, answer(1, 2, 3, topics=(topic(topic_id="b"),)), now=4.0)
    assert kinds(returned) == [EventKind.TOPIC_RECREATED]


def test_given_a_saved_view_when_all_its_brokers_were_replaced_then_the_new_ones_are_alive() -> None:
    state = initial_state([address(5), address(6)], snapshot=snapshot_of(settled(3, topic())))
    state = run(state, dead(1), dead(2), dead(3), alive(5, 5, 6, 7), alive(6, 5, 6, 7)).state
    assert set(state.living) == {address(5), address(6)}
    assert address(7) in state.addresses


def test_given_a_refused_login_when_metadata_fails_then_no_client_is_rebuilt_and_the_sentence_says_why() -> None:
    state = settled(2, topic())
    refused = MetadataFailure(kind=FailureKind.AUTH, detail="topic t: not authorized")
    for _ in range(7):
        decision = run(state, refused)
        state = decision.state
        assert decision.instructions == ()
    assert "metadata fails: topic t: not authorized" in decision.sentence
    assert "metadata fails" not in run(state, answer(1, 2, topics=(topic(),))).sentence


def test_given_an_asked_topic_when_one_answer_does_not_know_it_then_it_is_not_confirmed_missing() -> None:
    state = run(settled(2), answer(1, 2, unknown=("x",))).state
    assert not is_confirmed(state.absences.get(TopicName("x")))
    for _ in range(2):
        state = run(state, answer(1, 2, unknown=("x",))).state
    assert is_confirmed(state.absences[TopicName("x")])
    assert not snapshot_of(state).tombstones
    assert TopicName("x") not in run(state, answer(1, 2, topics=(topic("x"),))).state.absences


def test_given_a_connection_alone_when_reported_then_the_verdict_stays_and_the_time_is_noted() -> None:
    state = run(settled(2), ProbeOutcome(address=address(1), tcp_only=True), now=3.0).state
    assert state.addresses[address(1)].alive
    assert state.addresses[address(1)].asked_at == 3.0


def test_given_no_pin_when_metadata_comes_then_nobody_fills_the_view() -> None:
    assert run(initial_state([address(1), address(2)]), answer(1, 2, topics=(topic(),))).state.snapshot is None


def test_given_another_list_when_taken_then_its_addresses_are_asked_and_those_off_it_forgotten_unless_brokers() -> None:
    state = settled(2)
    state = run(run(state, NewBootstrap(addresses=(address(1), address(2), address(3)))).state, dead(3)).state
    decision = run(state, NewBootstrap(addresses=(address(3), address(7))))
    assert decision.state.configured == (address(3), address(7))
    assert {a: known.verdict for a, known in decision.state.addresses.items()} == {
        address(1): Verdict.ALIVE,
        address(2): Verdict.ALIVE,
        address(3): None,
        address(7): None,
    }
    assert kinds(decision) == [EventKind.BOOTSTRAP_CHANGED]
    assert run(decision.state, NewBootstrap(addresses=(address(3), address(7)))).instructions == ()


def test_given_another_list_before_anything_is_known_when_taken_then_the_old_one_is_forgotten() -> None:
    state = run(initial_state([address(1), address(2)]), NewBootstrap(addresses=(address(2), address(3)))).state
    assert tuple(state.addresses) == (address(2), address(3))


def test_given_a_new_topic_when_its_id_is_answered_then_it_is_shown_and_a_later_one_noticed() -> None:
    name = TopicName("t")
    state = run(settled(1), answer(1, topics=(topic(),)), now=1).state
    assert name in state.suspicions
    named = run(state, TopicIdsAnswer(topic_ids={name: TopicId("a")}, asked_at=1), now=1.1).state
    assert not named.suspicions
    assert (snapshot_of(named).topics[name].topic_id, snapshot_of(named).confirmed_wall) == ("a", 1_001.0)
    away = run(named, answer(1, topics=()), now=1.2).state
    back = run(away, answer(1, topics=(topic(),)), now=1.3).state
    answered = run(back, TopicIdsAnswer(topic_ids={name: TopicId("b")}, asked_at=1.3), now=1.4).state
    assert EventKind.TOPIC_RECREATED in kinds(run(answered, answer(1, topics=(topic(),)), now=1.5))


def test_given_a_new_topic_whose_id_nobody_answers_when_0_8_seconds_passed_then_it_is_shown() -> None:
    state = run(settled(1), answer(1, topics=(topic(),)), now=1).state
    assert run(state, now=1.7).state.suspicions
    assert not run(state, now=1.8).state.suspicions, "whether metadata comes or not"


def test_given_a_topic_without_an_id_that_a_new_one_could_differ_from_when_doubted_then_it_waits_as_a_new_one() -> None:
    saved = run(initial_state([address(1)], snapshot=snapshot_of(settled(1, topic()))), alive(1, 1)).state
    gone = settled(1, topic())
    for now in (1.0, 2.0, 3.0, 40.0):
        gone = run(gone, answer(1, topics=(), complete=True), now=now).state
    away = run(settled(1, topic()), answer(1, topics=(), complete=True), now=40).state
    for state in (saved, gone, away):
        (doubt,) = run(state, answer(1, topics=(topic(),)), now=41).state.suspicions.values()
        assert doubt.at_first_sight


def test_given_a_doubt_that_an_id_has_answered_when_another_cluster_is_found_then_the_id_is_asked_again() -> None:
    name = TopicName("t")
    saved = snapshot_of(settled(2, topic(topic_id="a")))
    state = run(initial_state([address(1), address(2)], snapshot=saved), alive(1, 1, 2)).state
    state = run(state, answer(1, 2, topics=(topic(),)), now=1).state
    state = run(state, TopicIdsAnswer(topic_ids={name: TopicId("b")}, asked_at=1), now=1.1).state
    state = run(state, alive(2, 2, cluster=THEIRS), now=1.2).state
    state = run(state, answer(1, 2, topics=(topic(),)), now=1.3).state
    assert name in state.suspicions, "it is not shown under its old id"


def test_given_ids_of_another_cluster_when_it_is_found_out_then_they_are_forgotten() -> None:
    state = run(settled(1, topic(topic_id="a")), StuckCall(name="metadata #1", seconds=9.0), now=1).state
    state = run(state, TopicIdsAnswer(topic_ids={TopicName("t"): TopicId("x")}, asked_at=1), now=1.1).state
    state = run(state, answer(1, topics=(topic(),), cluster=THEIRS), now=1.2).state
    decision = run(state, answer(1, topics=(topic(),)), now=1.3)
    assert EventKind.TOPIC_RECREATED not in kinds(decision)
    assert snapshot_of(decision.state).topics[TopicName("t")].topic_id == "a"


def test_given_a_first_id_through_a_client_that_is_not_proved_when_answered_then_it_is_not_shown() -> None:
    state = run(settled(1), answer(1, topics=(topic(),)), now=1).state
    stuck = run(state, StuckCall(name="metadata #1", seconds=9.0), now=1).state
    seen = TopicIdsAnswer(topic_ids={TopicName("t"): TopicId("x")}, asked_at=1)
    assert snapshot_of(run(stuck, seen, now=1.1).state).topics[TopicName("t")].topic_id is None


def test_given_a_topic_that_returns_from_its_tombstone_when_named_then_its_id_is_asked_first() -> None:
    state = settled(1, topic(topic_id="a"))
    for now in (1.0, 2.0, 3.0, 40.0):
        state = run(state, answer(1, topics=(), complete=True), now=now).state
    assert TopicName("t") in snapshot_of(state).tombstones
    assert TopicName("t") in run(state, answer(1, topics=(topic(),)), now=41).state.suspicions


def test_given_a_saved_view_when_first_confirmed_then_its_topics_are_suspected_until_their_ids_are_known() -> None:
    old = snapshot_of(settled(1, topic()))
    state = run(initial_state([address(1)], snapshot=old), alive(1, 1)).state
    confirmed = run(state, answer(1, topics=(topic(),)), now=1).state
    assert set(confirmed.suspicions) == set(old.topics)
    seen = run(state, TopicIdsAnswer(topic_ids=dict.fromkeys(old.topics, TopicId("x")), asked_at=0.5)).state
    assert not run(seen, answer(1, topics=(topic(),)), now=1).state.suspicions
