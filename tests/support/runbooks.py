"""The blocks of the runbooks: what is run, with which variables, and what must be in the answers."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.support.manual.markdown import ROOT, RUNBOOKS, Block, blocks

SAYS: Mapping[str, Sequence[str]] = {
    "DiscoveryAuthFailing": (r'outcome="auth"\} 0', r"no TLS here", r"is sound.*reload_success 1"),
    "DiscoveryBootstrapBrokerRejected": (r'"cluster_id": "[\w-]+"', r"is sound.*reload_success 1"),
    "DiscoveryBootstrapRedundancyLost": (r'"verdict": "refused"', r"is sound.*reload_success 1"),
    "DiscoveryCertificateExpiring": (r"certificate_expiry_timestamp_seconds", r"is sound.*reload_success 1"),
    "DiscoveryClusterMismatch": (
        r'"state": "fresh".* alive.* refused',
        r"is sound.*reload_success 1",
        r"state reset: .*stop that process first",
    ),
    "DiscoveryConfigReloadFailed": (r"config_reload_success 1", r"config_reload_success 1"),
    "DiscoveryConsumerLagging": (r'"consumers": \[.*"generation": \d', r"^$"),
    "DiscoveryFailsafeActive": (r"fresh: \d of \d.*\[\+\] view main", r'"kind": "verdict_changed"', r"is sound"),
    "DiscoveryLoopStalled": (r"\[\+\] loop main.*last_cycle_timestamp", r"State:\s+S", r"^$"),
    "DiscoveryResourcesExhausted": (r'process_max_fds.*reason="evicted"\} 0', r"is sound"),
    "DiscoveryShrinkBlocked": (r"is refused .*shrink_blocked_total", r'"consumers": \[', r'"state_write_failures": 0'),
    "DiscoverySnapshotStale": (r"fresh: \d of \d.*\[\+\] view main", r" open\n.* closed", r"is sound"),
    "DiscoveryStateWriteFailing": (r"Filesystem.*writable\n.*write_failures_total\S* 0", r"service/sources/main\.json"),
    "DiscoveryTargetMissing": (r"\[\+\] loop main.*\n\d{2,}\n",),
    "DiscoveryUnexpectedErrors": (r'"bugs": 0.*unexpected_errors_total\S* 0', r'"debug".*"info"'),
}
"""By runbook, for each `sh` block: what it says of a healthy service with one dead address in its list."""
SHOWS: Mapping[str, str] = {
    "DiscoveryAuthFailing": r'result="auth_failed"\} [1-9]|outcome="auth"\} [1-9]',
    "DiscoveryBootstrapBrokerRejected": r"foreign_cluster",
    "DiscoveryBootstrapRedundancyLost": r'"verdict": "refused"',
    "DiscoveryCertificateExpiring": r'expiry_timestamp_seconds\{[^}]*use="kafka_trust"\} 1\.',
    "DiscoveryClusterMismatch": r"foreign_cluster",
    "DiscoveryConfigReloadFailed": r"config_reload_success 0",
    "DiscoveryConsumerLagging": r'"acked_generation": 0',
    "DiscoveryFailsafeActive": r"failsafe",
    "DiscoveryLoopStalled": r"\[-\] loop main",
    "DiscoveryResourcesExhausted": r'process_max_fds \d{2,3}\.0|reason="evicted"\} [1-9]',
    "DiscoveryShrinkBlocked": r'shrink_blocked_total\{[^}]*reason="brokers"\} [1-9]',
    "DiscoverySnapshotStale": r"failsafe",
    "DiscoveryStateWriteFailing": r"write_failures_total\S* [1-9]",
    "DiscoveryTargetMissing": r"no answer",
    "DiscoveryUnexpectedErrors": r"BUG in kafka-discovery",
}
"""By alert: what its runbook shows somewhere while it fires."""


def sh_blocks(runbook: str) -> list[Block]:
    """Return the blocks that run as they stand."""
    return [block for block in blocks(RUNBOOKS / f"{runbook}.md") if block.language == "sh"]


def console_commands() -> Iterator[tuple[str, str]]:
    """Yield page and command of every line of the `console` blocks."""
    for page in sorted((ROOT / RUNBOOKS).glob("*.md")):
        for block in blocks(page.relative_to(ROOT)):
            if block.language == "console":
                yield from ((page.stem, line) for line in block.text.splitlines() if line.strip())


def variables(**known: str) -> dict[str, str]:
    """Return an environment with the runbooks' variables and the commands of this environment first."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "CONSUMER": "nobody", "COLUMNS": "200", **known, "PATH": path}


def run(block: Block, environment: Mapping[str, str], *, around: Sequence[str] = ()) -> str:
    """Run a block as a reader would paste it, stopping at the first failure; return all it says.

    `around` is a command in front of the shell, for one in another namespace.
    """
    done = subprocess.run(
        [*around, "bash", "-euo", "pipefail", "-c", block.text],
        env=dict(environment), cwd="/" if around else None, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{block.place}: {block.text}\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
    return done.stdout + done.stderr


def found(pattern: str, said: str) -> bool:
    """Tell whether a pattern is in what was said; `.` goes over lines."""
    return re.search(pattern, said, flags=re.DOTALL) is not None
