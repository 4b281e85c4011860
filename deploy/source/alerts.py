"""The alerts and recording rules, once. `<300s>` in an expression is a duration that short test rules scale.

The symptom comes first: what hurts readers of the service is critical, what will hurt them later is a warning.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Scale = Callable[[float], float]
"""Turns a duration in seconds into the one that a rule shall have."""
P = "kafka_discovery_"
JOB = 'job=~".*kafka-discovery.*"'
_DURATION = re.compile(r"<(\d+)s>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert; `condition` is PromQL with scalable durations."""

    name: str
    severity: Literal["critical", "warning"]
    for_seconds: float
    condition: str
    summary: str
    description: str
    runbook: str = ""
    """A runbook that several share; empty: the one of its own name."""

    @property
    def page(self) -> str:
        """Return its runbook's file name."""
        return f"{self.runbook or self.name}.md"


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that dashboards and humans ask for often."""

    name: str
    expression: str


def seconds_in(expression: str, scale: Scale, *, unit: str = "s") -> str:
    """Write the durations of an expression in seconds.

    Runs: anywhere (pure).
    """
    scaled = re.sub(r"\[<(\d+)s>\]", lambda m: f"[{scale(float(m[1])):g}{unit}]", expression)
    scaled = re.sub(r"offset <(\d+)s>", lambda m: f"offset {scale(float(m[1])):g}{unit}", scaled)
    return _DURATION.sub(lambda m: f"{scale(float(m[1])):g}", scaled)


def _grew(counter: str) -> str:
    """Return the condition that a counter grew within a quarter of an hour."""
    return f"increase({P}{counter}[<900s>]) > 0"


RECORDINGS = (
    Recording("kafka_cluster:kafka_discovery_snapshot_age_seconds:max",
              f"max by (kafka_cluster) (time() - {P}snapshot_timestamp_seconds)"),
    Recording("kafka_cluster:kafka_discovery_cycle_failures:ratio_rate5m",
              f'sum by (kafka_cluster) (rate({P}cycles_total{{outcome!="success"}}[5m]))'
              f" / sum by (kafka_cluster) (rate({P}cycles_total[5m]))"),
    Recording("kafka_cluster:kafka_discovery_cycle_duration_seconds:p99_rate5m",
              f"histogram_quantile(0.99, sum by (kafka_cluster, le) (rate({P}cycle_duration_seconds_bucket[5m])))"),
    Recording("kafka_cluster:kafka_discovery_brokers_healthy:ratio",
              f'min by (kafka_cluster) ({P}configured_brokers{{condition="healthy"}}'
              f" / ignoring (condition) sum without (condition) ({P}configured_brokers))"),
)  # fmt: skip

ALERTS = (
    Alert(
        name="DiscoverySnapshotStale",
        severity="critical",
        for_seconds=120,
        condition=f"time() - {P}snapshot_timestamp_seconds > <300s>\nor\n{P}snapshot_generation == 0",
        summary="The view of Kafka cluster {{ $labels.kafka_cluster }} is old, or there is none.",
        description="{{ $labels.instance }} has had no trusted answer from cluster {{ $labels.kafka_cluster }} for more"
        " than 5 minutes. Readers go on with the last view; changes of leaders and new partitions are not seen.",
    ),
    Alert(
        name="DiscoveryLoopStalled",
        severity="critical",
        for_seconds=60,
        condition=f"time() - {P}last_cycle_timestamp_seconds > clamp_min(5 * {P}loop_interval_seconds, 10)",
        summary="The discovery loop of cluster {{ $labels.kafka_cluster }} does not turn.",
        description="{{ $labels.instance }} answers, but its loop for cluster {{ $labels.kafka_cluster }} last turned"
        " {{ $value | humanizeDuration }} ago: nothing is discovered, whatever Kafka does.",
    ),
    Alert(
        name="DiscoveryFailsafeActive",
        severity="warning",
        for_seconds=300,
        condition=f'{P}state{{state="failsafe"}} == 1',
        summary="No broker of cluster {{ $labels.kafka_cluster }} answers; the last view is served.",
        description="{{ $labels.instance }} reaches no broker of cluster {{ $labels.kafka_cluster }}. The last view is"
        " kept and nothing is dropped from it.",
    ),
    Alert(
        name="DiscoveryBootstrapRedundancyLost",
        severity="warning",
        for_seconds=600,
        condition=f'{P}configured_brokers{{condition="healthy"}}\n  < ignoring (condition)\n'
        f"clamp_max(sum without (condition) ({P}configured_brokers), 2)",
        summary="Healthy configured addresses of cluster {{ $labels.kafka_cluster }}: {{ $value }}.",
        description="The bootstrap list of cluster {{ $labels.kafka_cluster }} at {{ $labels.instance }} is nearly"
        " dead. What starts with this list alone, and without a saved view, fails once the last address is gone.",
    ),
    Alert(
        name="DiscoveryBootstrapBrokerRejected",
        severity="warning",
        for_seconds=300,
        condition=f'{P}brokers{{condition="rejected"}} > 0',
        summary="Addresses listed for cluster {{ $labels.kafka_cluster }} that belong to something else: {{ $value }}.",
        description="{{ $labels.instance }} rejects addresses that answer as another cluster or as no Kafka at all."
        " A client without discovery may connect there and read the wrong records.",
    ),
    Alert(
        name="DiscoveryShrinkBlocked",
        severity="warning",
        for_seconds=0,
        condition=_grew("shrink_blocked_total"),
        summary="A loss of {{ $labels.reason }} in cluster {{ $labels.kafka_cluster }} was held back.",
        description="{{ $labels.instance }} received answers that {{ $labels.reason }} of cluster"
        " {{ $labels.kafka_cluster }} vanished, and kept them until it is confirmed. After a planned scale-in this ends"
        " by itself.",
    ),
    Alert(
        name="DiscoveryClusterMismatch",
        severity="critical",
        for_seconds=0,
        condition=f'sum without (kind) (increase({P}metadata_disagreement_total{{kind="cluster_id"}}[<900s>])) > 0\n'
        f'or\nmax without (state) ({P}state{{state="rejecting"}}) == 1',
        summary="Addresses of cluster {{ $labels.kafka_cluster }} answer with another cluster id.",
        description="{{ $labels.instance }} dropped answers of a foreign cluster. Addresses were reused, a name points"
        " elsewhere, or the list is wrong.",
    ),
    Alert(
        name="DiscoveryConsumerLagging",
        severity="warning",
        for_seconds=60,
        condition=f"{P}consumer_acked_generation\n  < on (kafka_cluster, job, instance) group_left ()\n"
        f"({P}snapshot_generation offset <240s>)\nor\nmin_over_time({P}consumer_fallback[<240s>]) == 1",
        summary="Consumer {{ $labels.consumer }} does not apply what is discovered.",
        description="{{ $labels.consumer }} has not applied a view of cluster {{ $labels.kafka_cluster }} that is"
        " minutes old, or reports that it cannot use this service's views and runs an embedded loop in their place.",
    ),
    Alert(
        name="DiscoveryAuthFailing",
        severity="critical",
        for_seconds=300,
        condition=f'sum without (broker, result) (increase({P}broker_attempts_total{{result=~"auth_failed|tls_failed"}}'
        f'[<300s>])) > 0\nor\nsum without (outcome) (increase({P}cycles_total{{outcome=~"auth|tls"}}[<300s>])) > 0',
        summary="Brokers of cluster {{ $labels.kafka_cluster }} refuse the login or the TLS handshake.",
        description="{{ $labels.instance }} is refused by brokers of cluster {{ $labels.kafka_cluster }}: password, ACL"
        " or certificate. Retrying does not help.",
    ),
    Alert(
        name="DiscoveryTargetMissing",
        severity="warning",
        for_seconds=600,
        condition=f'up{{{JOB}}} == 0\nor\n(\n  max by (namespace, pod) ({{__name__=~"kube_pod_(init_)?container_info",'
        'container="kafka-discovery"})\n  and on (namespace, pod)\n  max by (namespace, pod)'
        f' (kube_pod_status_phase{{phase="Running"}} == 1)\n  unless on (namespace, pod)\n  {P}build_info\n)',
        summary="A discovery service that should run gives no metrics.",
        description="{{ $labels.pod }}{{ $labels.instance }} runs, or should, and Prometheus has no series of it:"
        " every other alert is blind there.",
    ),
    Alert(
        name="DiscoveryConfigReloadFailed",
        severity="warning",
        for_seconds=300,
        condition=f"{P}config_reload_success == 0",
        summary="A changed configuration was refused at {{ $labels.instance }}.",
        description="The old configuration remains active at {{ $labels.instance }}. A restart would not come up with"
        " the new one.",
    ),
    Alert(
        name="DiscoveryCertificateExpiring",
        severity="warning",
        for_seconds=300,
        condition=f"{P}certificate_expiry_timestamp_seconds - time() < 14 * <86400s>",
        summary="A certificate of {{ $labels.instance }} expires in {{ $value | humanizeDuration }}.",
        description="{{ $labels.file }} ({{ $labels.use }}) at {{ $labels.instance }} expires within two weeks. Then"
        " readers refuse the service, or brokers a login, or brokers are no longer trusted.",
    ),
    Alert(
        name="DiscoveryResourcesExhausted",
        severity="warning",
        for_seconds=300,
        condition=f"process_open_fds{{{JOB}}} > 0.9 * process_max_fds\n"
        f"or\nsum without (reason) (increase({P}connections_closed_total[<900s>])) > 0\n"
        f'or\nsum without (reason) (increase({P}endpoint_turned_away_total{{reason="limit"}}[<900s>])) > 0',
        summary="{{ $labels.instance }} has hardly any file descriptors or places for connections left.",
        description="{{ $labels.instance }} has open files near its limit, or closes connections to make room for"
        " others. Readers connect again, or are refused; without descriptors brokers are not asked.",
    ),
    Alert(
        name="DiscoveryStateWriteFailing",
        severity="warning",
        for_seconds=300,
        condition=f"{P}state_write_failing == 1",
        summary="The view of cluster {{ $labels.kafka_cluster }} cannot be saved.",
        description="{{ $labels.instance }} cannot write to its state folder: disk full, read-only, or no permission."
        " A restart on a dead list would not come up.",
    ),
    Alert(
        name="DiscoveryUnexpectedErrors",
        severity="warning",
        for_seconds=300,
        condition=_grew("unexpected_errors_total"),
        summary="An error nobody expected happened while following cluster {{ $labels.kafka_cluster }}.",
        description="{{ $labels.instance }} logged a traceback under the sentence BUG in kafka-discovery and goes on"
        " serving the last view.",
    ),
)  # fmt: skip
_SOURCE = "{{ $labels.source }} of query {{ $labels.query }}"


def _of_source(*, description: str, **alert: Any) -> Alert:
    """Make an alert of a source: its description begins with the instance, and all share one runbook."""
    return Alert(description="{{ $labels.instance }}: " + description, runbook="DiscoverySources", **alert)


SOURCE_ALERTS = (
    _of_source(
        name="SourceBatchStalled",
        severity="warning",
        for_seconds=0,
        # Fires before the first task gives up, which begins to wait later than its batch began.
        condition=f"time() - {P}source_batch_started_timestamp_seconds > <100s>\n"
        f"and\n{P}source_batch_started_timestamp_seconds > 0",
        summary="One batch of source " + _SOURCE + " runs for more than 100 seconds.",
        description="nothing new is planned before it ends. Its tasks are slow, wait for a "
        "slot, or for a broker that their executors do not reach; without sourceId each gives up after "
        "stallTimeout (2 minutes), and the query with the fourth.",
    ),
    _of_source(
        name="SourceTasksWaiting",
        severity="warning",
        for_seconds=120,
        condition=f"{P}source_waiting_partitions > 0",
        summary="Partitions that tasks of source " + _SOURCE + " wait for: {{ $value }}.",
        description="their leaders died after the batch was planned, and the batch is not cut: it has no sourceId, "
        "is replayed, has onParked=hold, or a later piece of a split partition was read first.",
    ),
    _of_source(
        name="SourceCut",
        severity="warning",
        for_seconds=0,
        condition=_grew("source_cuts_total") + "\nor\n" + _grew("source_rewinds_total"),
        summary="Batches of source " + _SOURCE + " ended without some of their leaders.",
        description="ranges were cut where their leaders were gone, or set back to be read "
        "on. Nothing is lost; their rows come later.",
    ),
    _of_source(
        name="SourceLedgerFailing",
        severity="critical",
        for_seconds=60,
        condition=f"{P}source_ledger_failing == 1",
        summary="The ledger of cuts of source " + _SOURCE + " cannot be written.",
        description="until it is, a batch waits for its leaders as one without sourceId does, and partitions that were "
        "cut are not read on. The report says why.",
    ),
    _of_source(
        name="SourceRecordsLate",
        severity="warning",
        for_seconds=0,
        condition=_grew("source_late_records_total"),
        summary="Records of source " + _SOURCE + " come after their partition had been parked.",
        description="the others were read on meanwhile (onParked=continue). A query with a "
        "watermark may have dropped these records as too late; onParked=hold waits instead.",
    ),
    _of_source(
        name="SourceRowsDropped",
        severity="warning",
        for_seconds=0,
        condition=_grew("query_late_rows_dropped_total"),
        summary="Query {{ $labels.query }} leaves out rows that come later than its watermark.",
        description="rows behind the watermark are in no result and in no dead letter. Their partition had been"
        " parked, their producer is late, or the allowed lateness is too short.",
    ),
    _of_source(
        name="SourceFallback",
        severity="warning",
        for_seconds=300,
        condition=f"{P}source_fallback == 1",
        summary="Source " + _SOURCE + " does not use its discovery service.",
        description="an embedded loop asks the brokers in the place of the service of "
        "discoveryUrl, which is silent, too old or does not follow what is read.",
    ),
    _of_source(
        name="SourceEngineFallback",
        severity="warning",
        for_seconds=60,
        condition=f"{P}source_engine_fallback == 1",
        summary="Workers of source " + _SOURCE + " read with the plain engine.",
        description="the fast engine does not work on a worker, which reads several times "
        "slower; the report says why.",
    ),
)  # fmt: skip
