"""The built wheel, installed by pip into a clean environment.

The environment holds the locked packages and nothing else: their files are linked from where `make setup` installed
them by hash, since 900 MB need not be unpacked twice. pip then resolves what the wheel asks for, without an index.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

from deploy.package import build


def install(folder: Path, extra: str, lock: str) -> Path:
    """Build the wheel and install it with an extra, or none, into an environment with a lock's packages.

    Returns:
        The environment.
    """
    wheel, _ = build(folder)
    home = folder / "env"
    venv.create(home, with_pip=False)
    site = next((home / "lib").glob("python*")) / "site-packages"
    for found in locked(lock):
        link(found, site)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin/python")]
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    command = [*pip, "install", "--quiet", "--no-index", "--disable-pip-version-check", wanted]
    subprocess.run(command, check=True, timeout=120)
    return home


def locked(lock: str) -> list[metadata.Distribution]:
    """Return the packages of a lock, as far as this platform takes them."""
    names = re.findall(
        r"^([\w.-]+)==[^\\\n]*", Path("requirements", lock).read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    found = {name: list(metadata.distributions(name=name)) for name in names}
    return [distributions[0] for distributions in found.values() if distributions]


def link(found: metadata.Distribution, site: Path) -> None:
    """Link a package's modules and metadata; commands in `bin` name another interpreter and stay behind."""
    root = Path(str(found.locate_file(""))).resolve()
    for file in installed_files(found, root):
        if not file.is_relative_to(root) or "__pycache__" in file.parts:
            continue
        target = site / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, target)
        except OSError:  # another file system
            shutil.copy(file, target)


def installed_files(found: metadata.Distribution, root: Path) -> list[Path]:
    """Return what an installation of a package wrote; an old pip's notes are in a file that `files` does not prefer."""
    old = found.read_text("installed-files.txt")
    if old is None:
        return [Path(str(file.locate())).resolve() for file in found.files or ()]
    home = next(root.glob(f"{found.metadata['Name']}-{found.version}*.egg-info"))
    return [(home / line).resolve() for line in old.splitlines()]


def run(home: Path, folder: Path, *command: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    """Run a command as a user of that environment would, and check how it ends."""
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME", "LANG") if name in os.environ}
    environment = {
        **kept,
        "PATH": f"{home}/bin:{os.environ['PATH']}",
        "PYSPARK_PYTHON": str(home / "bin/kafka-discovery-python"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def pip(home: Path, folder: Path, *arguments: str) -> str:
    """Ask this interpreter's pip about that environment."""
    command = (sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "--disable-pip-version-check")
    return run(home, folder, *command, *arguments).stdout


def names(home: Path) -> set[str]:
    """Return the packages in an environment."""
    return {found.name for found in metadata.distributions(path=[str(next(home.glob("lib/*/site-packages")))])}
