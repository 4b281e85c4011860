"""Runs a command until it ends well, fails for good, or is out of restarts."""

import random
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from discovery.spark.supervise.budget import Budget, GiveUp, Run, decide
from discovery.spark.supervise.classify import Failure, Finding, classify
from discovery.spark.supervise.hook_server import Advice, HookServer
from discovery.spark.supervise.inject import Injector, Start
from discovery.spark.supervise.process import Job
from discovery.spark.supervise.report import Attempt, Outcome, Report, worth_a_restart


@dataclass(slots=True)
class Supervisor:
    """One supervised command. `stop` may be called from a signal handler."""

    injector: Injector
    budget: Budget
    say: Callable[[str], None]
    vet_seconds: float = 60.0
    _over: threading.Event = field(default_factory=threading.Event)
    _signal: int = 0
    _job: Job | None = None
    _attempts: list[Attempt] = field(default_factory=list)
    _said: set[str] = field(default_factory=set)
    advised: list[Advice] = field(default_factory=list)

    def run(self) -> Report:
        """Do it; everything this began has ended when it returns.

        Raises:
            ConfigError: the command cannot be run.

        Runs: the main thread; blocks as long as the job lives.
        """
        server = HookServer(
            vetter=self.injector.vetter,
            path=self.injector.socket_path,
            fallback_version=self.injector.version,
            inject=self.injector.inject,
            wait_seconds=self.vet_seconds,
            on_advice=self.advised.append,
        )
        server.open()
        try:
            return self._runs()
        finally:
            server.close()
            self.injector.vetter.close()
            shutil.rmtree(self.injector.folder, ignore_errors=True)

    def stop(self, number: int) -> None:
        """End the job and the supervision; the signal is passed on."""
        self._signal = number
        self._over.set()
        self.injector.vetter.over.set()
        if self._job is not None:
            self._job.stop(number)

    def _runs(self) -> Report:
        failed: list[Run] = []
        while True:
            began, wall = time.monotonic(), time.time()
            start = self.injector.prepare(wait_seconds=self.vet_seconds)
            self._tell(start.say)
            finding, code = self._once(start)
            if code is None and self._over.is_set():
                code = -self._signal  # it was not even started
            self._attempts.append(
                Attempt(
                    began_wall=wall,
                    seconds=time.monotonic() - began,
                    servers=start.servers,
                    exit_code=code,
                    finding=None if self._over.is_set() else finding,
                    started=start.refusal is None,
                )
            )
            if self._over.is_set():
                return self._report(Outcome.STOPPED, "")
            if finding is None:
                return self._report(Outcome.FINISHED, "")
            failed.append(Run(began=began, ended=time.monotonic()))
            if not worth_a_restart(self._attempts):
                return self._report(Outcome.FATAL, f"a restart would not help ({finding.failure.value})")
            verdict = decide(self.budget, failed, fraction=random.random())  # noqa: S311 - jitter
            if isinstance(verdict, GiveUp):
                return self._report(Outcome.EXHAUSTED, verdict.reason)
            self.say(
                f"{finding.failure.value}: {finding.evidence}; {finding.remedy}; next start in"
                f" {verdict.delay_seconds:.1f} s"
            )
            if self._over.wait(verdict.delay_seconds):
                return self._report(Outcome.STOPPED, "")

    def _once(self, start: Start) -> tuple[Finding | None, int | None]:
        if start.refusal is not None:
            refused = start.refusal
            failure = Failure.WRONG_CLUSTER if refused.fatal else Failure.DEAD_LIST
            evidence = refused.fatal or f"not started, no living broker: {refused.verdicts}"
            remedy = "correct the list" if refused.fatal else "vetting again before the next start"
            return Finding(failure=failure, evidence=evidence, remedy=remedy), None
        self._job = Job(start.command, start.environment)
        if self._over.is_set():
            return None, None
        code = self._job.run()
        return (None if code == 0 else classify(self._job.tail.text(), exit_code=code)), code

    def _tell(self, lines: Sequence[str]) -> None:
        """Say each thing once: a restart that changes nothing needs no repetition."""
        for line in lines:
            if line not in self._said:
                self._said.add(line)
                self.say(line)

    def _report(self, outcome: Outcome, reason: str) -> Report:
        return Report(outcome=outcome, attempts=tuple(self._attempts), reason=reason)
