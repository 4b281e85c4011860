"""Two clusters in one service, one of them silent: real sockets, real client library, brokers played by it."""

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.fakes.mock_cluster import MockCluster
from tests.faults import accept_and_hang, black_hole
from tests.support import eventually
from tests.support_service import ServiceProcess

DEADLINE = 60
ROUNDS = 30
TOPIC = "orders"


def latencies(service: ServiceProcess) -> list[float]:
    """Return the seconds of questions about the good cluster: from memory, and asked of its brokers."""
    found = []
    for _ in range(ROUNDS):
        for method, path in (("GET", "brokers"), ("POST", "refresh?timeout=10s")):
            began = time.monotonic()
            answer = httpx.request(method, f"{service.api}/v1/clusters/good/{path}", timeout=30, trust_env=False)
            found.append(time.monotonic() - began)
            assert answer.status_code == 200, answer.text
    return found


@contextlib.contextmanager
def pestered(service: ServiceProcess, questions: int = 24) -> Iterator[list[int]]:
    """Ask about the silent cluster all the time, more than are let through at once."""
    over = threading.Event()
    answers: list[int] = []

    def ask() -> None:
        with httpx.Client(base_url=service.api, timeout=30, trust_env=False) as client:
            while not over.is_set():
                url = "/v1/clusters/hole/groups/g?timeout=2s"
                answers.append(client.get(url).status_code)
                over.wait(0.2)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(questions)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join(DEADLINE)


def test_given_a_black_holed_cluster_when_it_is_asked_all_the_time_then_the_other_one_answers_as_without_it(
    tmp_path: Path,
) -> None:
    config = tmp_path / "config.toml"
    with MockCluster() as kafka, accept_and_hang() as silent, black_hole() as hole:
        kafka.call("topic_create", TOPIC, 6, 3)
        good = f'[clusters.good]\nbootstrap_servers = "{kafka.bootstrap_servers}"\ntopics = ["{TOPIC}"]\n'
        config.write_text(good)
        arguments = ("--config", str(config), "--port", "0", "--probe-port", "0", "--json")
        with ServiceProcess(*arguments, "--state-dir", str(tmp_path / "state"), log=tmp_path / "log") as service:
            followed = lambda: service.json("/v1/clusters/good/status")["partitions"] == 6  # noqa: E731
            eventually(followed, DEADLINE, "the good cluster's partitions")
            alone = latencies(service)
            config.write_text(f'{good}[clusters.hole]\nbootstrap_servers = "{silent},{hole}"\n')
            assert httpx.post(f"{service.api}/-/reload", timeout=30, trust_env=False).status_code == 200
            with pestered(service) as answers:
                eventually(lambda: 503 in answers, DEADLINE, "an answer about the silent cluster")
                beside = latencies(service)
            assert set(answers) == {503}
            state = service.json("/v1/clusters/good/status")
            assert (state["state"], state["brokers"]["healthy"], state["parked"]) == ("fresh", 3, 0)
            assert service.json("/v1/clusters/hole/status")["generation"] == 0
            assert service.probe("/livez").status_code == 200
    # The same work on a machine that others use too; waiting for the silent cluster would cost seconds.
    assert statistics.median(beside) < 3 * statistics.median(alone) + 0.1, (alone, beside)
    assert statistics.quantiles(beside, n=20)[-1] < 3 * statistics.quantiles(alone, n=20)[-1] + 1.0, (alone, beside)
    assert "BUG in" not in (tmp_path / "log").read_text()
