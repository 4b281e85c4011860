import contextlib
import fcntl
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from discovery.core.errors import StateError
from discovery.core.model import ClusterId, Generation, Snapshot, Tombstone, TopicName
from discovery.core.state import initial_state
from discovery.store.codec import Saved, decode, encode
from discovery.store.files import FileLock, write_atomically
from discovery.store.snapshots import SnapshotStore, file_name
from tests.support.core_values import address, alive, answer, run, settled, snapshot_of, topic


def saved_view(cluster: str = "ours", brokers: int = 2, generation: int = 5) -> Snapshot:
    view = snapshot_of(settled(brokers, topic(topic_id="a"), topic("u", leader=None)))
    tomb = Tombstone(topic=topic("gone", topic_id="z"), since_wall=12.5)
    return replace(
        view,
        cluster_id=ClusterId(cluster),
        generation=Generation(generation),
        tombstones={TopicName("gone"): tomb},
        confirmed_wall=99.25,
    )


def test_given_a_view_when_encoded_then_it_reads_back_equal() -> None:
    saved = Saved(snapshot=saved_view(), known_addresses=frozenset({address(1), address(9)}))
    assert decode(encode(saved)) == saved


def test_given_a_file_cut_at_any_byte_when_read_then_it_is_refused_by_name_never_by_a_crash() -> None:
    content = encode(Saved(snapshot=saved_view()))
    for length in range(len(content) - 1):  # the last byte is the newline
        with pytest.raises(StateError):
            decode(content[:length])


def test_given_any_one_byte_changed_when_read_then_it_is_refused_or_means_the_same() -> None:
    saved = Saved(snapshot=saved_view())
    content = encode(saved)
    for position in range(len(content)):
        damaged = content[:position] + bytes([content[position] ^ 0x01]) + content[position + 1 :]
        try:
            assert decode(damaged) == saved
        except StateError:
            continue


def test_given_another_schema_when_read_then_the_message_says_which() -> None:
    with pytest.raises(StateError, match="schema 99"):
        decode(b'{"schema":99,"sha256":"","payload":""}')


def test_given_a_named_source_when_saved_then_a_start_on_other_addresses_loads_it(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path, source_id="dau")
    store.open()
    assert store.save(saved_view(), [address(1)])
    store.close()
    assert SnapshotStore(tmp_path, source_id="dau").load([address(77)], cluster_id=None) == saved_view()


def test_given_a_source_that_is_in_use_when_opened_again_then_the_message_names_it_and_the_remedy(
    tmp_path: Path,
) -> None:
    first, second = SnapshotStore(tmp_path, source_id="dau"), SnapshotStore(tmp_path, source_id="dau")
    first.open()
    with pytest.raises(StateError, match=rf"sourceId 'dau' is in use: .* process {os.getpid()}; .*own sourceId"):
        second.open()
    first.close()
    second.open()
    second.close()


def test_given_no_name_when_loaded_then_the_cluster_that_knows_the_most_addresses_is_chosen(tmp_path: Path) -> None:
    for cluster, known in (("one", [address(1), address(2)]), ("two", [address(5)])):
        store = SnapshotStore(tmp_path)
        store.save(replace(saved_view(cluster), brokers=()), known)
        store.close()
    found = SnapshotStore(tmp_path).load([address(2), address(1), address(5)], cluster_id=None)
    assert found is not None
    assert found.cluster_id == "one"
    assert SnapshotStore(tmp_path).load([address(8)], cluster_id=None) is None
    named = SnapshotStore(tmp_path).load([address(8)], cluster_id=ClusterId("two"))
    assert named is not None


def test_given_two_clusters_that_know_as_much_when_loaded_then_neither_is_guessed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for cluster in ("one", "two"):
        store = SnapshotStore(tmp_path)
        store.save(replace(saved_view(cluster), brokers=()), [address(1)])
        store.close()
    assert SnapshotStore(tmp_path).load([address(1)], cluster_id=None) is None
    assert "set clusterId" in caplog.text


