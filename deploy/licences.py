"""Writes the licences of all locked dependencies: `python -m deploy.licences REQUIREMENTS OUTPUT`.

Read from the packages installed here, which `make setup` takes from the same lock.
"""

import re
import sys
from importlib import metadata
from pathlib import Path


def notices(requirements: str) -> str:
    """Return a table of name, version, licence and the licence files' texts.

    Args:
        requirements: The text of a lock: `name==version` at the beginnings of lines.

    Raises:
        PackageNotFoundError: a package of the lock that this platform needs is not installed.

    Runs: anywhere; reads the installed packages' metadata.
    """
    rows, texts = [], []
    for name, version, only in re.findall(r"^([\w.-]+)==([^ ;\\]+)([^\\\n]*)", requirements, flags=re.MULTILINE):
        found = _installed(name, version, optional=";" in only)
        if found is not None:
            rows.append(f"| {name} | {found.version} | {licence(found)} |\n")
            texts += [f"\n## {name}\n\n```\n{text.strip()}\n```\n" for text in _files(found)]
    head = "# Licences of third parties\n\n| package | version | licence |\n|---|---|---|\n"
    return head + "".join(rows) + "".join(texts)


def licence(found: metadata.Distribution) -> str:
    """Return what a package says of its licence, by the newest of the three ways to say it."""
    about = found.metadata
    classified = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier") or () if c.startswith("License ::")]
    # `get` is there, but not among what importlib promises.
    expression, words = (about[name] if name in about else "" for name in ("License-Expression", "License"))  # noqa: SIM401
    return str(expression or ", ".join(classified) or words or "not said").splitlines()[0]


def _installed(name: str, version: str, *, optional: bool) -> metadata.Distribution | None:
    """Return an installed package; None for one that the lock wants on other platforms or Pythons only."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        if optional:
            return None
        raise
    return found if found.version == version or not optional else None


def _files(found: metadata.Distribution) -> list[str]:
    wanted = re.compile(r"(^|/)(LICEN[CS]E|COPYING|NOTICE)[^/]*$", re.IGNORECASE)
    files = [file for file in found.files or () if ".dist-info/" in str(file) and wanted.search(str(file))]
    return [file.read_text(encoding="utf-8") for file in files if Path(str(file.locate())).is_file()]


def main() -> None:
    """Write the notices."""
    requirements, output = map(Path, sys.argv[1:])
    output.write_text(notices(requirements.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
