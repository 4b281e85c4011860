"""Jobs that do not change, protected: vetted brokers before every start, and restarts only where they help.

`run_query` is for notebooks and programs; `kafka-discovery run` does the same for a whole command.
"""

from spark_jobs.supervise.budget import Budget, Exponential, FailureRate, FixedDelay
from spark_jobs.supervise.classify import Failure, Finding, classify
from spark_jobs.supervise.query import Bootstrap, run_query
from spark_jobs.supervise.report import Report

__all__ = [
    "Bootstrap",
    "Budget",
    "Exponential",
    "Failure",
    "FailureRate",
    "Finding",
    "FixedDelay",
    "Report",
    "classify",
    "run_query",
]
