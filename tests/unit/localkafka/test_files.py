import fcntl
import hashlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from discovery.core.errors import ConfigError, StateError
from discovery.localkafka.folders import cache_folder, cluster_folder
from discovery.localkafka.jars.artifacts import KAFKA, NATIVE_CONNECTOR, parse_checksums
from discovery.localkafka.jars.download import ensure, verify
from discovery.localkafka.jars.ivy import DownloadError, explain
from discovery.localkafka.keeper.process import MARKER_FILE, PROCESSES_FILE
from discovery.localkafka.keeper.processes import identify, is_running, resident_bytes, send_signal
from discovery.localkafka.layout import ClusterFolder, held
from discovery.localkafka.ports import reserve_ports
from discovery.localkafka.properties import ClusterSettings
from discovery.localkafka.record import ClusterRecord


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A real process that does nothing."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def _leftover(folder: Path, pid: int, started: str) -> ClusterFolder:
    """Make what a crashed keeper leaves."""
    folder.mkdir()
    (folder / MARKER_FILE).touch()
    child = {"pid": pid, "started": started, "exit_code": None, "paused": False}
    gone = {"pid": 2**22 - 1, "started": "never"}
    (folder / PROCESSES_FILE).write_text(json.dumps({"processes": {"1": child}, "keeper": gone}))
    return ClusterFolder(folder)


def test_given_a_record_when_written_and_read_then_it_is_the_same() -> None:
    settings = ClusterSettings(brokers=4, racks=2, sasl_users={"u": "p"})
    record = ClusterRecord(cluster_id="c", settings=settings, ports={"1": 9}, socket_path="/s", admin_password="p")  # noqa: S106 - no secret
    assert ClusterRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"settings": 1}', '{"settings": {}}'])
def test_given_a_broken_state_file_when_read_then_one_line_says_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(StateError, match="no local cluster"):
        ClusterFolder(tmp_path).load()


def test_given_a_held_folder_when_taken_again_then_the_holder_keeps_it(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path / "x")
    with held(folder.lock()), pytest.raises(StateError, match="'x' is up or starting"):
        folder.lock()
    with held(folder.lock()) as again:
        assert again


