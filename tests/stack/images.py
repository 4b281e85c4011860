"""Images without an engine: an archive of layers and configurations as `docker save` writes it, for containerd."""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_INSTALL = """
set -e
mount -t tmpfs tmpfs /opt
/usr/bin/python3 -m venv /opt/kafka-discovery
pip="/opt/kafka-discovery/bin/pip install --quiet --no-compile --disable-pip-version-check"
$pip --require-hashes -r requirements/sidecar.txt
$pip --no-deps "$1"
tar -C / -cf "$2" opt/kafka-discovery
"""


@dataclass(frozen=True, slots=True)
class Image:
    """A name, its layers in order, and what the Dockerfile would say of how to run it."""

    name: str
    layers: Sequence[Path]
    config: Mapping[str, Any] = field(default_factory=dict)


def installed_layer(wheel: Path, target: Path) -> Path:
    """Write a layer with the service in /opt/kafka-discovery, as the Dockerfile installs it; this machine's /opt stays.

    Runs: as root; blocks about half a minute; needs the package index.
    """
    command = ["unshare", "--mount", "bash", "-c", _INSTALL, "install", str(wheel), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def write_archive(target: Path, images: Sequence[Image]) -> None:
    """Write one archive that holds all images, each layer once."""
    layers = {path: f"{number}.tar" for number, path in enumerate(dict.fromkeys(p for i in images for p in i.layers))}
    digests = {path: f"sha256:{_sha256(path)}" for path in layers}
    manifest = []
    with tarfile.open(target, "w") as archive:
        for path, name in layers.items():
            archive.add(path, arcname=name)
        for number, image in enumerate(images):
            rootfs = {"type": "layers", "diff_ids": [digests[path] for path in image.layers]}
            config = {"architecture": "amd64", "os": "linux", "config": dict(image.config), "rootfs": rootfs}
            _add(archive, f"{number}.json", config)
            names = [layers[path] for path in image.layers]
            manifest.append({"Config": f"{number}.json", "RepoTags": [image.name], "Layers": names})
        _add(archive, "manifest.json", manifest)


def _add(archive: tarfile.TarFile, name: str, content: object) -> None:
    data = json.dumps(content).encode()
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
