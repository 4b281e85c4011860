"""Who is asked in a cycle, and who is left alone for how long."""

from collections import Counter
from dataclasses import replace

import pytest

from discovery.core.interest import Interest
from discovery.core.model import (
    BrokerAddress,
    BrokerId,
    PartitionMetadata,
    TopicName,
    TopicPartition,
    Verdict,
)
from discovery.core.quarantine import due, revived
from discovery.core.questions import Vet
from discovery.core.state import initial_state
from tests.support.core_values import (
    POLICY,
    THEIRS,
    address,
    alive,
    answer,
    dead,
    run,
    settled,
    snapshot_of,
    topic,
)


def test_given_a_new_loop_when_asked_who_is_due_then_everybody_must_prove_themselves() -> None:
    state = initial_state([address(1), address(2)])
    assert due(state, policy=POLICY, now=0.0).full == (address(1), address(2))


def test_given_living_brokers_when_an_interval_passes_then_they_only_show_that_they_listen() -> None:
    state = settled(3)
    assert due(state, policy=POLICY, now=0.5).connect == ()
    assert set(due(state, policy=POLICY, now=1.0).connect) == {address(1), address(2), address(3)}
    assert due(state, policy=POLICY, now=1.0).full == ()


def test_given_a_dead_broker_when_enough_live_then_it_is_quarantined_longer_each_time() -> None:
    state, now, waits = settled(4), 0.0, []
    for _ in range(12):
        state = run(state, dead(4), now=now).state
        until = state.addresses[address(4)].quarantined_until
        assert until is not None
        assert address(4) not in due(state, policy=POLICY, now=until - 0.001).full
        assert address(4) in due(state, policy=POLICY, now=until).full
        waits.append(until - now)
        now = until
    assert max(waits) <= POLICY.quarantine_cap_seconds
    assert max(waits[6:]) > max(waits[:3])


def test_given_too_few_alive_when_the_dead_rest_then_they_are_asked_every_cycle_but_wrong_ones_are_not() -> None:
    state = settled(4)
    for _ in range(8):
        state = run(state, dead(2), dead(3, Verdict.SILENT), dead(4, Verdict.NOT_KAFKA)).state
    assert set(due(state, policy=POLICY, now=1.0).full) == {address(2), address(3)}


def test_given_a_dead_leader_when_it_rests_then_it_is_asked_as_often_as_topics_while_somebody_reads() -> None:
    state = settled(4, topic(leader=4))
    for _ in range(8):
        state = run(state, dead(4)).state
    often = POLICY.topics_interval_seconds
    assert address(4) not in due(state, policy=POLICY, now=often - 0.01).full
    assert address(4) in due(state, policy=POLICY, now=often).full
    assert address(4) not in due(state, policy=POLICY, now=0.99, idle=True).full
    assert address(4) in due(state, policy=POLICY, now=1.0, idle=True).full
    state = run(state, dead(4, Verdict.UNRESOLVABLE)).state
    assert address(4) not in due(state, policy=POLICY, now=0.99).full, "a name server is asked once a second"


def test_given_a_restart_when_the_first_answer_changes_nothing_then_a_dead_leader_is_asked_every_cycle() -> None:
    saved = snapshot_of(settled(4, topic(leader=4)))
    state = run(initial_state([address(1)], snapshot=saved), *(alive(n, 1, 2, 3, 4) for n in (1, 2, 3))).state
    state = run(state, answer(1, 2, 3, 4, topics=(topic(leader=4),))).state
    for _ in range(8):
        state = run(state, dead(4)).state
    assert address(4) in due(state, policy=POLICY, now=1.0).full


def test_given_partitions_that_nobody_follows_when_their_leader_is_dead_then_it_rests() -> None:
    interest = Interest(assigned=(TopicPartition(TopicName("t"), 0),))
    led = tuple(PartitionMetadata(partition=p, leader_id=BrokerId(leader)) for p, leader in enumerate((1, 4)))
    state = initial_state([address(n) for n in (1, 2, 3, 4)], interest=interest)
    state = run(state, *(alive(n, 1, 2, 3, 4) for n in (1, 2, 3, 4))).state
    state = run(state, answer(1, 2, 3, 4, topics=(replace(topic(), partitions=led),))).state
    for _ in range(8):
        state = run(state, dead(4)).state
    assert address(4) not in due(state, policy=POLICY, now=1.0).full


