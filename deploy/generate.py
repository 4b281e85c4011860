"""Writes every generated file of this folder: `python -m deploy.generate [--runbooks-url URL]`.

The tests compare what is there with what this would write.
"""

import argparse
from pathlib import Path
from typing import Any

import yaml

from deploy.source import cases, rules

HERE = Path("deploy")
_HEAD = "# Written by `python -m deploy.generate`; do not edit. The source is in deploy/source.\n"


def files(*, runbooks: str = rules.RUNBOOKS) -> dict[Path, str]:
    """Return every generated file by path.

    Runs: anywhere (pure).
    """
    spec = rules.groups(runbooks=runbooks)
    return {
        HERE / "prometheus/rules/kafka-discovery.yml": as_yaml(spec),
        HERE / "prometheus/rules/prometheusrule.yaml": as_yaml(rules.prometheus_rule(spec)),
        HERE / "prometheus/tests/kafka-discovery.yml": as_yaml(cases.tests("../rules/kafka-discovery.yml")),
    }


def as_yaml(*documents: Any) -> str:
    """Write documents as YAML, long texts folded, multi-line ones as blocks, keys as they come.

    Runs: anywhere (pure).
    """
    dumped = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return _HEAD + str(dumped)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes texts of several lines as blocks, and repeats instead of anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        """Write everything out: readers and other tools need no anchors."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def main() -> None:
    """Write the files that differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runbooks-url", default=rules.RUNBOOKS, help="where your copy of the runbooks is served")
    for path, text in files(runbooks=parser.parse_args().runbooks_url).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
