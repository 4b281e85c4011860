"""When each alert must fire and when it must not, as series that `promtool test rules` plays. One sample a minute.

Series are written as promtool writes them: `60+60x9` counts up, `_` is a gap.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.source.alerts import ALERTS, SOURCE_ALERTS

US = {"kafka_cluster": "main", "instance": "driver:9464", "job": "kafka-discovery"}
_LABELS = ",".join(f'{name}="{value}"' for name, value in US.items())
_SEVERITY = {alert.name: alert.severity for alert in (*ALERTS, *SOURCE_ALERTS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One alert, one story, one moment."""

    alert: str
    story: str
    series: Mapping[str, str]
    minutes: int
    fires: tuple[Mapping[str, str], ...] = ()
    """Labels of each firing alert beyond its name, state and severity; none: it must not fire."""


def _m(name: str, **labels: str) -> str:
    more = "".join(f',{key}="{value}"' for key, value in labels.items())
    return f"kafka_discovery_{name}{{{_LABELS}{more}}}"


def _s(name: str) -> str:
    return f'kafka_discovery_source_{name}{{source="dau",query="daily",instance="driver:9465",job="spark"}}'


@dataclass(slots=True)
class _Of:
    alert: str
    cases: list[Case] = field(default_factory=list)

    def fires(self, story: str, series: Mapping[str, str], minutes: int, *labels: Mapping[str, str]) -> "_Of":
        found = labels or (US,)
        self.cases.append(Case(alert=self.alert, story=story, series=series, minutes=minutes, fires=found))
        return self

    def quiet(self, story: str, series: Mapping[str, str], minutes: int) -> "_Of":
        self.cases.append(Case(alert=self.alert, story=story, series=series, minutes=minutes))
        return self


_STALE, _VIEWS = _m("snapshot_timestamp_seconds"), _m("snapshot_generation")
_LAST, _EVERY = _m("last_cycle_timestamp_seconds"), _m("loop_interval_seconds")
_FAILSAFE, _REJECTING = _m("state", state="failsafe"), _m("state", state="rejecting")
_DEAD, _GOOD = (_m("configured_brokers", condition=one) for one in ("quarantined", "healthy"))
_WRONG = _m("brokers", condition="rejected")
_HELD = _m("shrink_blocked_total", reason="brokers")
_FOREIGN = _m("metadata_disagreement_total", kind="cluster_id")
_ACKED = _m("consumer_acked_generation", consumer="dau")
_FALLBACK = _m("consumer_fallback", consumer="dau")
_LOGIN = _m("broker_attempts_total", broker="b1:9092", result="auth_failed")
_TLS = _m("cycles_total", outcome="tls")
_RELOAD = 'kafka_discovery_config_reload_success{instance="driver:9464",job="kafka-discovery"}'
_CERTIFICATE = (
    "kafka_discovery_certificate_expiry_timestamp_seconds"
    '{instance="driver:9464",job="kafka-discovery",use="api",file="/tls.crt"}'
)
_KEY = {"instance": "driver:9465", "job": "spark", "use": "kafka_identity", "file": "/key.p12"}
_LOGIN_OF_A_QUERY = (
    "kafka_discovery_certificate_expiry_timestamp_seconds"
    '{instance="driver:9465",job="spark",use="kafka_identity",file="/key.p12"}'
)
_PROCESS = {"instance": "driver:9464", "job": "kafka-discovery"}
_FILES, _MOST_FILES = (f'process_{one}_fds{{instance="driver:9464",job="kafka-discovery"}}' for one in ("open", "max"))
_MADE_ROOM = (
    "kafka_discovery_connections_closed_total"
    '{instance="driver:9464",job="kafka-discovery",listener="api",reason="evicted"}'
)
_FULL = _m("endpoint_turned_away_total", reason="limit")
_UP = 'up{instance="driver:9464",job="kafka-discovery"}'
_POD = {"namespace": "spark", "pod": "dau-driver"}
_RUNS = 'kube_pod_status_phase{namespace="spark",pod="dau-driver",phase="Running"}'
_SIDECAR = 'kube_pod_init_container_info{namespace="spark",pod="dau-driver",container="kafka-discovery"}'
_SERIES = 'kafka_discovery_build_info{namespace="spark",pod="dau-driver",version="1"}'
_QUERY = {"source": "dau", "query": "daily", "instance": "driver:9465", "job": "spark"}
_LATE_QUERY = {"query": "daily", "instance": "driver:9465", "job": "spark"}
_BATCH, _WAITING = _s("batch_started_timestamp_seconds"), _s("waiting_partitions")
_CUTS, _REWINDS, _LATE = _s("cuts_total"), _s("rewinds_total"), _s("late_records_total")
_DROPPED = 'kafka_discovery_query_late_rows_dropped_total{query="daily",instance="driver:9465",job="spark"}'
_OWN, _PLAIN, _LEDGER = _s("fallback"), _s("engine_fallback"), _s("ledger_failing")

