"""How predictions are drawn and judged, without brokers; and what the kept run of removals found."""

import json
from collections import Counter
from typing import Any

from discovery.core.model import BrokerAddress, TopicName
from discovery.core.prediction.clients import ClientKind
from discovery.core.prediction.forecast import Forecast, Start
from discovery.core.prediction.removal import GROUPS, TRANSACTIONS, RemovalFacts, judge
from discovery.core.prediction.removal_report import removal_document
from tests.chaos.prediction.comparison import Started, is_sure, judge_starts, likely, missed_by_chance, starts_needed
from tests.chaos.prediction.removals import draw_removals, foreseen
from tests.chaos.prediction.scenarios import MOST_LIVING, VERSIONS, draw
from tests.chaos.report import RESULTS
from tests.unit.core.test_removal import facts, ids, partition, topic

SURE = Forecast(starts=(Start(probability=1.0, seconds=8, failed=True),))
EVEN = Forecast(
    starts=(Start(probability=0.5, seconds=8, failed=True), Start(probability=0.5, seconds=0, failed=False))
)


def test_given_a_sure_prediction_when_one_start_differs_then_it_is_wrong() -> None:
    failed, ok = Started(ok=False, seconds=8, error="x"), Started(ok=True, seconds=8)
    assert judge_starts("n", "w", SURE, [failed] * 4).outcome_right
    assert not judge_starts("n", "w", SURE, [failed] * 3 + [ok]).outcome_right
    assert judge_starts("n", "w", SURE, [failed]).error == "x"
    assert (starts_needed(SURE, sure=4, unsure=40), starts_needed(EVEN, sure=4, unsure=40)) == (4, 40)
    assert is_sure(SURE)
    assert not is_sure(EVEN)


def test_given_an_even_chance_when_counted_then_only_what_it_hardly_brings_is_wrong() -> None:
    assert [likely(0.5, 40, hits) for hits in (0, 8, 20, 32, 40)] == [False, False, True, False, False]
    assert [likely(0.02, 40, hits) for hits in (0, 3, 8)] == [True, True, False]


def test_given_times_when_judged_then_a_factor_of_one_and_a_half_is_the_limit() -> None:
    for seconds, right in ((8, True), (11.9, True), (12.1, False), (5.4, True), (5.2, False)):
        assert judge_starts("n", "w", SURE, [Started(ok=False, seconds=seconds)]).time_right is right


def test_given_times_that_differ_when_few_starts_are_counted_then_chance_alone_may_miss_the_factor() -> None:
    assert missed_by_chance(SURE, 4) == 0
    assert 0.4 < missed_by_chance(EVEN, 4) < 0.42
    assert missed_by_chance(EVEN, 400) < 0.001


def test_given_a_seed_when_drawn_then_it_is_the_same_and_covers_versions_kinds_and_sizes() -> None:
    drawn = draw(60, seed=1)
    assert drawn == draw(60, seed=1)
    assert len({one.name for one in drawn}) == 60
    assert {one.version for one in drawn} == set(VERSIONS)
    assert {one.kind for one in drawn} == set(ClientKind)
    assert all(2 <= one.living + sum(one.dead.values()) <= 12 for one in drawn)


def test_given_a_seed_when_removals_are_drawn_then_half_are_ready_and_lists_hold_every_kind_of_entry() -> None:
    cases = list(draw_removals(MOST_LIVING, 40, seed=1))
    assert cases == list(draw_removals(MOST_LIVING, 40, seed=1))
    assert [len(case.leaving) for case in cases[:3]] == [1, 2, 3]
    assert sum(case.emptied for case in cases) == 30
    assert {case.temporary for case in cases if not case.emptied} == {True, False}
    assert not any(case.temporary for case in cases if case.emptied)
    entries = {entry.rpartition("-")[0] for case in cases for entries in case.lists.values() for entry in entries}
    assert entries == {"", "also", "gone"}
    for case in cases:
        for used in case.lists.values():
            assert {int(one.rpartition("-")[2]) for one in used if "gone" not in one} & set(case.leaving)
    assert "emptied" in cases[1].words


def said_of(seen: RemovalFacts, **more: bool) -> dict[str, Any]:
    return removal_document(judge(seen, ids(4), **more), seen)


def test_given_findings_when_foreseen_then_uses_are_named() -> None:
    lists = {"list-0": (BrokerAddress("b4", 9092),), "list-1": (BrokerAddress("b1", 9092),)}
    lost = facts(topic(partition(0, [4]), name=TopicName("rf1")), lists=lists)
    assert foreseen(said_of(lost, temporary=True), lists) == ("consumer rf1", "list-0", "producer rf1")
    closed = facts(topic(partition(0, [4, 1]), name=TopicName("rf3-min2")), minimum=2)
    assert foreseen(said_of(closed), lists) == ("producer rf3-min2", "transaction")
    states = [topic(*(partition(n, [4]) for n in range(4)), name=name) for name in (GROUPS, TRANSACTIONS)]
    assert foreseen(said_of(facts(*states)), {}) == ("group", "transaction")
    unreadable = facts(topic(partition(0, [4]), name=TopicName("rf3-min2")))
    assert "list-1" in foreseen(said_of(unreadable), lists)
    assert foreseen(said_of(facts(doubts=("x",))), lists) == ()


def test_given_the_kept_run_when_read_then_enough_removals_of_either_verdict_were_played_and_all_were_right() -> None:
    removals = json.loads((RESULTS / "prediction.json").read_text())["removals"]
    assert [one for one in removals if one["predicted"] != one["broken"]] == []
    assert [one for one in removals if one["verdict"] == "safe" and one["broken"]] == []
    verdicts = Counter(one["verdict"] for one in removals)
    assert min(verdicts["safe"], verdicts["not"]) >= 20, verdicts
    assert sum(one["verdict"] == "not" and bool(one["broken"]) for one in removals) >= 10
