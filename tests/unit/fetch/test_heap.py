"""What sharing two arenas of the C heap means for a worker in which a user's function runs threads of its own."""

import os
import subprocess
import sys
from pathlib import Path

_EIGHT_THREADS = """
import ctypes, sys, threading, zlib
from discovery.spark.fetch.heap import share_arenas
if sys.argv[1] == "shared":
    share_arenas()
payload = bytes(range(256)) * 400
barrier = threading.Barrier(8)
def work(number):
    barrier.wait()
    wrong[number] = sum(zlib.decompress(zlib.compress(payload, 1)) != payload for _ in range(50))
wrong = {}
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
file = libc.fopen(sys.argv[2].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
print(sum(wrong.values()))
"""


def arenas(tmp_path: Path, mode: str, **environment: str) -> int:
    """Run eight threads that compress; return how many arenas of the heap they left."""
    info = tmp_path / "info.xml"
    known = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    path = os.pathsep.join(part for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, "-c", _EIGHT_THREADS, mode, str(info)],
        env={**known, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "0", "every thread got back what it had compressed"
    return info.read_text().count("<heap nr=")


def test_given_a_users_threads_when_the_heap_is_shared_then_they_work_in_two_arenas(tmp_path: Path) -> None:
    assert arenas(tmp_path, "plain") > 4
    assert arenas(tmp_path, "shared") == 2
    assert arenas(tmp_path, "shared", MALLOC_ARENA_MAX="4") == 4, "what the user says goes before"
