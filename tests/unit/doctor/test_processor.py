"""How much of a processor a driver gets, and what the doctor says of too little."""

import os
from pathlib import Path

import pytest

from discovery.core.model import BrokerAddress, Verdict
from discovery.doctor.diagnose import diagnose
from discovery.doctor.facts import Facts, Seen
from discovery.doctor.inputs import described
from discovery.doctor.processor import Processor, processor_here


def host(root: Path, groups: str, files: dict[str, str]) -> Path:
    """Lay `proc` and `sys` out as a kernel does."""
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"cpu.max": "10000 100000\n"}, 0.1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/pod/driver\n", {"pod/cpu.max": "50000 100000\n", "pod/driver/cpu.max": "max 100000\n"}, 0.5),
        ("0::/pod/driver\n", {"pod/cpu.max": "50000 100000\n", "pod/driver/cpu.max": "20000 100000\n"}, 0.2),
        (
            "4:memory:/x\n2:cpu,cpuacct:/pod\n0::/\n",
            {"cpu/pod/cpu.cfs_quota_us": "150000\n", "cpu/pod/cpu.cfs_period_us": "100000\n"},
            1.5,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("0::/\n", {"cpu.max": "garbage\n"}, None),
        ("0::/gone\n", {}, None),
        ("", {}, None),
    ],
)
def test_given_control_groups_when_looked_at_then_the_tightest_limit_counts(
    tmp_path: Path, groups: str, files: dict[str, str], limit: float | None
) -> None:
    found = processor_here(host(tmp_path, groups, files))
    assert found.limit == limit
    assert found.cores == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("processor", "said"),
    [
        (Processor(cores=2, limit=0.1, load=0.0), "gets 0.1 of a core here (2 cores, a limit of 0.1 cores, load 0.0)"),
        (Processor(cores=2, limit=None, load=19.0), "gets 0.1 of a core here (2 cores, no limit, load 19.0)"),
        (Processor(cores=1, limit=2.0, load=7.0), "gets 0.12 of a core here (1 core, a limit of 2 cores, load 7.0)"),
        (Processor(cores=2, limit=0.5, load=1.0), None),
        (Processor(cores=64, limit=None, load=60.0), None),
        (None, None),
    ],
)
def test_given_a_limit_or_a_load_when_diagnosed_then_too_little_processor_is_said(
    processor: Processor | None, said: str | None
) -> None:
    alive = Seen(address=BrokerAddress("b1", 9092), verdict=Verdict.ALIVE)
    facts = Facts(listed=(alive,), leaderless=(), processor=processor)
    sentences = [
        one.sentence
        for one in diagnose(facts, described(bootstrap="b1:9092")).findings
        if one.code == "little-processor"
    ]
    assert bool(sentences) is (said is not None)
    assert said is None or said in sentences[0]
