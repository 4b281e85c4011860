"""A removal's verdict as a document, with the commands that lead on. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from discovery.core.prediction.reassignment import to_json
from discovery.core.prediction.removal import Level, Removal, RemovalFacts, Safety

PLAN_FILE = "plan.json"
REPORTED = "consumer "
"""How the names of lists begin that consumers reported."""
_CONTACTS = 3


def removal_document(
    removal: Removal, facts: RemovalFacts, *, temporary: bool = False, verified: bool = False
) -> dict[str, Any]:
    """Return everything there is to say, as plain values.

    Args:
        removal: The verdict.
        facts: What it was drawn from.
        temporary: The brokers were said to come back.
        verified: The question was whether the removal is complete.

    Runs: anywhere (pure).
    """
    return {
        "verdict": removal.safety.value,
        "sentence": _sentence(removal, verified=verified),
        "brokers": list(removal.leaving),
        "temporary": temporary,
        "verified": verified,
        "findings": [
            {"code": f.code, "level": f.level.value, "sentence": f.sentence, "subjects": list(f.subjects)}
            for f in removal.findings
        ],
        "commands": commands(removal, facts, verified=verified),
        "plan": [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(to)}
            for tp, to in sorted(removal.plan.items())
        ],
    }


def commands(removal: Removal, facts: RemovalFacts, *, verified: bool = False) -> list[str]:
    """Return the commands that make it safe, or where it is safe, those that do it.

    Runs: anywhere (pure).
    """
    staying = [broker.address for broker in facts.brokers if broker.broker_id not in removal.leaving]
    contacts = ",".join(map(str, staying[:_CONTACTS])) or "HOST:PORT"
    ids = ",".join(map(str, removal.leaving))
    tool = f"kafka-reassign-partitions --bootstrap-server {contacts} --reassignment-json-file {PLAN_FILE}"
    unregister = [f"kafka-cluster unregister --bootstrap-server {contacts} --id {one}" for one in removal.leaving]
    check = f"kafka-discovery removal --bootstrap {contacts} --brokers {ids}"
    reported = any(name.startswith(REPORTED) for name in facts.lists)  # then the service knows more than any list
    unjudged = any(finding.code == "list-unknown" for finding in removal.findings)  # a service asks no stranger
    again = f"kafka-discovery removal --brokers {ids}" if reported and not unjudged else f"{check} --lists FILE"
    if removal.safety is Safety.SAFE:
        brokers = "broker" if len(removal.leaving) == 1 else "brokers"
        return [] if verified else [f"stop {brokers} {ids}", *unregister, f"{check} --verify"]
    done = []
    if removal.plan:
        done = [f"{check} --plan {PLAN_FILE}", f"{tool} --execute", f"{tool} --verify"]
    if any(finding.code == "still-listed" for finding in removal.findings):
        done += unregister
    lists = [f for f in removal.findings if f.code in {"list-empty", "list-thin"}]
    if lists and staying:
        done.append(f"in those lists: kafka.bootstrap.servers={','.join(map(str, staying))}")
    return [*done, f"{check} --verify" if verified else again]


def plan_text(plan: Sequence[Mapping[str, Any]]) -> str:
    """Write a document's plan as Kafka's own tool reads it.

    Runs: anywhere (pure).
    """
    return to_json({(str(move["topic"]), int(move["partition"])): move["replicas"] for move in plan})


def text_lines(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (mark, line) for a reader, the verdict first.

    Runs: anywhere (pure).
    """
    marks = {"breaks": "✗", "weakens": "!", "moves": "·", "tidy": "·"}  # any other level: not found out
    verdict = {"safe": "✓", "not": "✗", "unknown": "?"}[document["verdict"]]
    lines = [(verdict, str(document["sentence"]))]
    lines += [(marks.get(finding["level"], "?"), str(finding["sentence"])) for finding in document["findings"]]
    return [*lines, *(("→", str(command)) for command in document["commands"])]


def _sentence(removal: Removal, *, verified: bool) -> str:
    if not verified:
        return removal.sentence
    ids = ", ".join(map(str, removal.leaving))
    match removal.safety:
        case Safety.SAFE:
            return f"complete: nothing in the cluster depends on {ids} any more"
        case Safety.NOT:
            return f"not complete: {', '.join(f.code for f in removal.findings if f.level is Level.BREAKS)}"
        case _:
            return "unknown: not everything could be found out"
