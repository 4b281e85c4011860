"""Every operation of the API, in the order of its page."""

from discovery.service.api.handlers import Api
from discovery.service.api.routes import DURATION, NUMBER, STRING, Parameter, Route, Schema
from discovery.service.api.schemas import (
    BROKERS,
    CLUSTERS,
    COMMIT,
    CONSUMER,
    CONSUMERS,
    EVENTS,
    FOLLOW,
    LOGLEVEL,
    OFFSETS,
    RELOADED,
    REMOVAL,
    REPORT,
    RESOLVE,
    SET_LOGLEVEL,
    SNAPSHOT,
    STATUS,
    TOPIC,
)
from discovery.service.consumers import KINDS

_C = "/v1/clusters/{cluster}"
_WAIT = Parameter(name="wait", schema=DURATION, meaning="How long to wait for a change; 30s by default, at most 60s.")
_EPOCH = Parameter(name="epoch", schema=STRING, meaning="The epoch the caller knows; another one is answered at once.")
_TIMEOUT = Parameter(name="timeout", schema=DURATION, meaning="How long Kafka may take; 10s by default, at most 60s.")
_FLAG: Schema = {"type": "string", "enum": ["true", "false"]}
_TOPICS = Parameter(name="topics", schema=STRING, meaning="Only these topics, separated by commas.")


