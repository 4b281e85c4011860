"""What is asked when, what is under way, and which answers still count."""

from collections import Counter
from dataclasses import replace

import pytest

from discovery.core.answers import CallEnded, NotSaved, OffsetsAnswer, StuckCall
from discovery.core.asking import divide, isolations
from discovery.core.decide import Decision, Persist, decide
from discovery.core.interest import Interest
from discovery.core.model import (
    BrokerId,
    Isolation,
    PartitionMetadata,
    TopicMetadata,
    TopicName,
    TopicPartition,
    Verdict,
)
from discovery.core.model import PartitionOffsets as Offsets
from discovery.core.parking import parked_reason
from discovery.core.policy import Policy
from discovery.core.questions import AskMetadata, AskOffsets, AskTopicIds, Division, LeaderKey, Leaders, Vet, Wanted
from discovery.core.state import State, initial_state
from tests.support.core_values import POLICY, THEIRS, address, alive, answer, dead, run, settled, topic

READ, IDLE = TopicName("read"), TopicName("idle")
ONE, TWO = BrokerId(1), BrokerId(2)
BOTH = Interest(pattern="", both_ends=True)
LEADERS: Leaders = {
    ONE: (TopicPartition(IDLE, 0), TopicPartition(READ, 0)),
    TWO: (TopicPartition(IDLE, 1),),
}
T = TopicName("t")
T0 = TopicPartition(T, 0)


def led_by(*leaders: int, topic_id: str | None = None) -> TopicMetadata:
    """Topic t with a partition for each leader named."""
    partitions = tuple(PartitionMetadata(partition=p, leader_id=BrokerId(i)) for p, i in enumerate(leaders))
    return TopicMetadata(name=T, partitions=partitions, topic_id=topic_id)  # type: ignore[arg-type]


def asked(decision: Decision, kind: type[object]) -> list[object]:
    return [call.question for call in decision.calls if isinstance(call.question, kind)]


def under_way(state: State, kind: type[object]) -> str:
    """The name of the one call of a kind."""
    (name,) = [name for name, question in state.agenda.calls.items() if isinstance(question, kind)]
    return name


def end(leader: int, *offsets: int, asked: int = 1) -> OffsetsAnswer:
    """The answer of a leader that was asked for partitions 0..asked, with these ends."""
    partitions = tuple(TopicPartition(T, p) for p in range(asked))
    known = {tp: Offsets(high_watermark=o, start_offset=0) for tp, o in zip(partitions, offsets, strict=False)}
    return OffsetsAnswer(leader_id=BrokerId(leader), asked=partitions, offsets=known)


def test_given_no_client_yet_when_decided_then_addresses_are_vetted_and_nothing_else_is_asked() -> None:
    decision = run(initial_state([address(1), address(2)]))
    assert [call.question for call in decision.calls] == [
        Vet(addresses=frozenset({address(1), address(2)}), full=frozenset({address(1), address(2)}))
    ]
    assert run(decision.state).calls == (), "they are under way"


def test_given_a_client_when_decided_then_each_question_is_asked_once_until_it_ended() -> None:
    decision = run(run(initial_state([address(1)]), alive(1, 1)).state, answer(1, topics=(led_by(1),)))
    assert {type(call.question) for call in decision.calls} == {AskTopicIds, AskOffsets}
    later = run(decision.state, now=60.0)
    assert not {AskTopicIds, AskOffsets, AskMetadata} & {type(call.question) for call in later.calls}
    ended = [CallEnded(name=name, client=1) for name in later.state.agenda.calls]
    again = run(later.state, *ended, now=61.0)
    assert {type(call.question) for call in again.calls} == {AskTopicIds, AskOffsets, AskMetadata, Vet}


def test_given_four_rounds_of_vetting_under_way_when_more_is_due_then_it_waits_for_one_to_end() -> None:
    state = initial_state([address(1)])
    for number in range(1, 5):
        state = run(state, alive(number, number, number + 1), now=float(number)).state
    rounds = [name for name, question in state.agenda.calls.items() if isinstance(question, Vet)]
    assert len(rounds) == 4
    state = run(state, alive(5, 5, 6), now=5.0).state
    assert not any(address(6) in q.addresses for q in state.agenda.calls.values() if isinstance(q, Vet))
    freed = run(state, CallEnded(name=rounds[0]), now=5.0)
    assert any(address(6) in q.addresses for q in asked(freed, Vet) if isinstance(q, Vet))


