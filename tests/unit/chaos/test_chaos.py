from tests.chaos.joint.soak import failures as joint_failures
from tests.chaos.joint.soak import section as joint_section
from tests.chaos.seeds import shrunk
from tests.chaos.service.rounds import plan_of, section
from tests.chaos.service.soak import failures as soak_failures
from tests.chaos.service.soak import section as soak_section


def test_given_a_seed_when_drawn_twice_then_the_plan_is_the_same_and_seeds_differ() -> None:
    assert plan_of(7) == plan_of(7)
    assert len({tuple(plan_of(seed)) for seed in range(50)}) == 50
    assert {fault for seed in range(100) for fault, _ in plan_of(seed)} >= {"kill", "kill in silence", "damage", "down"}


def test_given_a_failing_plan_when_shrunk_then_nothing_in_it_can_be_left_out() -> None:
    plan = [(fault, number) for number, fault in enumerate(["move", "kill", "down", "heal", "damage", "slow"])]

    def fails(part: object) -> bool:
        return isinstance(part, list) and {"kill", "damage"} <= {fault for fault, _ in part}

    assert shrunk(plan, fails=fails) == [("kill", 1), ("damage", 4)]


def test_given_a_seed_that_failed_when_rendered_then_it_is_not_hidden() -> None:
    held = {"seed": 1, "faults": ["kill"], "broken": "", "least": []}
    broke = {"seed": 2, "faults": ["kill", "move"], "broken": "generation 3 after 4", "least": [("kill", 5)]}
    text = section({"seeds": [held, broke]})
    assert "**1 of 2 held**" in text
    assert "seed 2: kill: generation 3 after 4" in text


def test_given_a_soak_when_rendered_then_what_grows_and_what_did_not_heal_is_said() -> None:
    slopes = {
        "memory, MiB": {"median": 70.0, "an_hour": 5.0, "either_way": 1.0},
        "threads": {"median": 13.0, "an_hour": 0.1, "either_way": 1.0},
    }
    rounds = [{"round": 1, "healed_seconds": 2.0}, {"round": 2, "healed_seconds": None}]
    text = soak_section(
        {"minutes": 1, "seed": 2, "rounds": rounds, "slopes": slopes, "generation_went_back": 0, "unexpected_errors": 0}
    )
    assert "it was 1 times" in text
    assert "| memory, MiB | 70 | +5 ± 1 | **yes** |" in text
    assert "| threads | 13 | +0.1 ± 1 | no |" in text


def test_given_a_soak_of_all_when_rendered_then_a_broken_promise_and_what_grew_are_said() -> None:
    slopes = {
        "service: memory, MiB": {"median": 70.0, "an_hour": 5.0, "either_way": 1.0},
        "state on disk, kB": {"median": 7.0, "an_hour": None, "either_way": None},
    }
    result = {"minutes": 1, "seed": 2, "rounds": 3, "records": 12_345, "ended": 0, "broken": "", "slopes": slopes}
    text = joint_section(result)
    assert "every promise held" in text
    assert "12,345 records" in text
    assert "Sure to have grown in this run: service: memory, MiB." in text
    assert "state on disk" not in text
    assert "did not hold: 3 records came twice" in joint_section(result | {"broken": "3 records came twice"})


def test_given_a_soak_in_which_something_grows_when_it_ends_then_it_fails() -> None:
    grown = {"median": 70.0, "an_hour": 5.0, "either_way": 1.0}
    still = {"rounds": [{"round": 1, "healed_seconds": 2.0}], "generation_went_back": 0, "unexpected_errors": 0}
    assert not soak_failures(still | {"slopes": {"threads": grown | {"either_way": 5.0}}})
    assert not joint_failures({"broken": "", "slopes": {"visible again after, s": grown}})
    assert soak_failures(still | {"slopes": {"threads": grown}}) == ["grows: threads"]
    assert joint_failures({"broken": "", "slopes": {}, "heaps": {"C heap": grown}}) == ["grows: C heap"]
    assert joint_failures({"broken": "3 records lost", "slopes": {"memory": grown}}) == [
        "3 records lost",
        "grows: memory",
    ]
    unhealed = {"rounds": [{"round": 2, "healed_seconds": None}], "generation_went_back": 1, "unexpected_errors": 1}
    assert soak_failures(unhealed | {"slopes": {}}) == [
        "round 2 did not heal within 60 s",
        "generations went back",
        "unexpected errors",
    ]
