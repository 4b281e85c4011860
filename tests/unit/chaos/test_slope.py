import random

import pytest

from tests.chaos.slope import Series, _student, growing, grows, slope, table

HOUR = [float(second) for second in range(0, 3600, 10)]


def test_given_a_straight_line_when_fitted_then_its_growth_is_known_exactly() -> None:
    found = slope(HOUR, [100 + 5 * second / 3600 for second in HOUR])
    assert found is not None
    assert found.an_hour == pytest.approx(5)
    assert found.either_way == pytest.approx(0, abs=1e-6)
    assert found.grows


def test_given_a_warm_up_when_fitted_then_it_is_left_out() -> None:
    found = slope(HOUR, [min(second, 600) for second in HOUR])
    assert found is not None
    assert found.an_hour == pytest.approx(0)
    assert not found.grows


def test_given_noise_alone_when_fitted_then_zero_is_in_the_interval_as_often_as_it_says() -> None:
    def holds(seed: int) -> bool:
        noise = random.Random(seed)
        found = slope(HOUR, [100 + noise.gauss(0, 1) for _ in HOUR])
        return found is not None and abs(found.an_hour) <= found.either_way

    assert 0.90 < sum(map(holds, range(300))) / 300 < 0.99


def test_given_few_samples_when_fitted_then_nothing_is_said() -> None:
    assert slope(HOUR[:10], HOUR[:10]) is None


def test_given_several_measures_when_rendered_then_each_has_its_growth_or_none() -> None:
    series, short = Series(), Series()
    for second in HOUR:
        series.add(second, {"grows": 100 + 5 * second / 3600, "stays": 3})
    short.add(0.0, {"grows": 1.0})
    seen = series.slopes()
    assert seen["grows"] == {"median": pytest.approx(102.5, abs=0.02), "an_hour": 5.0, "either_way": 0.0}
    assert [name for name in seen if grows(seen[name])] == ["grows"]
    assert short.slopes() == {"grows": {"median": 1.0, "an_hour": None, "either_way": None}}
    assert not grows(short.slopes()["grows"])
    assert table(short.slopes()) == ["Too few samples to tell what grows."]
    assert [line.split(" |")[0] for line in table(seen)[2:]] == ["| grows", "| stays"]


def test_given_resources_and_a_time_when_all_grow_then_the_resources_beyond_their_error_are_named() -> None:
    more, perhaps, unknown = (
        {"median": 1.0, "an_hour": hour, "either_way": error} for hour, error in ((2.0, 1.9), (2.0, 2.0), (None, None))
    )
    seen = {"memory, MiB": more, "state on disk, kB": perhaps, "threads": unknown, "answer, ms": more, "after, s": more}
    assert growing(seen) == ["memory, MiB"]


@pytest.mark.parametrize(("free", "quantile"), [(6, 2.447), (10, 2.228), (30, 2.042)])
def test_given_degrees_of_freedom_when_the_quantile_is_asked_for_then_it_is_students(
    free: int, quantile: float
) -> None:
    assert _student(free) == pytest.approx(quantile, rel=0.01)
