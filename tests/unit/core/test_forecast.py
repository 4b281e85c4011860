"""What the model says of a client's start, against what a draw of its rules gives."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.core.prediction.forecast import FailureMode, Forecast, Limits, Listed, forecast

OLD = Limits(setup_seconds=None)
HOLE, SILENT = FailureMode.BLACK_HOLE, FailureMode.SILENT


def of(living: int, limits: Limits | None = None, **dead: int) -> Forecast:
    return forecast(
        Listed(living=living, dead={FailureMode(name): count for name, count in dead.items()}), limits or Limits()
    )


@pytest.mark.parametrize(
    ("limits", "share", "delay"),
    [
        (OLD, 8 / 12, 0.0),
        (Limits(), 0.02, 15.0),
        (Limits(api_seconds=30), 0.20, 9.3),
        (Limits(api_seconds=10, setup_seconds=2), 0.05, 2.7),
    ],
)
def test_given_eight_of_twelve_black_holes_when_forecast_then_it_is_the_known_table(
    limits: Limits, share: float, delay: float
) -> None:
    found = of(4, limits, black_hole=8)
    assert found.failure == pytest.approx(share, abs=0.005)
    assert found.delay_seconds == pytest.approx(delay, abs=0.1)


@pytest.mark.parametrize("holes", [3, 9, 14, 30])
def test_given_black_holes_when_drawn_thousands_of_times_then_the_forecast_agrees(holes: int) -> None:
    random, limits, drawn = Random(7), Limits(api_seconds=60, setup_seconds=4), 20_000
    times = [_draw(random, living=2, holes=holes, limits=limits) for _ in range(drawn)]
    good = [seconds for seconds in times if seconds < limits.api_seconds]
    found = of(2, limits, black_hole=holes)
    assert found.failure == pytest.approx(1 - len(good) / drawn, abs=0.015)
    assert found.delay_seconds == pytest.approx(sum(good) / len(good), rel=0.05)
    assert found.mean_seconds == pytest.approx(sum(times) / drawn, rel=0.05)


def _draw(random: Random, *, living: int, holes: int, limits: Limits) -> float:
    entries, elapsed = ["living"] * living + ["hole"] * holes, 0.0
    random.shuffle(entries)
    for entry in entries:
        if entry == "living" or elapsed >= limits.api_seconds:
            break
        elapsed += (limits.setup_seconds or 0) * random.uniform(0.8, 1.2)
    return min(elapsed, limits.api_seconds)


def test_given_no_dead_entry_when_forecast_then_a_start_costs_nothing() -> None:
    for limits in (OLD, Limits()):
        assert (of(3, limits).failure, of(3, limits).mean_seconds) == (0, 0)


def test_given_refusing_entries_when_forecast_then_they_cost_nothing() -> None:
    for limits in (OLD, Limits()):
        found = of(1, limits, refused=11)
        assert (found.failure, found.delay_seconds, found.failed_after_seconds) == (0, 0, 0)


def test_given_nobody_alive_when_forecast_then_it_fails_at_the_api_timeout() -> None:
    found = of(0, refused=2, black_hole=1, unresolvable=3)
    assert (found.failure, found.failed_after_seconds, found.delay_seconds) == (1, 60, 0)


def test_given_no_name_that_resolves_when_forecast_then_the_client_refuses_at_once() -> None:
    assert of(0, unresolvable=3).starts[0].seconds == 0
    assert of(0, unresolvable=3).failure == 1
    assert of(1, unresolvable=3).failure == 0


def test_given_a_silent_broker_when_forecast_then_it_costs_the_request_timeout() -> None:
    found = of(1, silent=1)
    assert (found.failure, found.delay_seconds) == (0, 15)
    assert of(1, silent=2).failure == pytest.approx(1 / 3)  # two times 30 s are the whole 60 s


def test_given_an_admin_client_when_a_broker_is_silent_then_it_stays_there_round_after_round() -> None:
    half = Limits(silent_escape=0.5, request_seconds=10, api_seconds=35)
    found = of(1, half, silent=1)
    assert found.failure == pytest.approx(0.5 * 0.125)
    assert {round(one.seconds): round(one.probability, 4) for one in found.starts if not one.failed} == {
        0: 0.5,
        10: 0.25,
        20: 0.125,
        30: 0.0625,
    }
    for limits in (Limits(silent_escape=0), Limits(silent_escape=0, setup_seconds=None)):
        assert of(1, limits, silent=1).failure == 0.5
    assert of(1, Limits(silent_escape=0.5, request_seconds=0.5), silent=3).failure < 1e-9


def test_given_a_consumer_when_entries_refuse_then_it_waits_longer_after_each() -> None:
    consumer = Limits(retry_seconds=0.1, retry_most_seconds=1)
    assert consumer.waited_seconds(6) == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1 + 1)
    assert of(1, consumer, refused=1).delay_seconds == pytest.approx(0.05)
    old = Limits(setup_seconds=None, retry_seconds=0.1, retry_most_seconds=0.1)
    assert of(1, old, refused=1).delay_seconds == pytest.approx(0.1)  # it may draw the same one again and again
    assert of(1, old, silent=1).failure == pytest.approx(1 / 4)


def test_given_an_unreachable_host_when_forecast_then_it_costs_three_seconds() -> None:
    assert of(1, unreachable=1).delay_seconds == pytest.approx(3.1 / 2)
    assert of(1, OLD, unreachable=1).delay_seconds == pytest.approx(3.1 / 2)


def test_given_a_broker_that_rejects_the_login_when_it_comes_first_then_the_start_fails_at_once() -> None:
    for limits in (OLD, Limits()):
        found = of(1, limits, auth_rejected=1)
        assert (found.failure, found.failed_after_seconds) == (0.5, 0)
    assert of(0, auth_rejected=1).failure == 1


def test_given_timeouts_that_do_not_grow_when_forecast_then_they_do_not_vary() -> None:
    steady = Limits(setup_seconds=10, setup_most_seconds=10, api_seconds=20)
    assert of(1, steady, black_hole=1).failure == 0
    assert of(1, steady, black_hole=2).failure == pytest.approx(1 / 3)


def test_given_an_old_client_and_patience_when_forecast_then_it_may_meet_another_hole() -> None:
    found = of(2, Limits(setup_seconds=None, api_seconds=200), black_hole=2)
    assert found.failure == pytest.approx(0.5 * 1 / 3)
    assert found.starts[0].seconds == 0
    assert of(1, Limits(setup_seconds=None, api_seconds=7), silent=1, unreachable=2).failure == pytest.approx(
        # silent first; or unreachable, then silent; or both unreachable ones in turn, then silent, and so on
        1 / 4 + 1 / 2 * (1 / 3) + 1 / 2 * (1 / 3) * 2 / 3
    )


def test_given_a_system_that_gives_up_first_when_forecast_then_that_counts() -> None:
    assert Limits(setup_seconds=10, system_seconds=3).connect_seconds == 3


def test_given_no_list_or_no_time_when_asked_then_it_is_refused() -> None:
    for living, dead in ((0, 0), (-1, 2), (1, -1)):
        with pytest.raises(ValueError, match="a list has"):
            Listed(living=living, dead={HOLE: dead})
    for name in ("api_seconds", "request_seconds", "setup_seconds", "retry_seconds", "silent_escape"):
        with pytest.raises(ValueError, match="above 0"):
            Limits(**{name: -1.0})
    with pytest.raises(ValueError, match="above 0"):
        Limits(api_seconds=0)


@given(
    living=st.integers(0, 8),
    dead=st.dictionaries(st.sampled_from(FailureMode), st.integers(0, 4), min_size=1),
    setup=st.sampled_from([None, 1.0, 10.0, 40.0]),
    api=st.sampled_from([5.0, 30.0, 60.0]),
    escape=st.sampled_from([0.0, 0.5, 1.0]),
    retry=st.sampled_from([0.0, 0.1]),
)
def test_given_any_list_when_forecast_then_probabilities_sum_to_one_and_no_start_outlasts_its_limit(  # noqa: PLR0917 - drawn by name
    living: int, dead: dict[FailureMode, int], setup: float | None, api: float, escape: float, retry: float
) -> None:
    if living + sum(dead.values()) == 0:
        return
    limits = Limits(
        api_seconds=api,
        setup_seconds=setup,
        request_seconds=api / 2,
        silent_escape=escape,
        retry_seconds=retry,
        retry_most_seconds=1.0,
    )
    found = forecast(Listed(living=living, dead=dead), limits)
    assert sum(one.probability for one in found.starts) == pytest.approx(1)
    assert all(0 <= one.seconds <= api for one in found.starts)
    assert 0 <= found.failure <= 1
    assert living or found.failure == pytest.approx(1)
