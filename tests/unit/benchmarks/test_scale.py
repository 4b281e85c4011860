"""The simulation of large fleets, small: what it counts can be worked out by hand."""

import json
from pathlib import Path

import pytest

from benchmarks.scale import chart, page, section
from benchmarks.scale.cases import WAYS, Fleet, Size, at_rest, outage

SMALL = Size(clusters=4, brokers=6, topics=2, partitions=12)
IDLE, FEW, FOLLOWED, SLOWER, BY_QUERY = WAYS
ROOT = Path(__file__).parents[3]


def test_given_a_small_fleet_when_followed_then_each_leader_is_asked_as_often_as_the_policy_says() -> None:
    told = at_rest(SMALL, FOLLOWED, played=2, seconds=20)
    asked = told["requests_a_second_to_one_broker"]
    ends, starts = 1 / 0.2, 1 / 10
    assert ends * 0.7 < asked["offsets"] <= ends + starts
    assert asked["connect"] == pytest.approx(1.0, abs=0.2), "a knock at every address in each cycle"
    assert told["loops"] == SMALL.clusters
    assert told["cores_of_our_code"] > 0
    partitions = SMALL.clusters * SMALL.topics * SMALL.partitions
    assert told["work_a_second"]["end"] == pytest.approx(partitions * asked["offsets"], rel=0.01)


def test_given_nobody_who_follows_when_simulated_then_offsets_are_hardly_asked_for() -> None:
    idle = at_rest(SMALL, IDLE, played=1, seconds=20)["requests_a_second_to_one_broker"]
    followed = at_rest(SMALL, SLOWER, played=1, seconds=20)["requests_a_second_to_one_broker"]
    assert idle["offsets"] < 0.5 < followed["offsets"] < 2.5


def test_given_loops_of_queries_when_simulated_then_each_of_them_asks() -> None:
    told = at_rest(SMALL, BY_QUERY, played=1, seconds=10)
    assert told["loops"] == SMALL.clusters * SMALL.topics
    assert told["requests_a_second_to_one_broker"]["connect"] == pytest.approx(SMALL.topics, abs=0.4)


def test_given_an_outage_when_all_return_at_once_then_all_is_known_soon_and_nobody_is_flooded() -> None:
    told = outage(SMALL, FOLLOWED, played=2, outage_seconds=40, after_seconds=30)
    assert told["all_offsets_known_after_seconds"] is not None
    assert told["all_offsets_known_after_seconds"] <= 15
    assert told["during"] < told["before"], "silence is not answered by asking more"
    assert told["peak_after_the_return"] < 3 * told["before"]


def test_given_the_same_fleet_when_played_twice_then_the_same_is_asked() -> None:
    def play() -> object:
        fleet = Fleet(SMALL, BY_QUERY, played=2)
        fleet.engine.run(10.0)
        return fleet.asked.by_second

    assert play() == play()


def test_given_the_published_run_when_told_then_the_committed_page_is_the_same() -> None:
    result = json.loads((ROOT / "benchmarks/results/scale.json").read_text())
    assert (ROOT / "docs/explanation/scale.md").read_text() == page(result)
    assert section(result) in (ROOT / "benchmarks/README.md").read_text()
    assert (ROOT / "benchmarks/results/scale.svg").read_text() == chart(result)
