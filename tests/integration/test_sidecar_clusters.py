"""The service over brokers that the client library plays, by real sockets: beside a silent cluster, and as scripted."""

import contextlib
import re
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.support.fakes.mock_cluster import MockCluster
from tests.support.faults import accept_and_hang, black_hole
from tests.support.helpers import eventually
from tests.support.ports import service_ports
from tests.support.service import ServiceProcess, serve_arguments

DEADLINE = 60
ROUNDS = 15
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
                over.wait(0.5)

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
        arguments = ("--config", str(config), *service_ports(), "--json")
        with ServiceProcess(*arguments, "--state-dir", str(tmp_path / "state"), log=tmp_path / "log") as service:
            followed = lambda: service.json("/v1/clusters/good/status")["partitions"] == 6  # noqa: E731
            eventually(followed, DEADLINE, "the good cluster's partitions")
            alone = latencies(service)
            config.write_text(f'{good}[clusters.hole]\nbootstrap_servers = "{silent},{hole}"\n')
            eventually(lambda: service.get("/v1/clusters/hole/status").status_code == 200, DEADLINE, "the other one")
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


HOW_TO = Path("docs/how-to/service.md")


def asked(service: ServiceProcess, command: str) -> httpx.Response:
    """Ask what a line of curl asks."""
    words = iter(shlex.split(command.partition("|")[0])[1:])
    method, body, url = "GET", None, ""
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-d":
            body = next(words)
        elif not word.startswith("-"):
            url = word.replace("localhost:9463", service.api).replace("localhost:9464", service.probes)
    return httpx.request(method, url, content=body, timeout=30, trust_env=False)


def follows(service: ServiceProcess) -> float:
    """Return how often followers were answered."""
    found = re.findall(
        r'api_requests_total\{code="200",route="GET [^"]*/follow"\} (.*)', service.probe("/metrics").text
    )
    return float(found[0]) if found else 0.0


def test_given_the_how_to_when_an_operator_does_what_it_says_then_every_question_is_answered(tmp_path: Path) -> None:
    commands = re.findall(r"^(curl .*?)(?: +#.*)?$", HOW_TO.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(commands) >= 8
    with MockCluster() as kafka:
        kafka.call("topic_create", TOPIC, 6, 3)
        servers = f"{kafka.bootstrap_servers},127.0.0.1:1"
        with ServiceProcess(*serve_arguments(servers, tmp_path / "state"), log=tmp_path / "log") as service:
            eventually(lambda: service.json("/v1/status")["partitions"] == 6, DEADLINE, "the partitions")
            eventually(lambda: service.json("/v1/status")["brokers"]["unasked"] == 0, DEADLINE, "all verdicts")
            own_list = ["127.0.0.1:1", "removed:9092", kafka.bootstrap_servers.split(",")[0]]
            report = {"instance": "one", "positions": {TOPIC: {"0": 0}}, "bootstrap_servers": own_list}
            assert httpx.put(f"{service.api}/v1/consumers/dau", json=report, trust_env=False).status_code == 200
            (dau,) = service.json("/v1/consumers")["consumers"]
            assert dau["bad_bootstrap_servers"] == {
                "127.0.0.1:1": "refused: connection refused",
                "removed:9092": "removed from the cluster, or never known here",
            }
            for command in commands:
                answer = asked(service, command)
                assert answer.is_success, (command, answer.text)
            assert "fresh: generation" in service.probe("/readyz?verbose").text
            assert service.json("/v1/consumers")["consumers"] == [], "the operator let it be forgotten"
            live = subprocess.Popen(
                [sys.executable, "-c", "from discovery.cli.app import main; main()", "watch", "--url", service.api],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            eventually(
                lambda: follows(service) > 1, DEADLINE, "what it shows"
            )  # the second asks for changes of the first
            live.send_signal(signal.SIGINT)
            said, _ = live.communicate(timeout=30)
            assert (live.returncode, "refused" in said) == (0, True), said


def test_given_a_list_of_brokers_when_their_list_is_asked_for_then_a_script_gets_it_and_nothing_else() -> None:
    with MockCluster() as kafka:
        command = [sys.executable, "-c", "from discovery.cli.app import main; main()", "bootstrap", "--bootstrap"]
        done = subprocess.run(
            [*command, kafka.bootstrap_servers], capture_output=True, text=True, timeout=DEADLINE, check=True
        )
    printed = done.stdout.splitlines()
    assert len(printed) == 1
    assert set(printed[0].split(",")) <= set(kafka.bootstrap_servers.split(","))