def test_given_a_view_that_a_list_outvoted_when_the_new_one_is_kept_then_the_list_leads_to_it_alone(
    tmp_path: Path,
) -> None:
    first = SnapshotStore(tmp_path)
    first.save(replace(saved_view("one"), brokers=()), [address(1), address(2)])
    first.close()
    store = SnapshotStore(tmp_path)
    assert store.load([address(1)], cluster_id=None) is not None
    moved = replace(saved_view("two"), brokers=())
    assert not store.save(moved, [address(1)]), "not before it may be replaced"
    assert SnapshotStore(tmp_path).load([address(1)], cluster_id=None) == replace(saved_view("one"), brokers=())
    store.may_replace = True
    assert store.save(moved, [address(1)])
    store.close()
    assert SnapshotStore(tmp_path).load([address(1)], cluster_id=None) == moved
    other = SnapshotStore(tmp_path).load([address(2)], cluster_id=None)
    assert other is not None
    assert other.cluster_id == "one"


@pytest.mark.parametrize("pin", ["two", None])
def test_given_a_named_source_whose_cluster_id_was_changed_when_it_saves_then_the_new_view_replaces_the_old(
    tmp_path: Path, pin: str | None
) -> None:
    first = SnapshotStore(tmp_path, source_id="dau")
    first.save(replace(saved_view("one"), brokers=()), [address(1)])
    store = SnapshotStore(tmp_path, source_id="dau")
    store.load([address(2)], cluster_id=ClusterId(pin) if pin else None)
    moved = replace(saved_view("two"), brokers=())
    assert store.save(moved, [address(2)]) is (pin == "two"), "without a pin the saved view is one"
    if pin:
        saved = decode((tmp_path / "sources" / "dau.json").read_bytes())
        assert saved == Saved(snapshot=moved, known_addresses=frozenset({address(2)})), "nothing is left of the old one"


def test_given_a_second_process_without_a_name_when_it_saves_then_the_first_one_stays_the_writer(
    tmp_path: Path,
) -> None:
    first, second = SnapshotStore(tmp_path), SnapshotStore(tmp_path)
    assert first.save(saved_view(generation=1), [])
    assert not second.save(saved_view(generation=2), [])
    assert second.write_failures == 0
    first.close()


def test_given_a_broken_file_when_loaded_then_it_is_reported_and_counts_as_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "sources" / "dau.json"
    write_atomically(path, b'{"schema":1')
    assert SnapshotStore(tmp_path, source_id="dau").load([address(1)], cluster_id=None) is None
    assert caplog.messages[0].startswith("state_unreadable ")


@pytest.mark.parametrize("name", ["dau", None])
def test_given_a_file_nobody_can_read_when_replaced_then_it_is_kept_and_the_generation_goes_on(
    tmp_path: Path, name: str | None
) -> None:
    first = SnapshotStore(tmp_path, source_id=name)
    first.open()
    assert first.save(saved_view(generation=7), [address(1)])
    first.close()
    (path,) = tmp_path.glob("*/*.json")
    path.write_bytes(b"damaged")
    again = SnapshotStore(tmp_path, source_id=name)
    again.open()
    assert again.load([address(1)], cluster_id=ClusterId("ours")) is None
    assert again.floor == 7
    for generation in (8, 9):
        assert again.save(saved_view(generation=generation), [address(1)])
    again.close()
    (kept,) = path.parent.glob("*.damaged-*")
    assert kept.read_bytes() == b"damaged"
    assert decode(path.read_bytes()).snapshot.generation == 9


def test_given_a_folder_that_cannot_be_written_when_saved_then_it_is_reported_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SnapshotStore(tmp_path, source_id="dau")
    store.open()
    (tmp_path / "sources" / "dau.json").mkdir()  # a rename onto a folder fails for every user, root too
    assert not store.save(saved_view(), [])
    assert (store.write_failures, store.is_failing) == (1, True)
    assert caplog.messages[0].startswith("state_not_written ")
    assert [p.name for p in (tmp_path / "sources").iterdir() if p.name.startswith(".")] == []
    (tmp_path / "sources" / "dau.json").rmdir()
    assert store.save(saved_view(), [])
    assert (store.write_failures, store.is_failing) == (1, False)
    store.close()


