"""Jobs that do not change, protected: vetted brokers before every start, and restarts only where they help.

`run_query` is for notebooks and programs; `kafka-discovery run` does the same for a whole command.
"""

from discovery.spark.supervise.budget import Budget, Exponential, FailureRate, FixedDelay
from discovery.spark.supervise.classify import Failure, Finding, classify
from discovery.spark.supervise.query import Bootstrap, run_query
from discovery.spark.supervise.report import Report

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