def test_given_a_question_for_metadata_when_it_ends_then_its_answer_is_taken_in() -> None:
    state = run(settled(2, led_by(1)), now=1.0).state
    ended = CallEnded(name=under_way(state, AskMetadata), client=1, answer=answer(1, 2, topics=(led_by(1, 2),)))
    state = run(state, ended, now=1.1).state
    assert state.leaders.keys() == {ONE, TWO}


def test_given_an_answer_of_a_discarded_client_when_it_comes_then_nothing_changes_but_the_call() -> None:
    state = run(settled(2, led_by(1)), now=1.0).state
    name = under_way(state, AskOffsets)
    rebuilt = run(state, StuckCall(name=under_way(state, AskMetadata), seconds=9.0), now=1.0)
    assert rebuilt.state.client == 2
    assert name not in rebuilt.state.agenda.calls
    assert len(asked(rebuilt, AskOffsets)) == 1, "the new client is asked instead"
    late = run(rebuilt.state, CallEnded(name=name, client=1, answer=end(1, 7)), now=1.1)
    assert T0 not in late.state.offsets.offsets
    assert late.taken == ()


def test_given_a_late_answer_when_leader_and_topic_are_the_same_then_it_counts() -> None:
    state = run(settled(2, led_by(1)), now=1.0).state
    late = CallEnded(name=under_way(state, AskOffsets), client=1, answer=end(1, 7))
    state = run(state, late, now=40.0).state
    assert state.offsets.offsets[T0].high_watermark == 7


def test_given_a_late_answer_when_another_leads_by_then_then_it_neither_counts_nor_parks() -> None:
    state = settled(2, led_by(1, 1))
    name = under_way(state, AskOffsets)
    moved = run(state, answer(1, 2, topics=(led_by(2, 1),)), now=1.0).state
    moved = run(moved, CallEnded(name=name, client=1, answer=end(1, 7, 8, asked=2)), now=1.5).state
    assert moved.offsets.offsets.keys() == {TopicPartition(T, 1)}
    assert not moved.offsets.unanswered


def test_given_a_late_answer_when_the_topic_was_recreated_then_it_does_not_count() -> None:
    state = run(settled(2, topic("u")), answer(1, 2, topics=(topic("u"), led_by(2, topic_id="a")))).state
    name = next(n for n, q in state.agenda.calls.items() if isinstance(q, AskOffsets) and T0 in q.partitions)
    again = run(state, answer(1, 2, topics=(topic("u"), led_by(2, topic_id="b"))), now=1.0).state
    again = run(again, CallEnded(name=name, client=1, answer=end(2, 7)), now=2.0).state
    assert T0 not in again.offsets.offsets


def test_given_an_outdated_answer_when_it_comes_then_its_leader_need_not_prove_itself() -> None:
    state = run(settled(2, led_by(2, topic_id="a"))).state
    name = under_way(state, AskOffsets)
    again = run(state, answer(1, 2, topics=(led_by(2, topic_id="b"),)), now=0.5).state
    before = again.addresses[address(2)]
    again = run(again, CallEnded(name=name, client=1, answer=end(2, 7)), now=0.6).state
    assert T0 not in again.offsets.offsets
    assert again.addresses[address(2)].proved_at == before.proved_at is not None


def test_given_an_answer_beside_a_foreign_one_when_taken_then_no_offset_of_the_batch_is_kept() -> None:
    state = run(settled(3, led_by(1)), end(1, 5)).state
    assert T0 in state.offsets.offsets
    foreign = run(state, alive(3, 3, cluster=THEIRS), end(1, 6), now=1.0).state
    assert not foreign.offsets.offsets
    assert foreign.offsets.epoch > state.offsets.epoch


def test_given_a_refused_leader_when_its_offsets_are_due_then_it_is_not_asked() -> None:
    decision = run(run(settled(3), dead(1)).state, answer(1, 2, 3, topics=(led_by(1, 2),)))
    assert [q.leader_id for q in asked(decision, AskOffsets) if isinstance(q, AskOffsets)] == [TWO]


def test_given_a_view_that_could_not_be_saved_when_ten_seconds_passed_then_it_is_saved_again_once() -> None:
    state = run(settled(2, topic()), NotSaved()).state
    assert run(state, now=9.9).instructions == ()
    again = run(state, now=10.0)
    assert again.instructions == (Persist(state.snapshot),)  # type: ignore[arg-type]
    assert run(again.state, now=20.0).instructions == ()


