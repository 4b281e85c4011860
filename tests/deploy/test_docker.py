"""Image and stack files: linted, valid for both kinds of compose, nothing unpinned, nothing writable."""

import json
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from discovery import __version__
from tests.support.debian_tools import tool
from tests.support.service import ServiceProcess, serve_arguments

COMPOSE = Path("docker-compose.yml")
DOCKERFILE = Path("deploy/docker/Dockerfile")


def stack() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    return read


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = stack()["services"]
    return found


def test_given_the_dockerfiles_when_linted_then_hadolint_has_nothing_to_say() -> None:
    seen = subprocess.run([tool("hadolint"), str(DOCKERFILE)], capture_output=True, text=True, check=False, timeout=60)
    assert (seen.returncode, seen.stdout, seen.stderr) == (0, "", "")


def test_given_the_images_when_built_then_all_that_they_copy_is_in_the_context() -> None:
    ignored, *kept = (line for line in Path(".dockerignore").read_text().split() if "__pycache__" not in line)
    assert ignored == "*"
    patterns = [line.removeprefix("!") for line in kept]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", Path("deploy/docker/Dockerfile").read_text(), re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    assert len(sources) > 5
    assert [source for source in sources if not any(Path(source).match(pattern) for pattern in patterns)] == []


def test_given_the_images_when_read_then_they_run_as_numbers_and_carry_this_version() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert re.findall(r"^USER (.*)$", text, flags=re.MULTILINE) == ["10001:0", "185:0"]
    assert re.findall(r"image\.version=\"(.*?)\"", text) == [__version__] * 2
    assert f"kafka_discovery-{__version__}-py3-none-any.whl" in text
    assert "HEALTHCHECK" in text
    entrypoints = re.findall(r"^ENTRYPOINT (.*)$", text, flags=re.MULTILINE)
    assert [json.loads(one) for one in entrypoints] == [
        ["kafka-discovery"], ["/opt/kafka-discovery/bin/spark-entrypoint"],
    ]  # fmt: skip
    assert "PYSPARK_PYTHON=/opt/kafka-discovery/bin/kafka-discovery-python " in text, "starts Spark's processes quickly"
    assert '"kafka-discovery", "healthcheck"' in text


def test_given_the_images_when_built_with_other_bases_then_every_stage_begins_from_what_is_given() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    given = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, flags=re.MULTILINE))
    assert given.keys() == {"PYTHON_IMAGE", "JAVA_IMAGE"}
    assert all(re.search(r":\d", image) for image in given.values()), (
        "a base without a version is another one each time"
    )
    bases = re.findall(r"^FROM (\S+) AS \S+$", text, flags=re.MULTILINE)
    assert set(bases) == {f"${{{name}}}" for name in given}
    assert text.index("ARG ") < text.index("FROM "), "else FROM does not know it"
    page = Path("docs/how-to/deploy-compose.md").read_text(encoding="utf-8")
    assert all(name in page for name in given)


def test_given_uvicorn_whose_private_methods_are_overridden_when_required_then_untried_versions_are_left_out() -> None:
    wanted = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    (bounds,) = (one.specifier for one in map(Requirement, wanted) if one.name == "uvicorn")
    (pinned,) = re.findall(r"^uvicorn==(\S+)", Path("requirements/sidecar.txt").read_text(), flags=re.MULTILINE)
    assert pinned in bounds
    major, minor, *_ = Version(pinned).release
    assert f"{major}.{minor + 1}" not in bounds, "its next version was not tried"


def test_given_the_stack_when_docker_compose_reads_it_then_it_is_valid() -> None:
    seen = subprocess.run(
        [tool("docker-compose"), "-f", str(COMPOSE), "config", "--quiet"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert seen.returncode == 0, seen.stderr


def test_given_the_stack_when_read_then_it_keeps_to_what_both_kinds_of_compose_take() -> None:
    top = {name for name in stack() if not name.startswith("x-")}
    assert top == {"services", "volumes"}, "1.29 takes neither `name` nor `include`; v2 warns of `version`"
    allowed = {"condition"}
    for name, one in services().items():
        for after in (one.get("depends_on") or {}).values():
            assert set(after) <= allowed, f"{name}: 1.29 does not know `required` and `restart`"
        assert "start_interval" not in one.get("healthcheck", {}), name


def test_given_the_stack_when_read_then_images_are_pinned_and_resources_bounded() -> None:
    for name, one in services().items():
        assert re.search(r":v?\d+\.\d+\.\d+$", one["image"]), f"{name}: {one['image']}"
        assert "mem_limit" in one, name
        assert {"profiles", "logging"} <= set(one), name
        assert not any("sleep" in str(word) for word in (one.get("command"), one.get("entrypoint"))), name
    named = {str(v).split(":")[0] for one in services().values() for v in one.get("volumes", ())}
    assert {v for v in named if not v.startswith(".")} == set(stack()["volumes"])
    for path in (v for v in named if v.startswith(".")):
        assert Path(path).exists(), path


def test_given_the_stack_when_read_then_ports_are_on_loopback_and_our_containers_hardened() -> None:
    for name, one in services().items():
        assert all(str(port).startswith("127.0.0.1:") for port in one.get("ports", ())), name
        if not one["image"].startswith("apache/kafka"):
            assert one["read_only"] is True, name
            assert one["cap_drop"] == ["ALL"], name


def test_given_the_monitoring_of_the_stack_when_checked_then_its_files_are_sound() -> None:
    for command in (
        [tool("promtool"), "check", "config", "--syntax-only", "deploy/compose/prometheus.yml"],
        [tool("amtool"), "check-config", "deploy/compose/alertmanager.yml"],
    ):
        seen = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert seen.returncode == 0, seen.stdout + seen.stderr


_ALONE = """
import sys
for name in {absent}:
    sys.modules[name] = None  # importing it raises
from discovery.cli.entry import main
sys.argv = ["kafka-discovery", *{arguments}]
main()
"""


def locked(file: str) -> set[str]:
    return set(re.findall(r"^([\w-]+)==", Path("requirements", file).read_text(encoding="utf-8"), flags=re.MULTILINE))


def test_given_the_packages_of_the_sidecar_alone_when_it_serves_then_it_needs_no_other(tmp_path: Path) -> None:
    absent = sorted(name.replace("-", "_") for name in locked("run.txt") - locked("sidecar.txt"))
    assert {"pyspark", "numba", "pyarrow"} <= set(absent)
    arguments = list(serve_arguments("127.0.0.1:1", tmp_path / "state"))
    program = ("-c", _ALONE.format(absent=absent, arguments=["serve", *arguments]))
    with ServiceProcess(log=tmp_path / "log", program=program) as service:
        assert service.probe("/startupz").status_code == 200
        asked = subprocess.run(
            [sys.executable, "-c", _ALONE.format(absent=absent, arguments=["healthcheck", "--url", service.probes])],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert asked.returncode == 0, asked.stderr
        assert service.stop(signal.SIGTERM)[0] == 0
