"""What files hold, as a digest: whether one was changed."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def fingerprint(paths: Iterable[Path | None]) -> str:
    """Return a digest of what these files hold; one that cannot be read counts as such.

    Runs: anywhere; reads the files.
    """
    digest = hashlib.sha256()
    for path in paths:
        try:
            content = b"" if path is None else hashlib.sha256(path.read_bytes()).digest()
        except OSError:
            content = b"?"
        digest.update(str(path).encode() + b"\0" + content)
    return digest.hexdigest()
