"""The options that a snippet gives to the source and to the sink, read from its text."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

_FORMAT = "kafka-discovery"
_ENDS = ("load", "start", "save")
_SPARKS_OWN = ("checkpointLocation", "path")


class Given(NamedTuple):
    """One read or write."""

    reads: bool
    options: dict[str, str]


def given_options(text: str) -> Iterator[Given]:
    """Yield what each chain of calls with our format, and each dictionary with a `sinkId`, gives.

    A value that is computed stands in as an address: only `kafka.bootstrap.servers` is, in our pages.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ENDS:
            names = [one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)]
            calls = dict(_calls(node))
            if _FORMAT in calls.pop("format", ""):
                yield Given("readStream" in names or "read" in names, calls)
        elif isinstance(node, ast.Dict):
            pairs = {_text(key): _text(value) for key, value in zip(node.keys, node.values, strict=True) if key}
            if "sinkId" in pairs:
                yield Given(reads=False, options=pairs)


def _calls(node: ast.expr) -> Iterator[tuple[str, str]]:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "option" and _text(node.args[0]) not in _SPARKS_OWN:
            yield _text(node.args[0]), _text(node.args[1])
        elif node.func.attr == "format":
            yield "format", _text(node.args[0])
        node = node.func.value
        while isinstance(node, ast.Attribute):  # writeStream, readStream
            node = node.value


def _text(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else "b1:9092"
