"""Supervision inside a program: a query that is rebuilt, with fresh brokers, each time a restart may help."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from discovery.config.logs import event_log
from discovery.spark.supervise.budget import Budget, Exponential, GiveUp, Run, decide
from discovery.spark.supervise.classify import Failure, Finding, classify
from discovery.spark.supervise.list_vetting import ListVetter, Vetted
from discovery.spark.supervise.report import Attempt, Outcome, Report, worth_a_restart
from discovery.spark.supervise.safe_options import Version, clients_of_spark, parse_version, safe_options
from discovery.store.locations import default_state_dir

if TYPE_CHECKING:  # `kafka-discovery run` needs nothing of PySpark's
    from pyspark.sql.streaming.query import StreamingQuery

_STOP_CHECK_SECONDS = 0.5
_log = event_log("discovery.spark.supervise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """What a query shall be built with this time."""

    servers: str
    options: Mapping[str, str]
    """Safe client options under Spark's names; those the caller named are left out."""

    @property
    def kafka_options(self) -> dict[str, str]:
        """All of it, as `.options(**…)` takes it."""
        return {"kafka.bootstrap.servers": self.servers, **self.options}


def run_query(
    build: "Callable[[Bootstrap], StreamingQuery]",
    bootstrap_servers: str,
    *,
    client: Mapping[str, str] | None = None,
    budget: Budget | None = None,
    local: bool = True,
    state_dir: Path | None = None,
    vet_seconds: float = 60.0,
    stop: threading.Event | None = None,
) -> Report:
    """Run a streaming query until it ends well, fails for good, or is out of restarts.

    Options freeze when a query is built, so each run calls `build` again, on the same checkpoint, with brokers vetted
    at that moment.

    Args:
        build: Builds and starts the query; called once per run.
        bootstrap_servers: The list as it is written today; brokers met before are remembered.
        client: The client options you set yourself (`kafka.…`): they are used for the vetting, and never overridden.
        budget: How often and when to restart; exponential by default.
        local: Whether all executors run on this host: then the query gets an endpoint's address, else the list.
        state_dir: Where brokers are remembered; the user's state folder if None.
        vet_seconds: How long to wait for a living broker before the run counts as failed.
        stop: Set it to end the query and the supervision.

    Returns:
        The report; it does not raise what the query raised.

    Raises:
        ConfigError: the list or a client option is wrong.

    Runs: the driver's thread that calls it; blocks as long as the query lives.
    """
    given, over = dict(client or {}), stop or threading.Event()
    vetter = ListVetter(state_dir=state_dir or default_state_dir(), over=over)
    attempts: list[Attempt] = []
    failed: list[Run] = []
    try:
        while True:
            began, wall = time.monotonic(), time.time()
            vetted = vetter.vet(bootstrap_servers, client=given, wait_seconds=vet_seconds)
            servers = vetted.servers(local=local)
            finding = _refusal(vetted) or _one_run(build, _bootstrap(vetted, servers, given), over)
            seconds = time.monotonic() - began
            attempts.append(Attempt(began_wall=wall, seconds=seconds, servers=servers, finding=finding))
            if finding is None:
                outcome = Outcome.STOPPED if over.is_set() else Outcome.FINISHED
                return Report(outcome=outcome, attempts=tuple(attempts))
            failed.append(Run(began=began, ended=time.monotonic()))
            if not worth_a_restart(attempts):
                return Report(outcome=Outcome.FATAL, attempts=tuple(attempts), reason=finding.remedy)
            verdict = decide(budget or Exponential(), failed, fraction=random.random())  # noqa: S311 - jitter
            if isinstance(verdict, GiveUp):
                return Report(outcome=Outcome.EXHAUSTED, attempts=tuple(attempts), reason=verdict.reason)
            _log.warning(
                "query_restarts",
                failure=finding.failure.value,
                evidence=finding.evidence,
                in_seconds=round(verdict.delay_seconds, 1),
            )
            if over.wait(verdict.delay_seconds):
                return Report(outcome=Outcome.STOPPED, attempts=tuple(attempts))
    finally:
        vetter.close()


def _refusal(vetted: Vetted) -> Finding | None:
    """Say why a run need not even be tried."""
    if vetted.fatal is not None:
        return Finding(failure=Failure.WRONG_CLUSTER, evidence=vetted.fatal, remedy="correct the list")
    if not vetted.living:
        return Finding(
            failure=Failure.DEAD_LIST, evidence=f"no living broker: {vetted.verdicts}", remedy="waiting for a broker"
        )
    return None


def _bootstrap(vetted: Vetted, servers: str, given: Mapping[str, str]) -> Bootstrap:
    names = {name.lower().removeprefix("kafka.") for name in given}
    extra = safe_options(_clients(), brokers=vetted.brokers, given=names)
    return Bootstrap(servers=servers, options={f"kafka.{option.name}": option.value for option in extra})


def _clients() -> Version:
    import pyspark  # noqa: PLC0415 - its version alone

    return clients_of_spark(parse_version(pyspark.__version__))


def _one_run(
    build: "Callable[[Bootstrap], StreamingQuery]", bootstrap: Bootstrap, over: threading.Event
) -> Finding | None:
    """Run the query once; None: it ended well, or was stopped."""
    query: StreamingQuery | None = None
    try:
        query = build(bootstrap)
        while not query.awaitTermination(_STOP_CHECK_SECONDS):  # type: ignore[arg-type]
            if over.is_set():
                query.stop()
                return None
    except Exception as error:  # noqa: BLE001 - a build that fails is judged like a query that does
        return classify(f"{type(error).__name__}: {error}")
    return None
