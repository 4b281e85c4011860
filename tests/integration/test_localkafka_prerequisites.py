import contextlib
import multiprocessing
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from discovery.localkafka.jars.artifacts import ArtifactSet
from discovery.localkafka.jars.download import ensure
from discovery.localkafka.jars.ivy import DownloadError
from discovery.localkafka.keeper.processes import identify, is_running
from tests.support.downloads import DownloadServer, artifacts_with, serving
from tests.support.helpers import eventually

COMMAND = [sys.executable, "-c", "from discovery.cli.app import main; main()", "local-kafka"]
CONTENT = random.Random(1).randbytes(300_000)
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty cache, no clusters and no Java settings."""
    kept = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "JAVA_TOOL_OPTIONS"}}
    return {**kept, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DownloadServer]:
    """A download server that every Ivy of this test uses, and no other."""
    with serving(CONTENT) as started:
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", started.java_options(tmp_path / "settings"))
        yield started


@pytest.fixture
def pinned(tmp_path: Path) -> ArtifactSet:
    """The module as it should be."""
    return artifacts_with(CONTENT, tmp_path / "pins.txt")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 100 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may make a small disk; the next test limits the size of files instead")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def _up(environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, "up", "--brokers", "1"], env=environment, capture_output=True, text=True, timeout=200, check=False
    )


def _complaint(seen: "subprocess.CompletedProcess[str]", exit_code: int) -> str:
    """Return the one line that a failed command said."""
    assert seen.returncode == exit_code, seen.stderr
    assert "Traceback" not in seen.stderr
    assert seen.stdout == ""
    lines = [line for line in seen.stderr.splitlines() if line.startswith("kafka-discovery: ")]
    assert len(lines) == 1, seen.stderr
    assert seen.stderr.splitlines()[-1] == lines[0]
    return lines[0]


def _in_cache(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "jars").iterdir())


def _ensure(artifacts: ArtifactSet, cache: Path) -> None:
    ensure(artifacts, cache=cache)


def _ensure_with_small_files(artifacts: ArtifactSet, cache: Path, said: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        ensure(artifacts, cache=cache)
    except DownloadError as error:
        said.write_text(str(error))


def test_given_no_java_when_a_cluster_is_wanted_then_one_line_says_what_to_install(
    tmp_path: Path, home: dict[str, str]
) -> None:
    said = _complaint(_up({**home, "PATH": str(tmp_path)}), 2)
    assert "Java is missing: install a Java 17 runtime" in said


def test_given_a_java_home_without_java_when_a_cluster_is_wanted_then_one_line_names_the_variable(
    tmp_path: Path, home: dict[str, str]
) -> None:
    said = _complaint(_up({**home, "JAVA_HOME": str(tmp_path)}), 2)
    assert f"JAVA_HOME: {tmp_path} has no bin/java; set it to the folder of a Java 17, or unset it" in said


@pytest.mark.parametrize(
    ("version", "words"),
    [('openjdk version "11.0.22" 2024-01-16', "Java 11 at"), ("no such word", "Java of unknown version at")],
)
def test_given_another_java_when_a_cluster_is_wanted_then_one_line_names_it_and_the_limit(
    tmp_path: Path, home: dict[str, str], version: str, words: str
) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    java.chmod(0o755)
    said = _complaint(_up({**home, "PATH": f"{tmp_path}{os.pathsep}{home['PATH']}"}), 2)
    assert words in said
    assert f"{java} is too old: Kafka and Spark need Java 17; put a newer `java` first on the PATH" in said


def test_given_no_network_when_the_jars_are_wanted_then_one_line_says_so_and_nothing_is_installed(
    tmp_path: Path, home: dict[str, str]
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: refused
        port = nobody.getsockname()[1]
        proxies = [f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}" for scheme in ("http", "https")]
        empty = [f"-Divy.{kind}.default.root={tmp_path / 'none'}" for kind in ("local", "shared")]
        said = _complaint(_up({**home, "JAVA_TOOL_OPTIONS": " ".join(proxies + empty)}), 1)
    assert "the download server did not answer" in said
    assert "check the network and proxy" in said
    assert "kafka-4.1.0" not in _in_cache(tmp_path / "cache" / "kafka-discovery")


def test_given_no_network_after_a_part_when_jars_are_wanted_again_then_the_rest_is_fetched(
    tmp_path: Path, server: DownloadServer
) -> None:
    both = artifacts_with(CONTENT, tmp_path / "pins.txt", "x", "y")
    server.breaking = {"/y.jar"}
    with pytest.raises(DownloadError, match=r"^Module X: the download server did not answer .* and run again$"):
        ensure(both, cache=tmp_path / "cache")
    assert "x-1" not in _in_cache(tmp_path / "cache")
    tried = server.downloads
    server.breaking = set()
    jars = ensure(both, cache=tmp_path / "cache")
    assert [jar.read_bytes() == CONTENT for jar in jars] == [True, True]
    assert server.downloads == tried + 1, "what was whole is not fetched again"


def test_given_no_writable_home_when_jars_are_wanted_then_one_line_names_the_variable(
    home: dict[str, str],
) -> None:
    said = _complaint(_up({**home, "XDG_CACHE_HOME": "/dev/null/cache"}), 1)
    assert "cannot write the jars to /dev/null/cache/kafka-discovery/jars: Not a directory; " in said
    assert said.endswith("; set XDG_CACHE_HOME to a folder you may write")


def test_given_no_writable_home_when_a_cluster_is_wanted_then_one_line_names_the_variable(
    home: dict[str, str],
) -> None:
    kept = {name: value for name, value in home.items() if name != "XDG_CACHE_HOME"}  # where the jars are
    said = _complaint(_up({**kept, "XDG_STATE_HOME": "/dev/null/state"}), 1)
    assert "cannot be written to /dev/null/state/kafka-discovery/local-kafka/default: Not a directory; " in said
    assert said.endswith("set XDG_STATE_HOME to a folder you may write")


def test_given_no_space_when_a_cluster_is_wanted_then_one_line_says_where(
    home: dict[str, str], small_disk: Path
) -> None:
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)
    kept = {name: value for name, value in home.items() if name != "XDG_CACHE_HOME"}  # where the jars are
    said = _complaint(_up({**kept, "XDG_STATE_HOME": str(small_disk)}), 1)
    assert f"cannot be written to {small_disk}/kafka-discovery/local-kafka/default: No space left on device" in said
    assert "free some space there" in said


CHECK = Path(__file__).parents[2] / "requirements/check_prerequisites.py"
OLD_PYTHON = "import runpy, sys; sys.version_info = (3, 10, 14, 'final', 0); runpy.run_path({!r}, run_name='__main__')"
NO_VENV = (
    "import importlib.util as u, runpy; find = u.find_spec;"
    " u.find_spec = lambda name: None if name == 'ensurepip' else find(name);"
    " runpy.run_path({!r}, run_name='__main__')"
)


@pytest.mark.parametrize(
    ("java", "python", "said"),
    [
        (None, "", "Java is missing: install a Java 17 runtime and put `java` on the PATH"),
        ("11.0.22", "", "Java 11 is too old: Kafka and Spark need Java 17; put a newer `java` first on the PATH"),
        ("17.0.9", OLD_PYTHON, "Python 3.10.14 is too old: install Python 3.11 or newer and run `make PYTHON=python3"),
        ("17.0.9", NO_VENV, "Python comes without ensurepip, so no environment can be made: install it"),
        ("17.0.9", "", ""),
        ("25", "", ""),
    ],
    ids=["no Java", "Java 11", "Python 3.10", "no venv", "Java 17", "Java 25"],
)
def test_given_what_is_installed_when_setup_begins_then_one_line_names_what_is_missing(
    tmp_path: Path, java: str | None, python: str, said: str
) -> None:
    if java:
        (tmp_path / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{java}\" 2025-09-16 LTS' >&2\n")
        (tmp_path / "java").chmod(0o755)
    program = ["-c", python.format(str(CHECK))] if python else [str(CHECK)]
    done = subprocess.run(
        [sys.executable, *program],
        env={"PATH": f"{tmp_path}:/bin" if java else str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == (2 if said else 0), done.stderr
    assert done.stderr.startswith(f"kafka-discovery: {said}" if said else "")
    assert len(done.stderr.splitlines()) == (1 if said else 0)


def test_given_no_network_when_setup_installs_then_the_last_line_of_its_own_says_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: refused
        index = f"http://127.0.0.1:{nobody.getsockname()[1]}/simple"
        mine = {
            name: value for name, value in os.environ.items() if not name.startswith("MAKE")
        }  # of the make around it
        cut_off = {"PIP_INDEX_URL": index, "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
        done = subprocess.run(
            ["make", "setup", f"VENV={tmp_path}/venv", f"PYTHON={sys.executable}"], cwd=CHECK.parents[1],
            env={**mine, **cut_off}, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
    assert done.returncode == 2, "make's own"
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("kafka-discovery: ")]
    assert "the packages could not be installed" in line
    assert line.endswith("and run it again; what was downloaded is kept")
    assert not (tmp_path / "venv/.ready").exists(), "so that the next try installs the rest"


@pytest.mark.parametrize(
    ("version", "said"), [("21.0.2", ""), ("1.8.0_392", "Java 8 is too old"), (None, "Java is missing")]
)
def test_given_a_java_home_when_setup_begins_then_it_counts_before_the_path(
    tmp_path: Path, version: str | None, said: str
) -> None:
    home = tmp_path / "jdk"
    for folder, text in ((tmp_path, "17.0.9"), (home / "bin", version)):
        folder.mkdir(exist_ok=True, parents=True)
        if text:
            (folder / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{text}\"' >&2\n")
            (folder / "java").chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(CHECK)], env={"PATH": f"{tmp_path}:/bin", "JAVA_HOME": str(home)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == (2 if said else 0)
    assert said in done.stderr


def test_given_a_server_when_jars_are_wanted_twice_then_they_are_verified_published_and_downloaded_once(
    tmp_path: Path, server: DownloadServer, pinned: ArtifactSet
) -> None:
    for _ in range(2):
        (jar,) = ensure(pinned, cache=tmp_path / "cache")
    assert jar.read_bytes() == CONTENT
    assert _in_cache(tmp_path / "cache") == ["x-1", "x-1.lock"]
    assert server.downloads == 1


def test_given_two_processes_when_both_want_jars_then_one_downloads(
    tmp_path: Path, server: DownloadServer, pinned: ArtifactSet
) -> None:
    children = [SPAWN.Process(target=_ensure, args=(pinned, tmp_path / "cache")) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0, 0]
    assert server.downloads == 1


def test_given_a_server_with_other_content_when_jars_are_wanted_then_none_is_kept_and_a_good_server_mends_it(
    tmp_path: Path, server: DownloadServer, pinned: ArtifactSet
) -> None:
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(DownloadError, match=r"checksum mismatch: x-1\.jar .* nothing was installed"):
        ensure(pinned, cache=tmp_path / "cache")
    assert _in_cache(tmp_path / "cache") == ["x-1.lock"]
    server.content = CONTENT
    (jar,) = ensure(pinned, cache=tmp_path / "cache")
    assert jar.read_bytes() == CONTENT


def test_given_a_full_disk_when_jars_are_wanted_then_the_remedy_is_named_and_nothing_is_installed(
    small_disk: Path, server: DownloadServer, pinned: ArtifactSet
) -> None:
    with pytest.raises(DownloadError, match=r"Module X: the disk is full; free 150 MB .* XDG_CACHE_HOME"):
        ensure(pinned, cache=small_disk)
    assert "x-1" not in _in_cache(small_disk)


def test_given_files_that_may_not_grow_when_jars_are_wanted_then_the_remedy_is_named_and_nothing_is_installed(
    tmp_path: Path, server: DownloadServer, pinned: ArtifactSet
) -> None:
    said = tmp_path / "said.txt"
    child = SPAWN.Process(target=_ensure_with_small_files, args=(pinned, tmp_path / "cache", said))
    child.start()
    child.join(120)
    assert child.exitcode == 0
    assert said.read_text().startswith("Module X: the disk is full; free 150 MB")
    assert "x-1" not in _in_cache(tmp_path / "cache")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_given_a_download_half_way_when_its_process_is_killed_then_no_later_start_trusts_what_it_left(
    tmp_path: Path, server: DownloadServer, pinned: ArtifactSet, number: signal.Signals
) -> None:
    cache = tmp_path / "cache"
    server.flowing.clear()
    child = SPAWN.Process(target=_ensure, args=(pinned, cache))
    child.start()
    try:
        assert child.pid
        assert server.half_way.wait(60)
        jvms = [found for pid in _children_of(child.pid) if (found := identify(pid))]
        os.kill(child.pid, number)
    finally:
        child.join(30)
    assert jvms
    eventually(lambda: not any(map(is_running, jvms)), 15, "the end of Ivy's JVM")
    left = _in_cache(cache)
    assert "x-1" not in left
    assert len(left) > 1  # a lock alone would be no trace of the interruption
    server.flowing.set()
    (jar,) = ensure(pinned, cache=cache)
    assert jar.read_bytes() == CONTENT
    assert _in_cache(cache) == ["x-1", "x-1.lock"]


def _children_of(pid: int) -> list[int]:
    shown = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in shown.stdout.split()]