def table(api: Api) -> tuple[Route, ...]:
    """Return the operations over these handlers."""
    return (
        Route(
            method="GET",
            path="/v1/clusters",
            handler=api.clusters,
            summary="The followed clusters and how they are doing",
            response=CLUSTERS,
        ),
        Route(
            method="GET",
            path=f"{_C}/snapshot",
            handler=api.snapshot,
            summary="The agreed view: brokers, topics, partitions, leaders",
            response=SNAPSHOT,
            statuses=(200, 304, 503),
        ),
        Route(
            method="GET",
            path=f"{_C}/watch",
            handler=api.watch,
            summary="The agreed view as soon as its generation is another than the caller's; 304 after the wait",
            parameters=(
                Parameter(name="generation", schema=NUMBER, meaning="The generation the caller has."),
                _EPOCH,
                _WAIT,
            ),
            response=SNAPSHOT,
            statuses=(200, 304, 503),
        ),
        Route(
            method="GET",
            path=f"{_C}/follow",
            handler=api.follow,
            summary="What changed since the caller's version: offsets, verdicts, leaders; whole where it has none",
            parameters=(
                Parameter(name="version", schema=NUMBER, meaning="The version the caller has; 0 or none: everything."),
                _EPOCH,
                _WAIT,
                _TOPICS,
                Parameter(name="pattern", schema=STRING, meaning="Only topics in which this expression is found."),
                Parameter(
                    name="isolation",
                    schema={"type": "string", "enum": ["read_uncommitted", "read_committed"]},
                    meaning="Which ends must be fresh; none: both.",
                ),
            ),
            response=FOLLOW,
            statuses=(200, 503),
        ),
        Route(
            method="GET",
            path=f"{_C}/bootstrap",
            handler=api.bootstrap,
            summary="The vetted brokers as a client takes them: host:port,host:port",
            response=STRING,
            media_type="text/plain",
            statuses=(200, 503),
        ),
        Route(
            method="GET",
            path=f"{_C}/brokers",
            handler=api.brokers,
            summary="Every address: alive, quarantined or rejected, why and since when",
            response=BROKERS,
            statuses=(200, 503),
        ),
        Route(
            method="GET",
            path=f"{_C}/topics/{{topic}}",
            handler=api.topic,
            summary="One topic: partitions, leaders, offsets, which are parked and why",
            response=TOPIC,
            statuses=(200, 503),
        ),
        Route(
            method="GET",
            path=f"{_C}/status",
            handler=api.status,
            summary="How the cluster is doing, in numbers and one sentence",
            response=STATUS,
            statuses=(200, 503),
        ),
        Route(
            method="GET",
            path=f"{_C}/events",
            handler=api.events,
            summary="What happened lately, oldest first",
            parameters=(
                Parameter(name="since", schema=NUMBER, meaning="Only events with a higher number."),
                Parameter(name="limit", schema=NUMBER, meaning="At most so many, the newest; 100 by default."),
            ),
            response=EVENTS,
        ),
        Route(
            method="POST",
            path=f"{_C}/refresh",
            handler=api.refresh,
            summary="Ask Kafka now; callers at the same time share one question",
            parameters=(_TIMEOUT,),
            response=STATUS,
            statuses=(200, 503),
        ),
        Route(
            method="POST",
            path=f"{_C}/resolve",
            handler=api.resolve,
            summary="Offsets for earliest, latest or timestamps",
            parameters=(
                _TIMEOUT,
                Parameter(
                    name="isolation",
                    schema={"type": "string", "enum": ["read_uncommitted", "read_committed"]},
                    meaning="What `latest` means; read_uncommitted by default.",
                ),
            ),
            body=RESOLVE,
            response=OFFSETS,
            statuses=(200, 503),
        ),
        Route(
            method="GET",
            path=f"{_C}/groups/{{group}}",
            handler=api.group,
            summary="A group's committed offsets on the followed partitions",
            parameters=(_TOPICS, _TIMEOUT),
            response=OFFSETS,
            statuses=(200, 503),
        ),
        Route(
            method="PUT",
            path=f"{_C}/groups/{{group}}",
            handler=api.put_group,
            summary="Set a group's committed offsets; refused while the group has members",
            parameters=(_TIMEOUT,),
            body=COMMIT,
            response=OFFSETS,
            statuses=(200, 503),
        ),
        Route(
            method="GET",
            path=f"{_C}/removal",
            handler=api.removal,
            summary="May these brokers be removed? Safe, not, or unknown, with reasons and the commands that lead on",
            parameters=(
                Parameter(
                    name="brokers",
                    schema={"type": "string", "pattern": r"^\d{1,9}(,\d{1,9})*$", "examples": ["9,10"]},
                    meaning="The ids in question.",
                    required=True,
                ),
                Parameter(name="temporary", schema=_FLAG, meaning="They come back: fewer replicas meanwhile will do."),
                Parameter(name="verify", schema=_FLAG, meaning="They were removed: is it complete, is all well?"),
                _TIMEOUT,
            ),
            response=REMOVAL,
            statuses=(200, 503),
        ),
        Route(
            method="GET",
            path="/v1/consumers",
            handler=api.consumers,
            summary="Who uses this service: lag, what each applied, dead brokers each still lists",
            response=CONSUMERS,
        ),
        Route(
            method="GET",
            path="/v1/consumers/{id}",
            handler=api.consumer,
            summary="One consumer",
            response=CONSUMER,
        ),
        Route(
            method="PUT",
            path="/v1/consumers/{id}",
            handler=api.put_consumer,
            summary=f"A consumer's report, which also says it lives (kinds in use: {', '.join(KINDS)})",
            body=REPORT,
            response=CONSUMER,
            statuses=(200, 409),
        ),
        Route(
            method="DELETE",
            path="/v1/consumers/{id}",
            handler=api.drop_consumer,
            summary="A consumer unregisters, or an operator lets it be forgotten",
            parameters=(Parameter(name="instance", schema=STRING, meaning="Only if this process has the id."),),
            statuses=(204,),
        ),
        Route(
            method="GET",
            path="/v1/loglevel",
            handler=api.loglevel,
            summary="The least level that is logged",
            response=LOGLEVEL,
        ),
        Route(
            method="PUT",
            path="/v1/loglevel",
            handler=api.put_loglevel,
            summary="Log more or less, until the configuration changes it or the service restarts",
            body=SET_LOGLEVEL,
            response=LOGLEVEL,
        ),
        Route(
            method="POST",
            path="/-/reload",
            handler=api.reload,
            summary="Read the configuration again; a wrong one changes nothing",
            response=RELOADED,
            statuses=(200, 409),
        ),
    )
