"""The removal gate on a real cluster: not, then safe, then done; and unknown wherever something is not answered."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from discovery.localkafka.admin import Admin
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ADMIN_USER, ClusterSettings
from tests.support.acls import AUTHORIZER, rule

pytestmark = pytest.mark.kafka
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    """Four brokers that check permissions; `alice` may describe one topic."""
    settings = ClusterSettings(
        brokers=4, sasl_users={"alice": "secret"}, extra_properties=AUTHORIZER, controller_properties=AUTHORIZER
    )
    with LocalKafka(settings) as made:
        made.create_topic("kept", assignment=[[1, 2, 4], [2, 3, 1]], config={"min.insync.replicas": "2"})
        made.create_topic("only", assignment=[[4]])
        made.create_topic("strict", assignment=[[1, 2, 4]], config={"min.insync.replicas": "3"})
        rule(made, "alice", ResourceType.TOPIC, "kept", AclOperation.ALL)
        yield made


def login(folder: Path, cluster: LocalKafka, user: str) -> Path:
    options = cluster.client_options
    password = options["sasl.password"] if user == ADMIN_USER else "secret"
    file = folder / f"{user}.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required username="{user}" password="{password}";\n'
    )
    return file


def ask(cluster: LocalKafka, file: Path, *more: str, brokers: str = "4") -> tuple[int, Mapping[str, Any]]:
    """Run the command as a user would; return its exit code and what it said."""
    command = [sys.executable, "-m", "discovery.cli.app", "removal", "--brokers", brokers, "--json"]
    command += ["--bootstrap", cluster.bootstrap_servers, "--properties", str(file), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "secret" not in done.stdout + done.stderr
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def subjects(said: Mapping[str, Any]) -> dict[str, list[str]]:
    return {finding["code"]: finding["subjects"] for finding in said["findings"]}


def test_given_a_login_that_sees_one_topic_when_asked_then_the_verdict_is_never_safe(
    cluster: LocalKafka, tmp_path: Path
) -> None:
    file = login(tmp_path, cluster, "alice")
    for flags in ((), ("--temporary",), ("--verify",)):
        code, said = ask(cluster, file, *flags, brokers="9")
        assert (code, said["verdict"]) == (4, "unknown"), said
    assert any("grant Describe on all topics" in finding["sentence"] for finding in said["findings"])


def test_given_a_broker_in_use_when_it_is_emptied_and_removed_then_not_becomes_safe_and_is_confirmed(
    cluster: LocalKafka, tmp_path: Path
) -> None:
    file, plan = login(tmp_path, cluster, ADMIN_USER), tmp_path / "plan.json"
    code, said = ask(cluster, file, "--plan", str(plan))
    assert (code, said["verdict"]) == (1, "not"), said
    found = subjects(said)
    assert (found["last-replica"], found["below-min"]) == (["only-0"], ["strict-0"])
    assert found["replicas"] == ["kept-0"]
    moves = {(m["topic"], m["partition"]): m["replicas"] for m in json.loads(plan.read_text())["partitions"]}
    assert set(moves) == {("kept", 0), ("only", 0), ("strict", 0)}
    assert all(4 not in replicas for replicas in moves.values())
    code, said = ask(cluster, file, "--temporary")
    assert code == 1
    cluster.reassign_off([4])
    code, said = ask(cluster, file)
    assert (code, [f["code"] for f in said["findings"] if f["level"] == "unknown"]) == (4, ["clients-unknown"]), said
    lists = tmp_path / "lists"
    lists.write_text(f"dau = {cluster.address(1)},{cluster.address(2)}\n")
    for known in (("--lists", str(lists)), ("--assume-no-other-clients",)):
        code, said = ask(cluster, file, *known)
        assert (code, said["verdict"]) == (0, "safe"), said
    port = cluster.address(4).rpartition(":")[2]
    lists.write_text(f"dau = gone-1.invalid:9092,localhost:{port}\nvisits = gone-2.invalid:9092,{cluster.address(4)}\n")
    code, said = ask(cluster, file, "--lists", str(lists))
    assert (code, [f["code"] for f in said["findings"]].count("list-empty")) == (1, 2), said
    code, said = ask(cluster, file, "--assume-no-other-clients", brokers="44")
    assert (code, list(subjects(said))) == (4, ["not-listed"]), said
    code, said = ask(cluster, file, "--verify")
    assert (code, next(iter(subjects(said)))) == (1, "still-listed")
    cluster.terminate([4])
    cluster.wait_registered([4], registered=False)
    code, said = ask(cluster, file, "--verify")
    assert (code, said["sentence"]) == (0, "complete: nothing in the cluster depends on 4 any more"), said


def test_given_brokers_that_freeze_when_asked_then_the_verdict_is_unknown(cluster: LocalKafka, tmp_path: Path) -> None:
    file = login(tmp_path, cluster, ADMIN_USER)
    living = cluster.living_ids()
    cluster.pause(living)
    try:
        code, said = ask(cluster, file, "--timeout", "3")
    finally:
        cluster.resume(living)
        cluster.wait_registered(living)
        admin = Admin(cluster.bootstrap_servers, cluster.client_options)
        admin.await_leaders("kept", 2, deadline_seconds=60)
    assert (code, said["verdict"]) == (4, "unknown"), said
