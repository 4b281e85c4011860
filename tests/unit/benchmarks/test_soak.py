import os

from benchmarks.soak import growth, peak, section
from tests.support.family import command_line, cpu_seconds, descendants, descriptors, resident_mib, threads


def test_given_samples_when_compared_then_growth_is_the_last_third_over_the_middle_one() -> None:
    samples = [{"runner_mib": value} for value in (90.0, 10.0, 20.0, 22.0, 30.0, 32.0)]
    assert growth(samples) == {"runner_mib": 10.0}
    assert peak(samples) == {"runner_mib": 90.0}
    assert growth(samples[:2]) == {}


def test_given_this_process_when_measured_then_it_is_seen() -> None:
    me = os.getpid()
    assert me in descendants(os.getppid())
    assert "python" in command_line(me)
    assert resident_mib(me) > 10
    assert min(threads(me), descriptors(me)) >= 1
    assert cpu_seconds(me) > 0
    assert (resident_mib(2**22), threads(2**22), command_line(2**22)) == (0, 0, "")


def test_given_a_result_when_rendered_then_a_dead_query_is_not_hidden() -> None:
    names = [f"{who}_{what}" for who in ("runner", "worker") for what in ("mib", "threads", "files")]
    figures = dict.fromkeys(names, 1.0)
    result = {"seconds": 60.0, "leader_moves": 3, "alive": False, "rows": 5, "peak": figures, "growth": figures}
    assert "DIED" in section(result)