@pytest.mark.parametrize(("wanted", "least", "most"), [(None, 0.0, 0.1), ((), 0.25, 0.25)])
def test_given_readers_or_none_when_decided_then_the_loop_rests_accordingly(
    wanted: Wanted | None, least: float, most: float
) -> None:
    decision = decide(settled(2, topic()), (), POLICY, now=0.0, wall=0.0, wanted=wanted)
    assert least <= decision.idle_seconds <= most


def test_given_nobody_who_reads_when_decided_then_metadata_and_ends_are_asked_for_seldom() -> None:
    state, counts = settled(2, led_by(1)), {AskMetadata: 0, AskOffsets: 0}
    state = run(state, *(CallEnded(name=name) for name in state.agenda.calls)).state
    state = run(state, *(CallEnded(name=name) for name in state.agenda.calls)).state
    for step in range(1, 101):
        now = step * 0.25
        decision = decide(state, (), Policy(), now=now, wall=now, wanted=())
        for kind in counts:
            counts[kind] += len(asked(decision, kind))
        ended = [CallEnded(name=call.name, client=1) for call in decision.calls]
        state = decide(decision.state, ended, Policy(), now=now, wall=now, wanted=()).state
    assert 15 <= counts[AskMetadata] <= 25
    assert 1 <= counts[AskOffsets] <= 3


def test_given_a_reader_that_rests_when_time_passes_then_it_is_asked_for_once_per_plan() -> None:
    (state, name), seen = asked_once(), Counter[type[object]]()
    state = answered(state, name, now=0.1, took=0.1, offset=7).state
    state = run(state, *(CallEnded(name=name) for name in state.agenda.calls), now=0.1).state
    for step in range(4, 1000):
        now = step / 20
        wanted = None if step % 20 >= 17 else ()  # from 0.15 s before each plan on
        decision = decide(state, (), Policy(), now=now, wall=now, wanted=wanted)
        seen.update(type(call.question) for call in decision.calls)
        ended = [
            CallEnded(name=call.name, client=1, answer=end(1, 7) if isinstance(call.question, AskOffsets) else None)
            for call in decision.calls
        ]
        state = decide(decision.state, ended, Policy(), now=now, wall=now, wanted=wanted).state
    assert (seen[AskOffsets], seen[AskMetadata]) == (50, 50), "once before each of fifty plans"


def test_given_a_slow_leader_when_its_reader_rests_then_it_owes_one_answer_at_a_time() -> None:
    state, name = asked_once()
    decision = answered(state, name, now=4.0, took=4.0, offset=7)
    state = run(decision.state, now=5.0).state
    slow = under_way(state, AskOffsets)
    resting = decide(state, (), POLICY, now=19.0, wall=19.0, wanted=())
    assert asked(resting, AskOffsets) == []
    late = CallEnded(name=slow, client=1, answer=end(1, 8))
    assert len(asked(decide(resting.state, (late,), POLICY, now=20.0, wall=20.0, wanted=()), AskOffsets)) == 1


def test_given_partitions_of_several_leaders_when_divided_then_only_those_read_are_wanted() -> None:
    division = divide(Division(), LEADERS, (Interest(pattern="^rea"), Interest(topics=(TopicName("other"),))))
    assert division.chosen == {ONE: (TopicPartition(READ, 0),)}
    assert division.rest == {ONE: (TopicPartition(IDLE, 0),), TWO: (TopicPartition(IDLE, 1),)}


def test_given_no_readers_of_its_own_when_divided_then_all_are_wanted() -> None:
    every, nobody = divide(Division(), LEADERS, None), divide(Division(), LEADERS, ())
    assert (every.chosen, every.rest) == (LEADERS, {})
    assert (nobody.chosen, nobody.rest) == ({}, LEADERS)
    assert all(nobody.rest[leader] is partitions for leader, partitions in LEADERS.items()), "compared in every turn"


def test_given_the_same_question_when_divided_again_then_the_same_object_is_returned() -> None:
    first = divide(Division(), LEADERS, (Interest(topics=(READ,)),))
    assert divide(first, LEADERS, (Interest(topics=(READ,)),)) is first
    assert divide(first, dict(LEADERS), first.wanted) is not first
    assert divide(first, LEADERS, ()) is not first


def test_given_readers_when_they_need_one_end_then_the_other_is_left_out() -> None:
    committed = Interest(topics=(READ,), isolation=Isolation.READ_COMMITTED)
    plain = Interest(topics=(READ,))
    assert isolations((plain,), BOTH) == (Isolation.READ_UNCOMMITTED,)
    assert set(isolations((plain, committed), BOTH)) == set(Isolation)
    assert isolations(None, BOTH) == BOTH.isolations
    assert isolations((committed,), plain) == ()


