from collections import Counter

import pytest

from discovery.config.clock import SystemClock
from discovery.core.answers import OffsetsAnswer
from discovery.core.backoff import full_jitter
from discovery.core.budget import Deadline
from discovery.core.errors import ConfigError, FailureKind, GatewayError
from discovery.core.interest import CUT_LEDGER_TOPIC, SINK_LEDGER_TOPIC, Interest
from discovery.core.model import (
    BrokerAddress,
    BrokerId,
    ClusterId,
    PartitionOffsets,
    TopicName,
    TopicPartition,
    Verdict,
    parse_bootstrap_servers,
)
from discovery.core.offsets import OffsetBook
from discovery.core.parking import parked_reason
from discovery.core.pin import Conflict, Pin, choose_pin
from discovery.core.policy import Policy
from discovery.core.quarantine import due, revived
from discovery.core.state import initial_state
from discovery.core.verdict import conclude
from tests.unit.core.core_values import (
    OURS,
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

T0 = TopicPartition(TopicName("t"), 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b1:9092", BrokerAddress("b1", 9092)),
        (" SSL://b1:9093 ", BrokerAddress("b1", 9093)),
        ("[::1]:9092", BrokerAddress("::1", 9092)),
    ],
)
def test_given_an_address_when_parsed_then_it_reads_back(text: str, expected: BrokerAddress) -> None:
    assert BrokerAddress.parse(text) == expected
    assert BrokerAddress.parse(str(expected)) == expected