@pytest.mark.parametrize("verdict", [Verdict.REFUSED, Verdict.SILENT])
def test_given_a_dead_leader_when_an_answer_says_that_it_leads_again_then_it_is_asked_at_once(verdict: Verdict) -> None:
    state = run(settled(4, topic(leader=4)), dead(4, verdict)).state
    state = run(state, answer(1, 2, 3, topics=(topic(leader=None),)), now=0.1).state
    assert address(4) not in due(state, policy=POLICY, now=0.2).full
    back = run(state, answer(1, 2, 3, 4, topics=(topic(leader=4),)), now=0.2).state
    assert [q.full for q in back.agenda.calls.values() if isinstance(q, Vet)][-1:] == [frozenset({address(4)})]
    more = (topic(leader=4), topic("u"))
    again = run(back, dead(4, verdict), answer(1, 2, 3, 4, topics=more), now=0.3).state
    assert address(4) not in due(again, policy=POLICY, now=0.4).full, "it led before, too"


def test_given_a_leader_that_rejects_the_login_when_an_answer_says_that_it_leads_then_it_rests() -> None:
    state = run(settled(4, topic(leader=1)), dead(4, Verdict.AUTH_FAILED)).state
    state = run(state, answer(1, 2, 3, 4, topics=(topic(leader=4),)), now=0.1).state
    assert address(4) not in due(state, policy=POLICY, now=0.1).full


def test_given_wrong_credentials_when_refused_then_the_broker_is_asked_slowly_also_when_nobody_else_lives() -> None:
    state = run(initial_state([address(1)]), dead(1, Verdict.AUTH_FAILED)).state
    assert due(state, policy=POLICY, now=POLICY.quarantine_cap_seconds - 0.1).full == ()
    assert due(state, policy=POLICY, now=POLICY.quarantine_cap_seconds).full == (address(1),)


def test_given_a_large_loss_in_doubt_when_asked_who_is_due_then_the_living_give_their_voices_at_once() -> None:
    state = settled(12, topic())
    state = run(state, answer(*range(1, 9), topics=(topic(),)), now=1.0).state
    assert set(due(state, policy=POLICY, now=1.1).full) == {address(n) for n in range(1, 13)}


def test_given_an_old_proof_when_asked_who_is_due_then_it_must_be_given_again_and_not_by_all_at_once() -> None:
    state = settled(5)
    first = POLICY.vet_interval_seconds
    counts = [len(due(state, policy=POLICY, now=first * share).full) for share in (0.99, 1.25, 1.5)]
    assert counts[0] == 0
    assert 0 < counts[1] < 5
    assert counts[2] == 5


def test_given_a_suspected_address_when_asked_who_is_due_then_it_must_prove_itself() -> None:
    state = run(settled(3), answer(1, 2, 3, cluster=THEIRS)).state
    assert set(due(state, policy=POLICY, now=0.0).full) == {address(1), address(2), address(3)}


def test_given_a_foreign_address_when_a_request_is_answered_there_then_it_stays_rejected() -> None:
    foreign = run(settled(3), alive(3, 3, cluster=THEIRS)).state.addresses[address(3)]
    assert foreign.verdict is Verdict.FOREIGN_CLUSTER
    assert revived(foreign, now=1.0) is foreign


def test_given_a_hundred_loops_when_brokers_return_then_all_find_them_at_once_and_ask_the_dead_apart() -> None:
    everybody = [address(n) for n in range(1, 13)]
    loops = [initial_state(everybody, salt=salt) for salt in range(100)]
    asked: dict[int, Counter[BrokerAddress]] = {}
    for step in range(400):
        now = step * 0.25
        for number, state in enumerate(loops):
            wanted = due(state, policy=POLICY, now=now).full
            asked.setdefault(int(now), Counter()).update(wanted)
            numbers = [everybody.index(a) + 1 for a in wanted]
            answers = [alive(n, *range(1, 9)) if now >= 20 and n <= 8 else dead(n) for n in numbers]
            loops[number] = run(state, *answers, now=now).state if answers else state
        if now == 20.5:
            assert all(len(state.living) >= 2 for state in loops), "half a second after the return"
    busiest = {second: max(counts.values(), default=0) for second, counts in asked.items()}
    assert max(busiest[second] for second in range(10, 20)) <= 334, "while nobody lives, every 0.3 s at most"
    assert max(busiest[second] for second in range(21, 100)) <= 100, "a loop asks an address once a second at most"
    dead_ones = [asked[second][address(n)] for second in range(70, 100) for n in range(9, 13)]
    assert 1 <= sum(dead_ones) / len(dead_ones) <= 6
    assert max(dead_ones) <= 20, "they do not come back together"