def test_given_assigned_partitions_when_their_leaders_are_asked_then_for_no_other_partition() -> None:
    second = TopicPartition(T, 1)
    state = initial_state([address(1)], interest=Interest(assigned=(second,)))
    state = run(state, alive(1, 1)).state
    decision = run(state, answer(1, topics=(led_by(1, 1), topic("u"))))
    assert [q.partitions for q in asked(decision, AskOffsets) if isinstance(q, AskOffsets)] == [(second,)]
    assert decision.state.interest.wants(second)
    assert not decision.state.interest.wants(T0)
    assert decision.state.snapshot is not None
    assert decision.state.snapshot.topics.keys() == {T}, "topics that nobody follows are left out"


def test_given_a_saved_view_when_less_is_followed_than_it_holds_then_only_that_is_asked_for() -> None:
    saved = settled(1, topic(), topic("u")).snapshot
    state = initial_state([address(1)], interest=Interest(topics=(T,)), snapshot=saved)
    assert {tp.topic for partitions in state.leaders.values() for tp in partitions} == {T}


def asked_once(leader: int = 1) -> tuple[State, str]:
    """A state in which one leader was asked for t-0 at 0 s, and the name of that call."""
    state = settled(2, led_by(leader))
    return state, under_way(state, AskOffsets)


def answered(state: State, name: str, *, now: float, took: float, offset: int | None) -> Decision:
    """What is decided on the end of a call."""
    reported = {} if offset is None else {T0: Offsets(high_watermark=offset, start_offset=0)}
    answer = OffsetsAnswer(leader_id=ONE, asked=(T0,), offsets=reported, elapsed_seconds=took)
    return run(state, CallEnded(name=name, client=1, answer=answer), now=now)


def why_parked(state: State) -> str | None:
    """The reason for t-0."""
    assert state.snapshot is not None
    why = state.offsets.unanswered.get(T0)
    return parked_reason(
        state.snapshot.topics[T].partitions[0],
        state,
        end_known=T0 in state.offsets.offsets,
        unanswered=why[1] if why else None,
    )


def test_given_a_leader_that_owes_an_answer_when_a_second_passed_then_it_is_parked_until_the_answer_comes() -> None:
    state, name = asked_once()
    assert run(state, now=0.9).touched == frozenset()
    silent = run(state, now=1.0)
    assert silent.touched == {T0}
    assert "no answer within 1 s" in (why_parked(silent.state) or "")
    assert silent.state.addresses[address(1)].proved_at is None
    assert run(silent.state, now=2.0).touched == frozenset(), "noted once"
    late = answered(silent.state, name, now=3.5, took=1.7, offset=7)
    assert why_parked(late.state) is None
    assert not late.state.agenda.asked_patiently


def test_given_another_limit_of_silence_when_a_leader_owes_an_answer_then_it_is_parked_after_that() -> None:
    state, _ = asked_once()
    patient = replace(POLICY, leader_silence_seconds=3.0)
    assert run(state, now=2.9, policy=patient).touched == frozenset()
    silent = run(state, now=3.0, policy=patient)
    assert silent.touched == {T0}
    assert "no answer within 3 s" in (why_parked(silent.state) or "")


def test_given_a_leader_that_was_slow_when_asked_again_then_patiently_and_with_its_time_before_it_is_parked() -> None:
    state, name = asked_once()
    decision = answered(state, name, now=4.0, took=4.0, offset=None)
    assert decision.state.agenda.asked_patiently == {ONE}
    (patient,) = [call for call in decision.calls if isinstance(call.question, AskOffsets)]
    assert isinstance(patient.question, AskOffsets)
    assert patient.question.patient
    assert run(decision.state, now=20.0).state.agenda.calls.keys() >= {patient.name}, "one question at a time"
    decision = answered(decision.state, patient.name, now=25.0, took=10.0, offset=7)
    assert why_parked(decision.state) is None
    silent = run(decision.state, dead(1, Verdict.SILENT), now=30.0).state
    assert why_parked(silent) is None, "slow is not dead"
    assert why_parked(run(silent, now=64.9).state) is None
    assert "is silent" in (why_parked(run(silent, now=65.1).state) or "")