@pytest.mark.parametrize("text", ["b1", "b1:", ":9092", "b1:0", "b1:65536", "b1:x", "b1:-1", "b1:٣"])
def test_given_a_malformed_address_when_parsed_then_the_message_names_option_and_value(text: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers: .*host:port"):
        BrokerAddress.parse(text, option="kafka.bootstrap.servers")


def test_given_a_list_with_repeats_when_parsed_then_each_comes_once_in_order() -> None:
    assert parse_bootstrap_servers("b2:1,b1:1, b2:1,") == (BrokerAddress("b2", 1), BrokerAddress("b1", 1))


def test_given_an_empty_list_when_parsed_then_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="the list is empty"):
        parse_bootstrap_servers(" , ")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"connect_timeout_seconds": 6.0}, ("connect_timeout_seconds", "request_timeout_seconds")),
        ({"request_timeout_seconds": 10.0}, ("request_timeout_seconds", "api_timeout_seconds")),
        ({"api_timeout_seconds": 60.0}, ("api_timeout_seconds", "staleness_seconds")),
        ({"interval_seconds": 0.0}, ("interval_seconds",)),
        ({"staleness_seconds": float("inf")}, ("staleness_seconds",)),
    ],
)
def test_given_timeouts_that_contradict_when_made_then_both_fields_are_named(
    changes: dict[str, float], named: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        Policy(**changes)  # type: ignore[arg-type]
    assert all(name in str(caught.value) for name in named)


def test_given_a_connection_alone_when_concluded_then_it_is_refused_as_proof() -> None:
    outcome = alive(1)
    with pytest.raises(ValueError, match="no answer"):
        conclude(type(outcome)(address=address(1), tcp_only=True), pin=None, snapshot=None)


def test_given_an_answer_without_brokers_or_without_cluster_id_when_concluded_then_it_is_stale() -> None:
    empty = type(alive(1))(address=address(1), cluster_id=OURS)
    anonymous = type(alive(1))(address=address(1), brokers=alive(1).brokers)
    assert conclude(empty, pin=OURS, snapshot=None)[0] is Verdict.STALE
    assert conclude(anonymous, pin=OURS, snapshot=None)[0] is Verdict.STALE


@pytest.mark.parametrize(
    ("votes", "silent", "waited", "expected"),
    [
        ({}, 0, 9.0, None),
        ({1: OURS}, 1, 0.0, None),
        ({1: OURS}, 1, 0.5, Pin(OURS)),
        ({1: OURS}, 0, 0.0, Pin(OURS)),
        ({1: OURS, 2: OURS}, 5, 0.0, Pin(OURS)),
        ({1: OURS, 2: THEIRS}, 1, 0.0, None),
        ({1: OURS, 2: OURS, 3: THEIRS}, 1, 0.1, None),
        ({1: OURS, 2: OURS, 3: THEIRS}, 0, 0.1, Pin(OURS)),
    ],
)
def test_given_votes_when_choosing_a_pin_then_the_table_holds(
    votes: dict[int, ClusterId], silent: int, waited: float, expected: Pin | None
) -> None:
    named = {address(n): c for n, c in votes.items()}
    assert choose_pin(named, silent=silent, waited_seconds=waited, settle_seconds=0.5) == expected


def test_given_a_tie_when_choosing_a_pin_then_the_conflict_names_both_clusters_and_the_option() -> None:
    choice = choose_pin({address(1): OURS, address(2): THEIRS}, silent=0, waited_seconds=0, settle_seconds=0.5)
    assert isinstance(choice, Conflict)
    assert all(word in choice.sentence for word in ("ours: b1:9092", "theirs: b2:9092", "clusterId"))


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


def test_given_a_dead_leader_when_it_rests_then_it_is_still_asked_every_cycle() -> None:
    state = settled(4, topic(leader=4))
    for _ in range(8):
        state = run(state, dead(4)).state
    assert address(4) in due(state, policy=POLICY, now=1.0).full


def test_given_wrong_credentials_when_refused_then_the_broker_is_asked_slowly_also_when_nobody_else_lives() -> None:
    state = run(initial_state([address(1)]), dead(1, Verdict.AUTH_FAILED)).state
    assert due(state, policy=POLICY, now=POLICY.quarantine_cap_seconds - 0.1).full == ()
    assert due(state, policy=POLICY, now=POLICY.quarantine_cap_seconds).full == (address(1),)


def test_given_unanswered_partitions_when_reported_again_then_the_mark_goes_and_offsets_stay() -> None:
    seen = OffsetsAnswer(
        leader_id=BrokerId(1), asked=(T0,), offsets={T0: PartitionOffsets(start_offset=1, high_watermark=5)}
    )
    silent = OffsetsAnswer(leader_id=BrokerId(1), asked=(T0,), offsets={}, detail="no answer within 1 s")
    book = OffsetBook().with_answer(seen, now=1.0).with_answer(silent, now=2.0).with_answer(silent, now=3.0)
    assert book.unanswered[T0] == (2.0, "no answer within 1 s")
    assert book.offsets[T0].high_watermark == 5
    grown = OffsetsAnswer(leader_id=BrokerId(1), asked=(T0,), offsets={T0: PartitionOffsets(high_watermark=9)})
    book = book.with_answer(grown, now=4.0)
    assert book.offsets[T0] == PartitionOffsets(start_offset=1, high_watermark=9)
    assert not book.unanswered
    assert not book.without_topic(TopicName("t")).offsets


def test_given_each_trouble_when_a_partition_is_parked_then_the_reason_names_it() -> None:
    state = settled(2, topic(partitions=1))
    led = snapshot_of(state).topics[TopicName("t")].partitions[0]
    nobody = topic(partitions=1, leader=None).partitions[0]
    stranger = topic(partitions=1, leader=7).partitions[0]
    dead_leader = run(state, dead(1)).state
    cases = [
        (nobody, state, True, None, "no leader"),
        (stranger, state, True, None, "broker 7, is not listed"),
        (led, dead_leader, True, None, "broker 1 at b1:9092, is refused"),
        (led, state, True, "no answer within 1 s", "no answer within 1 s"),
        (led, state, False, None, "has not reported its end offset yet"),
    ]
    for partition, known, end_known, unanswered, expected in cases:
        assert expected in (parked_reason(partition, known, end_known=end_known, unanswered=unanswered) or "")
    assert parked_reason(led, state, end_known=True, unanswered=None) is None


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


def test_given_arguments_out_of_range_when_backing_off_or_budgeting_then_they_are_refused() -> None:
    with pytest.raises(ValueError, match="out of range"):
        full_jitter(base_seconds=0, cap_seconds=1, failures=1, fraction=0.5)
    with pytest.raises(ValueError, match="negative"):
        Deadline.after(-1, now=0)


def test_given_the_system_clock_when_asked_then_monotonic_time_does_not_go_back_and_wall_time_is_an_epoch() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.wall() > 1_700_000_000


def test_given_a_gateway_error_when_shown_then_it_is_its_detail() -> None:
    error = GatewayError(FailureKind.AUTH, "b1:9092 refused the login")
    assert (str(error), error.kind) == ("b1:9092 refused the login", FailureKind.AUTH)


def test_given_a_partition_when_shown_then_it_reads_as_kafkas_tools_write_it() -> None:
    assert str(T0) == "t-0"


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


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", CUT_LEDGER_TOPIC, SINK_LEDGER_TOPIC])
def test_given_an_internal_topic_when_followed_then_a_name_means_it_and_no_pattern_does(name: str) -> None:
    assert Interest(topics=(TopicName(name),)).wants_topic(TopicName(name))
    assert not Interest(pattern="").wants_topic(TopicName(name))
    assert not Interest(pattern="^__").wants(TopicPartition(TopicName(name), 0))
