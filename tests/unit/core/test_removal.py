"""The verdict on a removal, case by case, without a cluster."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from discovery.core.errors import ConfigError
from discovery.core.model import (
    Broker,
    BrokerAddress,
    BrokerId,
    PartitionMetadata,
    TopicMetadata,
    TopicName,
    TopicPartition,
)
from discovery.core.prediction.removal import (
    GROUPS,
    TRANSACTIONS,
    Removal,
    RemovalFacts,
    Safety,
    coordinator_partition,
    judge,
    parse_broker_ids,
    parse_lists,
    verify,
)
from discovery.core.prediction.removal_report import commands, plan_text, removal_document, text_lines

T = TopicName("t")


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def partition(index: int, replicas: Collection[int], in_sync: Collection[int] | None = None) -> PartitionMetadata:
    synced = replicas if in_sync is None else in_sync
    leader = next(iter(synced), None)
    return PartitionMetadata(
        partition=index,
        leader_id=None if leader is None else BrokerId(leader),
        replicas=ids(*replicas),
        in_sync=ids(*synced),
    )


def topic(*partitions: PartitionMetadata, name: TopicName = T) -> TopicMetadata:
    return TopicMetadata(name=name, partitions=partitions)


def facts(*topics: TopicMetadata, brokers: int = 4, minimum: int = 1, **more: Any) -> RemovalFacts:
    listed = tuple(Broker(broker_id=BrokerId(b), address=BrokerAddress(f"b{b}", 9092)) for b in range(1, brokers + 1))
    more = {"clients_known": True, "alive": {broker.address: broker.broker_id for broker in listed}, **more}
    return RemovalFacts(brokers=listed, topics=topics, min_in_sync={t.name: minimum for t in topics}, **more)


def codes(found: Removal) -> list[str]:
    return [finding.code for finding in found.findings]


def test_given_a_drained_broker_when_judged_then_it_is_safe_and_the_next_commands_are_reported() -> None:
    seen = facts(topic(partition(0, [1, 2])))
    found = judge(seen, ids(4))
    assert (found.safety, codes(found)) == (Safety.SAFE, [])
    assert found.sentence == "safe: broker 4 can be removed"
    assert commands(found, seen) == [
        "stop broker 4",
        "kafka-cluster unregister --bootstrap-server b1:9092,b2:9092,b3:9092 --id 4",
        "kafka-discovery removal --bootstrap b1:9092,b2:9092,b3:9092 --brokers 4 --verify",
    ]


@pytest.mark.parametrize(
    ("held", "minimum", "code"),
    [
        (partition(0, [4]), 1, "last-replica"),
        (partition(0, [4, 1], [4]), 1, "last-in-sync"),
        (partition(0, [4, 1, 2]), 3, "below-min"),
        (partition(0, [1, 2, 4]), 2, "replicas"),
    ],
)
def test_given_a_replica_on_it_when_judged_then_it_is_not_safe_and_the_partition_is_named(
    held: PartitionMetadata, minimum: int, code: str
) -> None:
    found = judge(facts(topic(held), minimum=minimum), ids(4))
    assert found.safety is Safety.NOT
    (finding,) = [one for one in found.findings if one.code == code]
    assert finding.subjects == ("t-0",)
    assert code in found.sentence


def test_given_a_broker_that_comes_back_when_judged_then_fewer_copies_will_do_and_lost_ones_will_not() -> None:
    assert judge(facts(topic(partition(0, [1, 2, 4])), minimum=2), ids(4), temporary=True).safety is Safety.SAFE
    assert judge(facts(topic(partition(0, [4, 1, 2])), minimum=3), ids(4), temporary=True).safety is Safety.NOT


def test_given_what_moves_by_itself_when_judged_then_it_is_reported_and_safe_for_a_while() -> None:
    offsets = topic(*(partition(index, [4, 1]) for index in range(4)), name=GROUPS)
    transactions = topic(partition(0, [4, 1]), partition(1, [1, 4]), name=TRANSACTIONS)
    found = judge(facts(offsets, transactions, groups=("dau",)), ids(4), temporary=True)
    assert found.safety is Safety.SAFE
    assert {"groups", "transactions", "leaders", "replicas"} == set(codes(found))
    (named,) = [finding for finding in found.findings if finding.code == "transactions"]
    assert named.subjects == ("__transaction_state-0",)
    assert named.sentence.startswith("Broker 4 is a transaction coordinator: 1 of 2 partitions move (")
    led_elsewhere = topic(*(partition(index, [1, 4]) for index in range(4)), name=GROUPS)
    quiet = topic(partition(0, [1, 4]), name=TRANSACTIONS)
    assert codes(judge(facts(led_elsewhere, quiet, groups=("dau",)), ids(4), temporary=True)) == ["replicas"]
    assert judge(facts(topic(name=GROUPS), groups=("dau",)), ids(4)).safety is Safety.SAFE


def test_given_names_of_groups_when_hashed_then_it_is_javas_hash() -> None:
    assert coordinator_partition("hello", 50) == 99162322 % 50
    assert coordinator_partition("polygenelubricants", 50) == 0  # its hash is the least integer, which has no opposite
    assert coordinator_partition("zzzzzzzz", 50) == abs(-(2**32) + _java("zzzzzzzz")) % 50
    assert coordinator_partition("ä€😀", 7) == abs(_signed(_java("ä€😀"))) % 7


def _java(text: str) -> int:
    value, data = 0, text.encode("utf-16-be")
    for place in range(0, len(data), 2):
        value = (value * 31 + data[place] * 256 + data[place + 1]) % 2**32
    return value


def _signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


def test_given_lists_that_name_it_when_judged_then_the_empty_and_the_thin_are_named() -> None:
    b = [BrokerAddress(f"b{n}", 9092) for n in range(5)]
    lists = {"consumer dau": (b[4],), "job b": (b[4], b[1], b[0]), "job c": (b[4], b[1], b[2]), "job d": (b[1],)}
    found = judge(facts(lists=lists, dead=frozenset({b[0]})), ids(4))
    reported = {finding.sentence.split(" lists")[0].split(" keeps")[0].split(":")[0] for finding in found.findings}
    assert codes(found) == ["list-empty", "list-thin", "list-entries", "list-entries", "list-entries"]
    assert reported == {"consumer dau", "job b", "job c"}
    assert found.safety is Safety.NOT
    assert "in those lists: kafka.bootstrap.servers=b1:9092,b2:9092,b3:9092" in commands(found, facts())


def test_given_entries_that_nobody_judged_when_they_would_decide_then_it_is_unknown_and_they_are_named() -> None:
    gone1, gone2, b4 = BrokerAddress("gone1", 9092), BrokerAddress("gone2", 9092), BrokerAddress("b4", 9092)
    found = judge(facts(lists={"dau": (gone1, gone2, b4)}), ids(4))
    assert (found.safety, codes(found)) == (Safety.UNKNOWN, ["list-unknown", "list-entries"])
    assert found.findings[0].subjects == ("gone1:9092", "gone2:9092"), "those in question, not the one that leaves"
    asked = facts(lists={"consumer dau": (gone1, b4)})
    assert commands(judge(asked, ids(4)), asked)[-1].endswith("--brokers 4 --lists FILE"), "a service asks no stranger"
    unrelated = judge(facts(lists={"dau": (gone1,)}), ids(4))
    assert codes(unrelated) == ["list-unknown"], "it may be another name of the broker that leaves"
    enough = (b4, gone1, BrokerAddress("b1", 9092), BrokerAddress("b2", 9092))
    assert judge(facts(lists={"dau": enough}), ids(4)).safety is Safety.SAFE, "whatever it is, two others live"
    judged = judge(facts(lists={"dau": (gone1, gone2, b4)}, dead=frozenset({gone1, gone2})), ids(4))
    assert (judged.safety, codes(judged)) == (Safety.NOT, ["list-empty", "list-entries"])


def test_given_other_names_of_brokers_when_judged_then_the_broker_that_answers_there_counts() -> None:
    alias, other, balancer = (BrokerAddress(host, 9092) for host in ("10.0.0.4", "kafka", "balancer"))
    b1, b2, b4 = (BrokerAddress(f"b{n}", 9092) for n in (1, 2, 4))
    names = {alias: BrokerId(4), other: BrokerId(1), balancer: None}
    seen = facts()
    seen = replace(seen, alive={**seen.alive, **names})
    for entries, wanted in (
        ((alias,), ["list-empty", "list-entries"]),
        ((alias, b4), ["list-empty", "list-entries"]),
        ((b4, b1, other), ["list-thin", "list-entries"]),
        ((b4, b1, other, b2), ["list-entries"]),
        ((b4, b1, balancer), ["list-balanced", "list-entries"]),
        ((b4, b1, b2, balancer), ["list-entries"]),
    ):
        assert codes(judge(replace(seen, lists={"dau": entries}), ids(4))) == wanted, entries


def test_given_no_clients_list_when_judged_then_it_is_unknown_until_one_is_given_or_somebody_confirms() -> None:
    drained = facts(topic(partition(0, [1, 2])), clients_known=False)
    for temporary in (False, True):
        unknown = judge(drained, ids(4), temporary=temporary)
        assert (unknown.safety, codes(unknown)) == (Safety.UNKNOWN, ["clients-unknown"])
    assert "--lists FILE" in unknown.findings[0].sentence
    assert judge(replace(drained, clients_known=True), ids(4)).safety is Safety.SAFE
    assert judge(facts(topic(partition(0, [4])), clients_known=False), ids(4)).safety is Safety.NOT
    assert verify(facts(topic(partition(0, [1, 2])), brokers=3, clients_known=False), ids(4)).safety is Safety.SAFE


def test_given_lists_in_a_file_when_read_then_each_has_its_name_and_a_wrong_line_is_named() -> None:
    text = "# streams\ndau = b4:9092, b1:9092\n\nvisits=b4:9092 # nightly\n"
    assert parse_lists(text) == {
        "dau": (BrokerAddress("b4", 9092), BrokerAddress("b1", 9092)),
        "visits": (BrokerAddress("b4", 9092),),
    }
    for wrong, said in (
        ("", "there is no list"),
        ("dau", "line 1 \\('dau'\\) is not like"),
        ("a = b\n", "line 1: 'b'"),
    ):
        with pytest.raises(ConfigError, match=f"--lists: {said}"):
            parse_lists(wrong, option="--lists")


def test_given_a_controller_or_everybody_when_judged_then_it_is_not_safe() -> None:
    voter = judge(facts(voters=frozenset(ids(1, 4, 100))), ids(4))
    assert codes(voter) == ["controller"]
    assert "Broker 4 is a controller: of the quorum's 3 known voters only 1, 100 would still vote" in str(voter)
    alone = judge(facts(voters=frozenset(ids(100))), ids(100))
    assert (alone.safety, codes(alone)) == (Safety.NOT, ["controller"]), "a controller that is no broker"
    assert "nobody would vote any more" in str(alone)
    everybody = judge(facts(brokers=2), ids(1, 2))
    assert codes(everybody) == ["nobody-left"]
    assert "brokers 1, 2" in everybody.sentence
    assert (
        commands(everybody, facts(brokers=2))[-1]
        == "kafka-discovery removal --bootstrap HOST:PORT --brokers 1,2 --lists FILE"
    )


def test_given_an_id_that_nobody_lists_when_judged_then_it_is_unknown_and_verified_it_is_complete() -> None:
    for temporary in (False, True):
        found = judge(facts(), ids(8, 9), temporary=temporary)
        assert (found.safety, codes(found)) == (Safety.UNKNOWN, ["not-listed"])
        assert "Brokers 8, 9 are not among" in found.findings[0].sentence
    assert verify(facts(), ids(8, 9)).safety is Safety.SAFE


def test_given_anything_unknown_when_judged_then_it_is_never_safe() -> None:
    for verdict, brokers in ((judge, 4), (verify, 3)):
        doubted = verdict(facts(topic(partition(0, [1, 2])), brokers=brokers, doubts=("groups: silent.",)), ids(4))
        assert (doubted.safety, codes(doubted)[0]) == (Safety.UNKNOWN, "unknown")
        nothing = verdict(RemovalFacts(brokers=(), topics=(), doubts=("no answer.",)), ids(4))
        assert nothing.safety is Safety.UNKNOWN
    unsure = replace(facts(topic(partition(0, [1, 2, 4]))), min_in_sync={})
    assert judge(unsure, ids(4), temporary=True).safety is Safety.UNKNOWN
    assert judge(unsure, ids(4)).safety is Safety.NOT
    assert "do not remove" in judge(unsure, ids(4), temporary=True).sentence
    assert verify(unsure, ids(9)).safety is Safety.UNKNOWN


def test_given_replicas_on_it_when_judged_then_the_plan_moves_them_where_it_can() -> None:
    many = facts(topic(*(partition(index, [4, 1]) for index in range(9))))
    found = judge(many, ids(4))
    assert all(4 not in to and len(to) == 2 for to in found.plan.values())
    assert set(found.plan) == {TopicPartition(T, index) for index in range(9)}
    assert "and 1 more" in found.findings[0].sentence
    document = removal_document(found, many)
    assert document["commands"][0].endswith("--plan plan.json")
    assert '"topic": "t"' in plan_text(document["plan"])
    assert [mark for mark, _ in text_lines(document)] == ["✗", "!", "·", "→", "→", "→", "→"]
    assert judge(facts(topic(partition(0, [1, 2, 3, 4]))), ids(4)).plan == {}


def test_given_a_removal_when_verified_then_what_is_left_behind_is_named() -> None:
    done = facts(topic(partition(0, [1, 2])), brokers=3)
    complete = verify(done, ids(4))
    assert complete.safety is Safety.SAFE
    assert removal_document(complete, done, verified=True)["sentence"].startswith("complete")
    assert removal_document(complete, done, verified=True)["commands"] == []
    left = facts(topic(partition(0, [1, 4], [1]), partition(1, [4], []), partition(2, [1, 2], [1])), minimum=2)
    found = verify(left, ids(4))
    assert codes(found) == ["still-listed", "still-replicas", "leaderless", "below-min"]
    document = removal_document(found, left, verified=True)
    assert document["sentence"] == "not complete: still-listed, still-replicas, leaderless, below-min"
    assert any("unregister" in command for command in document["commands"])
    assert document["commands"][-1].endswith("--verify")
    doubted = replace(done, doubts=("x",))
    assert removal_document(verify(doubted, ids(4)), doubted, verified=True)["sentence"].startswith("unknown")


def test_given_no_broker_or_no_id_when_asked_then_it_is_refused() -> None:
    assert parse_broker_ids("9, 10,11") == frozenset(ids(9, 10, 11))
    for wrong in ("", ",", "b9", "-1", "9999999999", "²"):
        with pytest.raises(ConfigError, match="--brokers"):
            parse_broker_ids(wrong, option="--brokers")
    for verdict in (judge, verify):
        with pytest.raises(ValueError, match="at least one"):
            verdict(facts(), ())