@contextlib.contextmanager
def full_disk(room_bytes: int = 64) -> Iterator[None]:
    """Refuse to write beyond so many bytes of any file; what is already there can be written again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["dau", None])
def test_given_views_a_full_disk_did_not_take_when_started_again_then_the_generation_goes_on(
    tmp_path: Path, name: str | None
) -> None:
    store = SnapshotStore(tmp_path, source_id=name)
    store.open()
    assert store.save(saved_view(generation=5), [address(1)])
    for _ in range(2):  # restarts
        with full_disk():
            assert not store.save(saved_view(generation=store.floor + 9), [address(1)])
        store.close()
        store = SnapshotStore(tmp_path, source_id=name)
        with full_disk():
            store.open()
            found = store.load([address(1)], cluster_id=None)
        assert found is not None
        assert found.generation == store.floor + 1, "its content is older than what had the last number"
    assert store.floor == 9 + 9
    assert store.save(saved_view(generation=30), [address(1)])
    store.close()
    again = SnapshotStore(tmp_path, source_id=name).load([address(1)], cluster_id=None)
    assert again is not None
    assert again.generation == 30, "nothing was missed: the number stays"


def test_given_a_view_that_was_never_saved_when_started_again_then_the_generation_goes_on(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path, source_id="dau")
    store.open()
    with full_disk():
        assert not store.save(saved_view(generation=3), [address(1)])
    store.close()
    again = SnapshotStore(tmp_path, source_id="dau")
    assert again.load([address(1)], cluster_id=None) is None
    state = initial_state([address(1)], floor=again.floor)
    served = run(run(state, alive(1, 1)).state, answer(1)).state.snapshot
    assert served is not None
    assert served.generation == 4


@pytest.mark.parametrize("name", ["dau", None])
def test_given_a_disk_full_from_the_start_when_it_has_room_again_then_the_view_is_saved(
    tmp_path: Path, name: str | None
) -> None:
    store = SnapshotStore(tmp_path, source_id=name)
    with full_disk(room_bytes=0):
        store.open()
        assert [store.save(saved_view(), [address(1)]) for _ in range(2)] == [False, False]
    assert (store.write_failures, store.is_failing) == (2, True)
    assert store.save(saved_view(), [address(1)])
    assert not store.is_failing
    store.close()


def test_given_any_id_when_named_as_a_file_then_it_stays_in_its_folder() -> None:
    assert file_name("dau-1.x") == "dau-1.x.json"
    hostile = {file_name(name) for name in ("../../etc/passwd", "a/b", "", ".", "..", "ä" * 300, "x" * 200)}
    assert len(hostile) == 7
    assert all("/" not in name and not name.startswith(".") and len(name) < 120 for name in hostile)


def _hold(path: Path, ready: "multiprocessing.synchronize.Event") -> None:
    FileLock(path).acquire()
    ready.set()
    signal.pause()


def test_given_a_holder_killed_with_sigkill_when_locked_again_then_the_lock_is_free(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(tmp_path / "x.lock", ready))
    holder.start()
    try:
        assert ready.wait(30)
        with pytest.raises(StateError, match=str(holder.pid)):
            FileLock(tmp_path / "x.lock").acquire()
    finally:
        holder.kill()
        holder.join(10)
    FileLock(tmp_path / "x.lock").acquire().release()


_WRITER = """
import sys
from pathlib import Path
from discovery.store.files import write_atomically
number = 0
while True:
    number += 1
    write_atomically(Path(sys.argv[1]), (str(number) * 2000 + "\\n").encode())
    print(number, flush=True)
"""


def test_given_a_writer_killed_at_any_moment_when_read_then_the_content_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "view.json"
    for rounds in (1, 3, 7):
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        with writer.stdout:
            try:
                for _ in range(rounds):
                    writer.stdout.readline()
            finally:
                writer.kill()
                writer.wait(10)
        content = path.read_text()
        number = content[: len(content) // 2000]
        assert content == number * 2000 + "\n"
        assert len(list(tmp_path.iterdir())) <= 2, "crashes must not pile up temporary files"


def test_given_a_lock_when_others_look_at_once_then_only_a_holder_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    assert not FileLock(path).is_held(), "nobody ever took it"
    held = FileLock(path).acquire()
    assert FileLock(path).is_held()
    held.release()
    content = path.read_bytes()
    with path.open("rb") as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        assert not FileLock(path).is_held(), "another one who looks is no holder"
    assert path.read_bytes() == content