def test_given_a_folder_with_foreign_files_when_prepared_then_nothing_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    folder = ClusterFolder(tmp_path)
    with pytest.raises(ConfigError, match="holds other files"):
        folder.prepare()
    folder.delete()
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_given_a_crashed_cluster_when_swept_then_its_process_ends_and_its_folder_goes(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    folder = _leftover(tmp_path / "x", identity.pid, identity.started)
    assert folder.sweep() == [identity]
    assert sleeper.wait(5) == -signal.SIGKILL
    assert not folder.path.exists()


def test_given_a_recycled_process_id_when_swept_then_the_stranger_lives(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    folder = _leftover(tmp_path / "x", sleeper.pid, "some other start time")
    assert folder.sweep() == []
    assert sleeper.poll() is None


def test_given_a_process_when_identified_then_only_it_is_signalled(sleeper: "subprocess.Popen[bytes]") -> None:
    identity = identify(sleeper.pid)
    assert identity is not None
    assert is_running(identity)
    assert (resident_bytes(sleeper.pid) or 1) > 0
    assert not send_signal(replace(identity, started="other"), signal.SIGKILL)
    assert send_signal(identity, signal.SIGKILL)
    sleeper.wait(5)
    assert not is_running(identity)
    assert not send_signal(identity, signal.SIGKILL)


def test_given_a_zombie_when_identified_then_it_is_not_running(sleeper: "subprocess.Popen[bytes]") -> None:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert identify(sleeper.pid) is None


def test_given_reserved_ports_when_others_reserve_then_none_is_shared() -> None:
    first, second = reserve_ports(20), reserve_ports(20)
    try:
        assert len({r.port for r in first + second}) == 40
    finally:
        for reservation in first + second:
            reservation.release()


def test_given_a_shared_reservation_when_its_maker_lets_go_then_the_other_holder_keeps_the_port() -> None:
    (made,) = reserve_ports(1)
    made.share()
    with made.lock_file.open() as other:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        made.release()
        with made.lock_file.open() as stranger, pytest.raises(BlockingIOError):
            fcntl.flock(stranger, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _reserve_in_child(folder: Path, ask: Any) -> None:
    os.environ["TMPDIR"] = str(folder)
    reservations = reserve_ports(300)
    ask.send([reservation.port for reservation in reservations])
    ask.recv()


def test_given_two_sessions_with_temporary_folders_of_their_own_when_both_reserve_then_none_is_shared(
    tmp_path: Path,
) -> None:
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe() for _ in range(2)]
    children = [spawn.Process(target=_reserve_in_child, args=(tmp_path, theirs)) for _, theirs in pipes]
    for child in children:
        child.start()
    chosen = [port for ours, _ in pipes for port in ours.recv()]
    for ours, _ in pipes:
        ours.send("enough")
    for child in children:
        child.join(60)
    assert len(set(chosen)) == len(chosen) == 600


def test_given_reserved_ports_when_looked_at_then_they_are_free_and_not_ephemeral() -> None:
    for reservation in reserve_ports(3):
        with socket.socket() as broker:
            broker.bind(("127.0.0.1", reservation.port))
        reservation.release()
        assert 15_000 <= reservation.port < 32_768


def test_given_the_pinned_files_when_read_then_every_line_has_a_checksum() -> None:
    for artifacts, count in ((KAFKA, 47), (NATIVE_CONNECTOR, 4)):
        checksums = artifacts.checksums()
        assert len(checksums) == count
        assert all(name.endswith(".jar") and len(digest) == 64 for name, digest in checksums.items())


def test_given_comments_when_checksums_are_read_then_they_are_skipped() -> None:
    assert parse_checksums("# why\n\nab  x.jar\n") == {"x.jar": "ab"}


def test_given_a_changed_file_when_verified_then_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.jar").write_bytes(b"evil")
    with pytest.raises(DownloadError, match=r"checksum mismatch: x\.jar"):
        verify(tmp_path, {"x.jar": "0" * 64})


def test_given_a_missing_file_when_verified_then_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"x\.jar is missing"):
        verify(tmp_path, {"x.jar": "0" * 64})


def test_given_the_pinned_content_when_verified_then_it_passes(tmp_path: Path) -> None:
    (tmp_path / "x.jar").write_bytes(b"good")
    verify(tmp_path, {"x.jar": hashlib.sha256(b"good").hexdigest()})


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("java.io.IOException: No space left on device", "disk is full"),
        ("java.io.IOException: File too large", "disk is full"),
        ("Server access error (java.net.UnknownHostException: x)", "did not answer"),
        (":: UNRESOLVED DEPENDENCIES ::", "did not answer"),
        ("something\nodd at last\n\n", "failed: odd at last"),
        ("", "failed: no output"),
    ],
)
def test_given_ivys_log_when_explained_then_one_line_names_the_cause(log: str, words: str) -> None:
    text = explain(log, "Kafka")
    assert words in text
    assert "\n" not in text


def test_given_a_cache_that_cannot_be_written_when_jars_are_wanted_then_the_remedy_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DownloadError, match="XDG_CACHE_HOME"):
        ensure(KAFKA, cache=tmp_path / "file")


def test_given_jars_in_the_cache_when_wanted_then_nothing_is_downloaded(tmp_path: Path) -> None:
    folder = tmp_path / "jars" / NATIVE_CONNECTOR.folder_name
    folder.mkdir(parents=True)
    for name in NATIVE_CONNECTOR.checksums():
        (folder / name).touch()
    assert [jar.parent for jar in ensure(NATIVE_CONNECTOR, cache=tmp_path)] == [folder] * 4


def test_given_a_relative_xdg_value_when_folders_are_asked_for_then_it_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache" / "kafka-discovery"


def test_given_an_xdg_value_when_a_cluster_is_named_then_it_lives_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert cluster_folder("a").is_relative_to(tmp_path)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 51])
def test_given_a_name_that_is_a_path_when_used_then_it_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="--name"):
        cluster_folder(name)


def test_given_settings_when_turned_into_a_dict_then_json_can_carry_them() -> None:
    assert json.loads(json.dumps(asdict(ClusterSettings())))["brokers"] == 3
