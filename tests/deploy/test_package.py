"""The packages: the same bytes for the same source, nothing missing, nothing that does not belong."""

import re
import subprocess
import sys
import tarfile
import time
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from deploy import package
from deploy.licences import notices
from deploy.package import build, repacked


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    wheel, sdist = build(tmp_path_factory.mktemp("dist"))
    return wheel, sdist


def test_given_the_same_source_when_built_again_then_the_bytes_are_the_same(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    again = build(tmp_path)
    assert [file.name for file in again] == [file.name for file in built]
    for one, other in zip(built, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_given_the_wheel_when_opened_then_it_holds_every_module_and_data_file(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    packages = ("discovery", "pyspark_kafka_discovery")
    wanted = {
        str(path)
        for package in packages
        for path in Path(package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    share = "kafka_discovery-0.1.0.data/data/share/kafka-discovery"
    wanted |= {f"{share}/{path}" for path in Path("spark_jobs").glob("*.py")}
    assert wanted <= names, wanted - names
    assert {name.split("/")[0] for name in names - wanted} == {
        "kafka_discovery-0.1.0.data",
        "kafka_discovery-0.1.0.dist-info",
    }
    jobs = {f"data/share/kafka-discovery/{path}" for path in Path("spark_jobs").glob("*.py")}
    assert {name.partition(".data/")[2] for name in names if ".data/" in name} == {
        *jobs,
        "scripts/kafka-discovery-python",
    }
    assert any(name.endswith("LICENSE") for name in names)


def test_given_the_sdist_when_opened_then_nothing_tells_who_built_it_or_when(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        members = sdist.getmembers()
    assert {(m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, "", "")}
    assert len({m.mtime for m in members}) == 1
    assert members[0].mtime < time.time()
    assert not [m.name for m in members if "/tests/" in m.name or "/deploy/" in m.name]


def test_given_an_archive_when_packed_again_twice_then_it_does_not_change(built: tuple[Path, Path]) -> None:
    archive = built[1].read_bytes()
    assert repacked(archive, epoch=1_000_000_000) == repacked(repacked(archive, epoch=5), epoch=1_000_000_000)


def test_given_git_hangs_when_a_build_asks_for_the_time_then_it_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 300\n", encoding="utf-8")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setattr(package, "_ASK_SECONDS", 0.2)
    monkeypatch.setattr(sys, "argv", ["package", str(tmp_path / "dist")])
    with pytest.raises(SystemExit, match=r"nothing was built into .*timed out after 0.2 seconds"):
        package.main()
    assert not (tmp_path / "dist").exists()


def test_given_a_build_that_hangs_when_its_time_is_up_then_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "_BUILD_SECONDS", 0.01)
    with pytest.raises(subprocess.TimeoutExpired):
        build(tmp_path)


def test_given_no_git_when_a_build_asks_for_the_time_then_it_takes_the_first_one_of_zip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert package._last_commit() == "315532800"


def test_given_the_locked_packages_when_their_licences_are_read_then_each_says_one_that_we_may_use() -> None:
    table = notices(Path("requirements/run.txt").read_text(encoding="utf-8")).split("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) > 25
    allowed = re.compile(r"MIT|BSD|Apache|ISC|MPL|Mozilla|PSF|Python Software|0BSD|Zlib", re.IGNORECASE)
    assert [row for row in rows if not allowed.search(row[2])] == []


def test_given_a_package_that_is_not_installed_when_only_others_need_it_then_it_is_left_out() -> None:
    assert (
        "colorama" not in notices("colorama-none==0.4 ; sys_platform == 'win32' \\\n    --hash=x\n").split("\n## ")[0]
    )
    with pytest.raises(metadata.PackageNotFoundError):
        notices("no-such-package==1.0 \\\n")
