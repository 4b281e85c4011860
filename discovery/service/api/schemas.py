"""The shapes of what the API says, as JSON Schema. Tests hold every answer against them."""

from typing import Any

from discovery.config.logs import LEVELS
from discovery.core.diff import EventKind
from discovery.core.model import LoopState, Verdict
from discovery.core.prediction.removal import Level, Safety
from discovery.feed.wire import ROW
from discovery.service.api.documents import CONDITIONS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_WALL: Schema = {"type": "number", "description": "Seconds since the epoch."}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _object(**properties: Schema) -> Schema:
    """Describe an object that has all of these and nothing else."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _without_need(schema: Schema, *names: str) -> Schema:
    return {**schema, "required": [name for name in schema["required"] if name not in names]}


ERROR = _object(error={**_TEXT, "description": "One line: what, which, and what to do."})
_VERDICT = _maybe({"type": "string", "enum": [verdict.value for verdict in Verdict]})
_STATE: Schema = {"type": "string", "enum": [state.value for state in LoopState]}
_LEADING = {"partition": _COUNT, "leader_id": _maybe({"type": "integer"})}
_REPLICAS = {"replicas": _list({"type": "integer"}), "in_sync": _list({"type": "integer"})}
_REPORT = {"verdict": _VERDICT, "detail": _TEXT, "since_wall": _maybe(_WALL), "configured": _FLAG}
SNAPSHOT = _object(
    cluster=_TEXT,
    epoch={**_TEXT, "description": "Another one means: the service was restarted; start over."},
    generation={**_COUNT, "description": "Grows with every change of this document; 0 before the first view."},
    cluster_id=_maybe(_TEXT),
    brokers=_list(_object(broker_id={"type": "integer"}, address=_TEXT, rack=_maybe(_TEXT))),
    topics=_map(_object(topic_id=_maybe(_TEXT), partitions=_list(_object(**_LEADING, **_REPLICAS)))),
    gone=_list(_TEXT),
)
FOLLOW = _object(
    epoch=_TEXT,
    version=_COUNT,
    since={**_COUNT, "description": "The version this builds on; 0: the document is whole."},
    generation=_COUNT,
    state=_STATE,
    cluster_id=_maybe(_TEXT),
    bootstrap=_list(_TEXT),
    missing_topics=_list(_TEXT),
    addresses=_map(_object(**_REPORT)),
    sentence=_TEXT,
    fatal=_maybe(_TEXT),
    scope=_object(topics=_list(_TEXT), pattern=_maybe(_TEXT)),
    leaders=_map(_TEXT),
    topics=_map(
        _object(
            topic_id=_maybe(_TEXT),
            gone=_FLAG,
            partitions=_list(
                {"type": "array", "minItems": len(ROW), "maxItems": len(ROW), "description": ", ".join(ROW)}
            ),
        )
    ),
)
BROKERS = _object(
    cluster=_TEXT,
    generation=_COUNT,
    bootstrap=_list(_TEXT),
    brokers=_list(
        _object(
            address=_TEXT,
            broker_id=_maybe({"type": "integer"}),
            rack=_maybe(_TEXT),
            advertised=_FLAG,
            condition={"type": "string", "enum": list(CONDITIONS)},
            **_REPORT,
            failures=_COUNT,
            quarantined_until_wall=_maybe(_WALL),
            leads_partitions=_COUNT,
        )
    ),
)
TOPIC = _object(
    cluster=_TEXT,
    generation=_COUNT,
    topic=_TEXT,
    topic_id=_maybe(_TEXT),
    gone=_FLAG,
    partitions=_list(
        _object(
            **_LEADING,
            **_REPLICAS,
            leader=_maybe(_TEXT),
            start_offset=_maybe(_COUNT),
            high_watermark=_maybe(_COUNT),
            last_stable_offset=_maybe(_COUNT),
            parked_reason=_maybe(_TEXT),
            parked_since_wall=_maybe(_WALL),
        )
    ),
)
STATUS = _object(
    cluster=_TEXT,
    cluster_id=_maybe(_TEXT),
    epoch=_TEXT,
    generation=_COUNT,
    state=_STATE,
    sentence=_TEXT,
    fatal=_maybe(_TEXT),
    age_seconds=_maybe({"type": "number"}),
    brokers=_object(**dict.fromkeys(CONDITIONS, _COUNT)),
    topics=_COUNT,
    partitions=_COUNT,
    parked=_COUNT,
    missing_topics=_list(_TEXT),
    consumers=_COUNT,
    fallen_back=_list({**_TEXT, "description": "Consumers whose embedded loop leads in this service's place."}),
    loop=_object(
        idle_seconds=_maybe({"type": "number"}),
        stuck_calls=_COUNT,
        clients_built=_COUNT,
        bugs=_COUNT,
        state_write_failures=_COUNT,
    ),
)
CLUSTERS = _object(clusters=_list(STATUS))
EVENTS = _object(
    cluster=_TEXT,
    events=_list(
        _object(
            number=_COUNT,
            wall=_WALL,
            kind={"type": "string", "enum": [kind.value for kind in EventKind]},
            subject=_TEXT,
            sentence=_TEXT,
        )
    ),
)
_BY_PARTITION = _map(_map(_COUNT))
OFFSETS = _without_need(_object(group=_TEXT, offsets=_map(_map({"type": "integer"}))), "group")
COMMIT = _object(offsets=_BY_PARTITION)
RESOLVE: Schema = {
    "oneOf": [
        _object(offsets=_map(_map({"type": "integer", "enum": [-2, -1], "description": "-2 earliest, -1 latest"}))),
        _object(timestamps=_map(_map({**_COUNT, "description": "Milliseconds since the epoch."}))),
    ]
}
_REPORTED = {
    "instance": {**_TEXT, "maxLength": 200, "description": "Names the process; two with one id are refused."},
    "replaces": {**_TEXT, "maxLength": 200, "description": "The instance whose id it takes over: one that has ended."},
    "cluster": _TEXT,
    "kind": {**_TEXT, "maxLength": 200},
    "acked_generation": {**_COUNT, "description": "The newest generation it applied."},
    "isolation_level": {"type": "string", "enum": ["read_uncommitted", "read_committed"]},
    "positions": _BY_PARTITION,
    "parked": _map(_map(_TEXT)),
    "bootstrap_servers": _list(_TEXT),
    "fallback": {**_TEXT, "maxLength": 200, "description": "Why its embedded loop leads; empty while it follows."},
}
REPORT = _without_need(_object(**_REPORTED), *_REPORTED)
CONSUMER = _object(
    id=_TEXT,
    instance=_TEXT,
    cluster=_TEXT,
    kind=_TEXT,
    acked_generation=_COUNT,
    behind={**_FLAG, "description": "Something was discovered that it has not applied."},
    fallback={**_TEXT, "description": "Why its embedded loop leads in this service's place; empty while it follows."},
    heard_seconds_ago={"type": "number"},
    bootstrap_servers=_list(_TEXT),
    bad_bootstrap_servers=_map({**_TEXT, "description": "Why the address it lists will not serve it."}),
    lag=_maybe(_COUNT),
    lags=_map(_COUNT),
    parked=_map(_TEXT),
)
CONSUMERS = _object(consumers=_list(CONSUMER))
REMOVAL = _object(
    verdict={"type": "string", "enum": [one.value for one in Safety]},
    sentence={**_TEXT, "description": "The verdict in one line."},
    brokers=_list(_COUNT),
    temporary={**_FLAG, "description": "The brokers were said to come back."},
    verified={**_FLAG, "description": "The question was whether the removal is complete."},
    findings=_list(
        _object(
            code=_TEXT,
            level={"type": "string", "enum": [one.value for one in Level]},
            sentence=_TEXT,
            subjects=_list(_TEXT),
        )
    ),
    commands={**_list(_TEXT), "description": "What makes it safe, or where it is safe, what does it."},
    plan={
        **_list(_object(topic=_TEXT, partition=_COUNT, replicas=_list(_COUNT))),
        "description": "Where the replicas should go first.",
    },
)
RELOADED = _object(ok=_FLAG, clusters=_list(_TEXT))
_LEVEL: Schema = {"type": "string", "enum": list(LEVELS)}
LOGLEVEL = _object(level=_LEVEL, configured=_LEVEL)
SET_LOGLEVEL = _object(level=_LEVEL)
