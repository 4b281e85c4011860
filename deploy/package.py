"""Builds wheel and sdist so that the same source gives the same bytes: `python -m deploy.package [DIR]`.

Times come from SOURCE_DATE_EPOCH, else from the last commit. Wheels honour it by themselves; an sdist is packed again,
since setuptools leaves the clock, the user and the order of the file system in it.
"""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

_BUILD_SECONDS, _ASK_SECONDS = 300.0, 30.0
"""A build takes 2-10 s, Git's answer milliseconds: what takes longer hangs."""
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "discovery", "spark_jobs", "pyspark_kafka_discovery")


def build(target: Path) -> list[Path]:
    """Build wheel and sdist of this tree.

    Args:
        target: A folder for both; made where missing.

    Returns:
        The two files.

    Raises:
        CalledProcessError: the build failed; its words are on stderr.
        TimeoutExpired: the build, or Git, hung; it was ended.

    Runs: anywhere; blocks about 10 s, 5 minutes at most; needs `build` and `setuptools`, no network.
    """
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or _last_commit())
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "source"
        copy.mkdir()
        for name in _SOURCES:  # a copy: setuptools writes beside its sources, and would pack what it wrote before
            _copy(Path(name), copy / name)
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", scratch, str(copy)]
        # Permissions are part of both files.
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONPATH": ""}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, umask=0o022, check=False, timeout=_BUILD_SECONDS
        )
        if done.returncode != 0:
            sys.stderr.write(done.stdout + done.stderr)
            done.check_returncode()
        wheel, sdist = next(Path(scratch).glob("*.whl")), next(Path(scratch).glob("*.tar.gz"))
        shutil.copyfile(wheel, target / wheel.name)
        (target / sdist.name).write_bytes(repacked(sdist.read_bytes(), epoch=epoch))
        return [target / wheel.name, target / sdist.name]


def repacked(archive: bytes, *, epoch: int) -> bytes:
    """Return a tar.gz with the same files in order of their names, with one time and no owner.

    Runs: anywhere (pure).
    """
    packed, plain = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=plain, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda m: m.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=epoch, filename="") as zipped:
        zipped.write(plain.getvalue())
    return packed.getvalue()


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _last_commit() -> str:
    command = ["git", "log", "-1", "--format=%ct"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ASK_SECONDS).stdout
    except FileNotFoundError:  # no Git; one that hangs is an error, or the same commit would give other bytes
        answer = ""
    return answer.strip() or "315532800"  # 1980, where zip's time begins


def main() -> None:
    """Build into the named folder; say in one line why not."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    try:
        made = build(target)
    except (subprocess.SubprocessError, OSError) as failed:
        sys.exit(f"nothing was built into {target}: {failed}")
    print(*made, sep="\n")  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
