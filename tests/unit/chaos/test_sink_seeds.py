"""A seed of the sink's chaos gives the same faults again, and hits the broker that it means."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.sink.brokers import FAULTS, java_hash
from tests.chaos.sink.engine import plan_of
from tests.chaos.sink.spark import faults_of, victims_of

ROOT = Path(__file__).parents[3]
SEEDS = range(1, 30)


def drawn() -> tuple[list[object], list[object]]:
    victims = victims_of(executors=True)
    return [plan_of(seed, brokers=FAULTS) for seed in SEEDS], [faults_of(seed, victims=victims) for seed in SEEDS]


def test_given_seeds_when_drawn_twice_then_plans_are_the_same_and_seeds_differ() -> None:
    assert drawn() == drawn()
    for plans in drawn():
        assert len(set(map(repr, plans))) == len(SEEDS)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_given_seeds_when_drawn_in_another_process_then_plans_are_the_same(hash_seed: str) -> None:
    code = f"import {__name__} as seeds; print(seeds.drawn())"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.strip() == str(drawn())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("chaos-7-2", 1_493_262_415),
        ("orders-eu-0", 1_814_205_381),  # -1814205381 in Java
        ("polygenelubricants", 0),  # the smallest number, which has no positive one
    ],
)
def test_given_a_text_when_hashed_then_it_is_what_java_gives_without_its_sign(text: str, expected: int) -> None:
    assert java_hash(text) == expected