_ALL = (
    _Of("DiscoverySnapshotStale")
    .fires("nothing confirmed since minute 2", {_STALE: "0+60x2 120+0x20", _VIEWS: "3+0x22"}, 11)
    .fires("no view at all since the start", {_VIEWS: "0+0x20"}, 3)
    .quiet("confirmed all the time", {_STALE: "0+60x30", _VIEWS: "3+0x30"}, 20)
    .quiet("an outage of four minutes", {_STALE: "0+60x2 120+0x3 360+60x20", _VIEWS: "3+0x30"}, 6)
    .quiet("old, but not yet for two minutes", {_STALE: "0+60x2 120+0x20", _VIEWS: "3+0x22"}, 8)
    .quiet("the service is gone, its series too: another alert's business", {_STALE: "0+60x2 stale"}, 20),
    _Of("DiscoveryLoopStalled")
    .fires("the loop stands since minute 2", {_LAST: "0+60x2 120+0x20", _EVERY: "1+0x22"}, 4)
    .quiet("the loop turns", {_LAST: "0+60x30", _EVERY: "1+0x30"}, 20)
    .quiet("a slow loop within five intervals", {_LAST: "0+0x4 240+60x9", _EVERY: "60+0x22"}, 4)
    .quiet("it stood for less than a minute", {_LAST: "0+60x2 120+0x0 240+60x9", _EVERY: "12+0x22"}, 4),
    _Of("DiscoveryFailsafeActive")
    .fires("no broker answers", {_FAILSAFE: "1+0x20"}, 6, {**US, "state": "failsafe"})
    .quiet("brokers answer again after four minutes", {_FAILSAFE: "1+0x3 0+0x20"}, 8)
    .quiet("it was another state", {_m("state", state="fresh"): "1+0x20", _FAILSAFE: "0+0x20"}, 20),
    _Of("DiscoveryBootstrapRedundancyLost")
    .fires("one of three is left", {_DEAD: "0+0x1 2+0x18", _GOOD: "3+0x1 1+0x18"}, 15)
    .fires("the only one listed is dead", {_DEAD: "1+0x20", _GOOD: "0+0x20"}, 11)
    .quiet("one load balancer is listed, and lives", {_DEAD: "0+0x20", _GOOD: "1+0x20"}, 20)
    .quiet("two of twelve live", {_DEAD: "10+0x20", _GOOD: "2+0x20"}, 20)
    .quiet("a rolling restart of nine minutes", {_DEAD: "1+0x8 0+0x20", _GOOD: "1+0x8 2+0x20"}, 12),
    _Of("DiscoveryBootstrapBrokerRejected")
    .fires("an address of another cluster is listed", {_WRONG: "1+0x20"}, 6, {**US, "condition": "rejected"})
    .quiet("dead ones are no wrong ones", {_m("brokers", condition="quarantined"): "4+0x20", _WRONG: "0+0x20"}, 20)
    .quiet("the name pointed elsewhere for two minutes", {_WRONG: "1+0x2 0+0x20"}, 10),
    _Of("DiscoveryShrinkBlocked")
    .fires("four brokers vanished in one answer", {_HELD: "0+0x3 1+0x20"}, 5, {**US, "reason": "brokers"})
    .quiet("it was long ago", {_HELD: "0+0x3 1+0x60"}, 40)
    .quiet("a restart set the counter back", {_HELD: "3+0x3 0+0x20"}, 6)
    .quiet("nothing was held back", {_HELD: "0+0x20"}, 20),
    _Of("DiscoveryClusterMismatch")
    .fires("an answer of another cluster", {_FOREIGN: "0+0x3 1+0x20", _REJECTING: "0+0x22"}, 5)
    .fires("the whole list is another cluster's, from the start", {_FOREIGN: "1+0x20", _REJECTING: "1+0x20"}, 1)
    .quiet("brokers disagree about each other only",
           {_m("metadata_disagreement_total", kind="broker_set"): "0+1x20", _FOREIGN: "0+0x20",
            _REJECTING: "0+0x20"}, 10)
    .quiet("it was long ago", {_FOREIGN: "0+0x3 1+0x60", _REJECTING: "0+0x60"}, 40),
    _Of("DiscoveryConsumerLagging")
    .fires("a consumer that stands", {_VIEWS: "3+0x2 4+0x20", _ACKED: "3+0x22"}, 9, {**US, "consumer": "dau"})
    .fires("a consumer that has fallen back", {_VIEWS: "3+0x22", _ACKED: "3+0x22", _FALLBACK: "0 1+0x20"}, 9,
           {**US, "consumer": "dau"})
    .quiet("a restart of the service", {_FALLBACK: "0+0x4 1+0x2 0+0x20"}, 20)
    .quiet("a busy cluster: always one behind, never the same one", {_VIEWS: "3+1x30", _ACKED: "2+1x30"}, 20)
    .quiet("it has applied everything", {_VIEWS: "3+0x2 4+0x20", _ACKED: "3+0x2 4+0x20"}, 20)
    .quiet("a consumer that has left", {_VIEWS: "3+0x2 4+0x20", _ACKED: "3+0x2 stale"}, 20)
    .quiet("a consumer of another cluster",
           {_VIEWS: "9+0x20", _ACKED.replace('"main"', '"other"'): "3+0x20"}, 20),
    _Of("DiscoveryAuthFailing")
    .fires("a wrong password", {_LOGIN: "1+1x20"}, 8)
    .fires("a certificate that ran out", {_TLS: "0+5x20"}, 8)
    .quiet("refused once, then let in", {_LOGIN: "0+0x2 1+0x20"}, 9)
    .quiet("dead brokers refuse nobody's password",
           {_m("broker_attempts_total", broker="b1:9092", result="refused"): "0+9x20", _LOGIN: "0+0x20"}, 20),
    _Of("DiscoveryTargetMissing")
    .fires("a target that does not answer", {_UP: "0+0x20"}, 11, _PROCESS)
    .fires("a driver that runs, and no series of its sidecar", {_RUNS: "1+0x20", _SIDECAR: "1+0x20"}, 11, _POD)
    .quiet("a target that answers", {_UP: "1+0x20"}, 20)
    .quiet("a job of somebody else", {'up{instance="x",job="node"}': "0+0x20"}, 20)
    .quiet("the driver has ended", {_RUNS: "1+0x5 0+0x20", _SIDECAR: "1+0x25"}, 20)
    .quiet("the driver is gone altogether", {_RUNS: "1+0x5 stale", _SIDECAR: "1+0x5 stale"}, 20)
    .quiet("driver and series are there", {_RUNS: "1+0x20", _SIDECAR: "1+0x20", _SERIES: "1+0x20"}, 20)
    .quiet("a pod without our sidecar", {_RUNS: "1+0x20", _SIDECAR.replace("kafka-discovery", "proxy"): "1+0x20"}, 20),
    _Of("DiscoveryConfigReloadFailed")
    .fires("a refused configuration", {_RELOAD: "0+0x20"}, 6, _PROCESS)
    .quiet("mended within three minutes", {_RELOAD: "0+0x2 1+0x20"}, 10)
    .quiet("never tried", {_RELOAD: "1+0x20"}, 20),
    _Of("DiscoveryCertificateExpiring")
    .fires("nine days are left", {_CERTIFICATE: "777600+0x20"}, 6, {**_PROCESS, "use": "api", "file": "/tls.crt"})
    .fires("nine days are left of a query's login", {_LOGIN_OF_A_QUERY: "777600+0x20"}, 6, _KEY)
    .quiet("a month is left", {_CERTIFICATE: "2592000+0x20"}, 20)
    .quiet("rotated within three minutes", {_CERTIFICATE: "777600+0x2 2592000+0x20"}, 10),
    _Of("DiscoveryResourcesExhausted")
    .fires("nearly all descriptors are open", {_FILES: "20+0x2 950+0x20", _MOST_FILES: "1000+0x22"}, 9, _PROCESS)
    .fires("idle connections made room", {_MADE_ROOM: "0+0x2 3+0x20"}, 9, {**_PROCESS, "listener": "api"})
    .fires("the endpoint is full", {_FULL: "0+0x2 3+0x20"}, 9)
    .quiet("half of the descriptors are open", {_FILES: "500+0x20", _MOST_FILES: "1000+0x20"}, 20)
    .quiet("a crowd that was gone within three minutes", {_FILES: "950+0x2 20+0x20", _MOST_FILES: "1000+0x22"}, 9)
    .quiet("a process of somebody else", {_FILES.replace('"kafka-d', '"d'): "950+0x20",
                                          _MOST_FILES.replace('"kafka-d', '"d'): "1000+0x20"}, 20)
    .quiet("it was long ago", {_MADE_ROOM: "0+0x3 3+0x60"}, 40)
    .quiet("clients without a broker are another matter", {_FULL.replace("limit", "no_upstream"): "0+1x20"}, 20),
    _Of("DiscoveryStateWriteFailing")
    .fires("a full disk", {_m("state_write_failing"): "0+0x2 1+0x20"}, 9)
    .quiet("room was made a minute ago", {_m("state_write_failing"): "1+0x20 0+0x9"}, 22)
    .quiet("it never failed", {_m("state_write_failing"): "0+0x20"}, 20),
    _Of("DiscoveryUnexpectedErrors")
    .fires("one traceback", {_m("unexpected_errors_total"): "0+0x3 1+0x20"}, 10)
    .quiet("none since the last hour", {_m("unexpected_errors_total"): "0+0x3 1+0x60"}, 60)
    .quiet("none", {_m("unexpected_errors_total"): "0+0x20"}, 20),
    _Of("SourceBatchStalled")
    .fires("a batch whose first tasks give up", {_BATCH: "0 60+0x30"}, 3, _QUERY)
    .quiet("batches of a minute and a half", {_BATCH: "0 30+0x1 120 210+0x1 300 390+0x1"}, 5)
    .quiet("no batch runs", {_BATCH: "0+0x30"}, 20),
    _Of("SourceTasksWaiting")
    .fires("a dead leader under a batch that is not cut", {_WAITING: "0 2+0x20"}, 5, _QUERY)
    .quiet("for one minute", {_WAITING: "0 2+0x1 0+0x20"}, 6)
    .quiet("nothing waits", {_WAITING: "0+0x20"}, 20),
    _Of("SourceCut")
    .fires("a cut", {_CUTS: "0+0x3 1+0x20", _REWINDS: "0+0x22"}, 6, _QUERY)
    .fires("a rewind after a restart", {_CUTS: "0+0x22", _REWINDS: "0+0x3 1+0x20"}, 6, _QUERY)
    .quiet("long ago", {_CUTS: "0+0x3 1+0x60", _REWINDS: "0+0x3 1+0x60"}, 40),
    _Of("SourceLedgerFailing")
    .fires("its brokers are gone", {_LEDGER: "0 1+0x20"}, 4, _QUERY)
    .quiet("a moment of it", {_LEDGER: "0 1 0+0x20"}, 6),
    _Of("SourceRecordsLate")
    .fires("a partition came back", {_LATE: "0+0x3 90+0x20"}, 6, _QUERY)
    .quiet("long ago", {_LATE: "0+0x3 90+0x60"}, 40),
    _Of("SourceRowsDropped")
    .fires("rows behind the watermark", {_DROPPED: "0+0x3 2+0x20"}, 6, _LATE_QUERY)
    .quiet("before the first scrape, which no increase shows", {_DROPPED: "_x3 2+0x20"}, 6)
    .quiet("long ago", {_DROPPED: "0+0x3 2+0x60"}, 40)
    .quiet("none", {_DROPPED: "0+0x20"}, 10),
    _Of("SourceFallback")
    .fires("the service is silent", {_OWN: "0 1+0x20"}, 8, _QUERY)
    .quiet("a restart of the service", {_OWN: "0+0x2 1+0x3 0+0x20"}, 12),
    _Of("SourceEngineFallback")
    .fires("a worker without numba", {_PLAIN: "0 1+0x20"}, 4, _QUERY)
    .quiet("the fast engine reads", {_PLAIN: "0+0x20"}, 20),
)  # fmt: skip
CASES = tuple(case for of in _ALL for case in of.cases)


def tests(rules_file: str) -> dict[str, Any]:
    """Return the content of a file for `promtool test rules`.

    Runs: anywhere (pure).
    """
    return {"rule_files": [rules_file], "evaluation_interval": "15s", "tests": [_test(case) for case in CASES]}


def _test(case: Case) -> dict[str, Any]:
    known = {"alertname": case.alert, "alertstate": "firing", "severity": _SEVERITY[case.alert]}
    expected = [{"labels": _labels({**known, **found}), "value": 1} for found in case.fires]
    return {
        "name": f"{case.alert}: {'must fire' if case.fires else 'must not fire'}: {case.story}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{case.alert}",alertstate="firing"}}',
                "eval_time": f"{case.minutes}m",
                "exp_samples": expected,
            }
        ],
    }


def _labels(labels: Mapping[str, str]) -> str:
    return "ALERTS{" + ",".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}"
