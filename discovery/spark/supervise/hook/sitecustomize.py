"""Put before everything else on a PySpark job's path by `kafka-discovery run`: a job that does not change asks us.

When the job is about to load from, or write to, `format("kafka")`, the list it was given and its client options go to
the supervisor over a Unix socket; back come the brokers to use now, and the safe options the job has not set. Nothing
here may fail a job: whatever goes wrong, the job goes on with what it had. Standard library only, any Python from 3.8:
this runs in the job's interpreter, not in ours. In processes that load no Spark reader it does nothing.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import socket
import sys
from typing import Any

SOCKET = "KAFKA_DISCOVERY_RUN_SOCKET"
_ANSWER_SECONDS = 90.0
_MODULES = {
    "pyspark.sql.readwriter": (("DataFrameReader", "load"), ("DataFrameWriter", "save")),
    "pyspark.sql.streaming.readwriter": (
        ("DataStreamReader", "load"),
        ("DataStreamWriter", "start"),
        ("DataStreamWriter", "toTable"),
    ),
}
_SERVERS = "kafka.bootstrap.servers"


_said: set[str] = set()


def _say(text: str) -> None:
    """Say a thing once: a job that writes in `foreachBatch` asks with every batch."""
    if text in _said:
        return
    _said.add(text)
    sys.stderr.write(f"kafka-discovery run: {text}\n")


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, and then wraps its readers and writers.

    Beside the loader, not in its place: that of a zip file is shared by all modules of a package.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        try:
            for kind, action in _MODULES[module.__name__]:
                if hasattr(getattr(module, kind, None), action):
                    _wrap(getattr(module, kind), action)
        except Exception as error:  # noqa: BLE001 - never the job's problem
            _say(f"this Spark's readers could not be prepared ({error!r}); the job's own lists are used")


class _Patcher(importlib.abc.MetaPathFinder):
    """Lets the interpreter find Spark's modules as always, but for the loader of those with readers and writers."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in _MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _wrap(kind: Any, action: str) -> None:
    """Remember what the job sets, and speak up just before it acts."""
    if "_kafka_discovery" not in kind.__dict__:
        kind._kafka_discovery = True  # noqa: SLF001 - our own mark
        for name in ("option", "options", "format"):
            _remember(kind, name, getattr(kind, name))
    act = getattr(kind, action)

    def acting(self: Any, *given: Any, **options: Any) -> Any:
        try:
            options = _advised(self, given, options)
        except Exception as error:  # noqa: BLE001 - never the job's problem
            _say(f"the brokers could not be asked for ({error}); the job's own list is used")
        return act(self, *given, **options)

    acting.__name__, acting.__doc__ = action, act.__doc__
    setattr(kind, action, acting)


def _remember(kind: Any, name: str, original: Any) -> None:
    def remembering(self: Any, *given: Any, **named: Any) -> Any:
        known = self.__dict__.setdefault("_kafka_discovery_known", {})
        if name == "options":
            known.update(named)
        elif name == "option":
            pair = [*given, *(named[key] for key in ("key", "value") if key in named)]
            known[pair[0]] = pair[1]
        else:
            self.__dict__["_kafka_discovery_format"] = given[0] if given else named.get("source")
        return original(self, *given, **named)

    remembering.__name__, remembering.__doc__ = name, original.__doc__
    setattr(kind, name, remembering)


def _advised(self: Any, given: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return the call's options with what the supervisor says in them; unchanged where it is not our business."""
    positional = given[1] if len(given) > 1 else None  # of all of them the second is the format
    chosen = options.get("format") or positional or self.__dict__.get("_kafka_discovery_format")
    known = {**self.__dict__.get("_kafka_discovery_known", {}), **options}
    kafka = {str(k).lower(): str(v) for k, v in known.items() if str(k).lower().startswith("kafka.")}
    if chosen != "kafka" or _SERVERS not in kafka:
        return options
    spark = getattr(self, "_spark", None)
    reported = _ask({"options": kafka, "master": _master(spark), "version": _version(spark)})
    for line in reported.get("say", ()):
        _say(line)
    mine = {name: value for name, value in options.items() if str(name).lower() not in reported["options"]}
    return {**mine, **reported["options"]}


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(_ANSWER_SECONDS)
        asked.connect(os.environ[SOCKET])
        asked.sendall(json.dumps(question).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            more = asked.recv(65536)
            if not more:
                break
            answer += more
    reported: dict[str, Any] = json.loads(answer)
    return reported


def _master(spark: Any) -> str:
    return str(getattr(getattr(spark, "sparkContext", None), "master", "") or "")


def _version(spark: Any) -> str:
    """Ask the JVM which kafka-clients it has; its jars may hang on the thread's class loader alone."""
    try:
        jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no public way to the JVM
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        properties = jvm.java.util.Properties()
        properties.load(loader.getResourceAsStream("kafka/kafka-version.properties"))
        return str(properties.getProperty("version"))
    except Exception:  # noqa: BLE001 - then the supervisor guesses by Spark's own version
        return ""


def _chain() -> None:
    """Run the `sitecustomize` that ours stands before, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - no import that the job may shadow
    others = [path for path in sys.path if os.path.abspath(path or ".") != here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _without_zips() -> None:
    """Have PySpark imported from where it is installed, with its bytecode: see the file that is loaded."""
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as above
    path = os.path.join(folder, "..", "..", "launch", "zips.py")  # noqa: PTH118
    spec = importlib.util.spec_from_file_location("kafka_discovery_zips", path)
    if spec is not None and spec.loader is not None:
        zips = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(zips)
        sys.path[:] = zips.without_zips(sys.path, [])


_chain()
if os.environ.get(SOCKET):
    try:
        _without_zips()
    except Exception as error:  # noqa: BLE001 - never the job's problem
        _say(f"Spark's own zips stay on the path ({error!r})")
    sys.meta_path.insert(0, _Patcher())