def test_given_a_slow_leader_when_it_is_quick_again_then_it_is_asked_as_all_others() -> None:
    state, name = asked_once()
    state = answered(state, name, now=10.0, took=10.0, offset=7).state
    state = answered(state, under_way(state, AskOffsets), now=10.5, took=0.01, offset=8).state
    assert not state.agenda.asked_patiently
    question = state.agenda.calls[under_way(run(state, now=11.0).state, AskOffsets)]
    assert isinstance(question, AskOffsets)
    assert not question.patient


def test_given_a_slow_leader_when_it_leads_no_more_then_it_is_forgotten_once_it_owes_no_answer() -> None:
    state, name = asked_once()
    state = answered(state, name, now=10.0, took=10.0, offset=7).state
    patient = under_way(state, AskOffsets)
    state = run(state, answer(1, 2, topics=(led_by(2),)), now=11.0).state
    assert state.agenda.asked_patiently == {ONE}
    state = answered(state, patient, now=20.0, took=10.0, offset=8).state
    state = run(state, answer(1, 2, topics=(led_by(2, 2),)), now=21.0).state
    assert not state.agenda.asked_patiently
    assert {key.leader_id for key in state.agenda.leaders} == {TWO}


def test_given_a_slow_leader_when_another_of_its_two_rhythms_asks_then_it_is_given_its_time_there_too() -> None:
    state, name = asked_once()
    state = answered(state, name, now=10.0, took=10.0, offset=7).state
    late = CallEnded(name=under_way(state, AskOffsets), client=1, answer=replace(end(1, 8), elapsed_seconds=10.0))
    seldom = decide(state, (late,), POLICY, now=20.0, wall=20.0, wanted=()).state
    assert LeaderKey(ONE, seldom=True) in seldom.agenda.leaders
    ended = [CallEnded(name=name, client=1) for name in seldom.agenda.calls]
    state = decide(seldom, ended, POLICY, now=31.0, wall=31.0, wanted=()).state
    (question,) = [q for q in state.agenda.calls.values() if isinstance(q, AskOffsets)]
    assert (question.seldom, question.patient) == (True, True)
    assert not decide(state, (), POLICY, now=33.0, wall=33.0, wanted=()).touched, "it is slow, whoever asks"
    assert decide(state, (), POLICY, now=71.5, wall=71.5, wanted=()).touched == {T0}


def test_given_a_late_answer_when_another_led_meanwhile_then_what_that_one_reported_stands() -> None:
    state, name = asked_once()
    moved = run(state, answer(1, 2, topics=(led_by(2),)), now=1.0).state
    newer = CallEnded(name=under_other(moved, name), client=1, answer=in_term(2, 6, 50))
    moved = run(moved, newer, now=1.1).state
    back = run(moved, answer(1, 2, topics=(led_by(1),)), now=2.0).state
    assert run(back, now=9.0).state.offsets.unanswered == {}, "it is no silence either"
    late = run(back, CallEnded(name=name, client=1, answer=in_term(1, 5, 40)), now=9.0)
    assert late.state.offsets.offsets[T0].high_watermark == 50
    assert late.state.suspicions == {}
    (again,) = [q for q in asked(late, AskOffsets) if isinstance(q, AskOffsets)]
    assert again.leader_id == ONE


def test_given_a_lower_epoch_when_asked_for_after_the_higher_one_was_heard_then_it_counts() -> None:
    state = run(settled(2, led_by(1)), in_term(1, 6, 50), now=1.0).state
    name = under_way(state, AskOffsets)
    state = run(state, CallEnded(name=name, client=1, answer=in_term(1, 6, 51)), now=1.3).state
    later = CallEnded(name=under_way(state, AskOffsets), client=1, answer=in_term(1, 2, 3))
    assert run(state, later, now=2.0).state.offsets.offsets[T0].high_watermark == 3, "as of a recreated topic"


def in_term(leader: int, epoch: int, offset: int) -> OffsetsAnswer:
    """The answer of a leader of t-0 in a term."""
    known = {T0: Offsets(high_watermark=offset, start_offset=0, leader_epoch=epoch)}
    return OffsetsAnswer(leader_id=BrokerId(leader), asked=(T0,), offsets=known)


def under_other(state: State, name: str) -> str:
    """The name of the one other question for offsets under way."""
    (other,) = [n for n, q in state.agenda.calls.items() if isinstance(q, AskOffsets) and n != name]
    return other


def test_given_a_refused_slow_leader_when_parking_is_judged_then_it_is_parked_at_once() -> None:
    state, name = asked_once()
    state = answered(state, name, now=10.0, took=10.0, offset=7).state
    assert "is refused" in (why_parked(run(state, dead(1), now=10.1).state) or "")
