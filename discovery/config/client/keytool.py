"""Java's `keytool` reads what only a JVM can read: stores of type JKS and JCEKS.

Passwords go by the environment of the child, which only this user can read, never by its command line; the converted
store lives in a folder that only this user can open, for as long as it takes to read it.
"""

import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from discovery.config.client.stores import StoreFile, certificates_in

_SECONDS = 60.0
_STORE, _KEY, _NEW = "KD_STORE_PASSWORD", "KD_KEY_PASSWORD", "KD_NEW_PASSWORD"
_ALIAS = re.compile(r"^Alias name: ", re.MULTILINE)
_KEY_ENTRY = "Entry type: PrivateKeyEntry"


class KeytoolError(Exception):
    """A store could not be read; one line with the remedy, without any password."""


def trusted_certificates(store: StoreFile) -> str:
    """Return the first certificate of every entry as PEM: what a JVM trusts in such a store.

    Raises:
        KeytoolError: it cannot be read.

    Runs: driver; blocks about a second.
    """
    return "".join(_first_certificate(entry) for _, entry in _entries(store))


def as_pkcs12(store: StoreFile) -> tuple[bytes, StoreFile]:
    """Return the store's one private key and its chain as PKCS#12, and how to open that.

    Raises:
        KeytoolError: it cannot be read, or holds no key or several.

    Runs: driver; blocks about two seconds.
    """
    keys = [alias for alias, entry in _entries(store) if _KEY_ENTRY in entry]
    if len(keys) != 1:
        found = f"{len(keys)} private keys ({', '.join(keys[:5])})" if keys else "no private key"
        raise KeytoolError(f"holds {found}; it needs one: copy it out with keytool -importkeystore -srcalias NAME")
    new = secrets.token_hex(16)
    passwords = {_STORE: store.password or "", _KEY: store.key_password or store.password or "", _NEW: new}
    with tempfile.TemporaryDirectory(prefix="kafka-discovery-keys-") as folder:
        target = Path(folder) / "key.p12"
        _run(
            [
                "-importkeystore", "-noprompt", "-srckeystore", store.location, "-srcstorepass:env", _STORE,
                "-srcalias", keys[0], "-srckeypass:env", _KEY, "-destkeystore", str(target),
                "-deststoretype", "PKCS12", "-deststorepass:env", _NEW,
            ],
            passwords,
            store,
        )  # fmt: skip
        return target.read_bytes(), replace(store, password=new, key_password=None)


def _entries(store: StoreFile) -> list[tuple[str, str]]:
    """Return (alias, description with PEM blocks) of every entry."""
    arguments = ["-list", "-rfc", "-keystore", store.location]
    if store.password:
        arguments += ["-storepass:env", _STORE]
    described = _ALIAS.split(_run(arguments, {_STORE: store.password or ""}, store))[1:]
    return [(entry.splitlines()[0].strip(), entry) for entry in described]


def _first_certificate(entry: str) -> str:
    end = entry.find("-----END CERTIFICATE-----")
    return certificates_in(entry[: end + len("-----END CERTIFICATE-----")]) if end >= 0 else ""


def _run(arguments: Sequence[str], passwords: Mapping[str, str], store: StoreFile) -> str:
    command = [keytool_command(), "-J-Duser.language=en", *arguments]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "LC_ALL": "C.UTF-8", **passwords},
            input="\n",  # what it asks for where no password is given: a JVM opens a trust store without one, too
            capture_output=True, text=True, timeout=_SECONDS, check=False, umask=0o077,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise KeytoolError(f"keytool did not end within {_SECONDS:g} s; convert the store to PKCS12 or PEM") from None
    if done.returncode != 0:
        raise KeytoolError(_why(done.stdout + done.stderr, store))
    return done.stdout


def _why(output: str, store: StoreFile) -> str:
    if "recover key" in output or "UnrecoverableKey" in output:
        return f"the password does not open the key in it; correct {store.prefix}ssl.key.password"
    if "password" in output:
        return f"the password does not open it; correct {store.option('password')}"
    line = next((line for line in output.splitlines() if "error" in line.lower()), "keytool failed")
    return f"{line.strip()[:200]}; check the file with keytool -list"


def keytool_command() -> str:
    """Return the path of `keytool`: `JAVA_HOME` first, then the PATH, then beside `java`.

    Raises:
        KeytoolError: there is none.

    Runs: anywhere; milliseconds.
    """
    home, java = os.environ.get("JAVA_HOME"), shutil.which("java")
    beside = [Path(home) / "bin"] if home else []
    beside += [Path(java).resolve().parent] if java else []
    found = next((str(folder / "keytool") for folder in beside if os.access(folder / "keytool", os.X_OK)), None)
    found = found or shutil.which("keytool")
    if found is None:
        raise KeytoolError(
            "a JKS store needs Java's keytool, which is not here; set JAVA_HOME, or convert it to PKCS12"
        )
    return found
