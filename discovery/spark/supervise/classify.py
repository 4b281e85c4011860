"""What a failed Spark job died of, by what it said. Pure: texts in, a finding out.

The texts are those of Spark's own source and sink, of kafka-clients 2.4 to 4.x and of this project; a table, so that
each has a row in the tests.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Failure(Enum):
    """Why a job ended."""

    DEAD_LIST = "dead list"
    """No listed broker could be reached."""
    LEADERLESS = "leaderless partition"
    """Brokers answered; a partition's leader did not, or there was none."""
    AUTHENTICATION = "authentication"
    WRONG_CLUSTER = "wrong cluster"
    DATA_LOSS = "data loss"
    KILLED = "killed"
    """The process, or the JVM below it, was ended from outside (out of memory, a lost node)."""
    TRANSACTION = "transaction"
    """A transaction of the exactly-once sink did not end in time, or was fenced; its replay finds out what is there."""
    SLOW_START = "slow start"
    """A Python process of Spark's did not call back within its 10 s: the machine was too busy for it."""
    CODE = "code"
    """Anything else: the job's own errors, wrong options, missing topics."""


RESTARTABLE = frozenset(
    {Failure.DEAD_LIST, Failure.LEADERLESS, Failure.KILLED, Failure.SLOW_START, Failure.TRANSACTION}
)
"""A restart, with fresh brokers, may help. The others would fail again, or skip records silently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One verdict and the line it rests on."""

    failure: Failure
    evidence: str
    remedy: str

    @property
    def restartable(self) -> bool:
        """Whether a restart may help."""
        return self.failure in RESTARTABLE


@dataclass(frozen=True, slots=True)
class Sign:
    """A text that tells one kind of failure."""

    failure: Failure
    pattern: str
    """Regular expression, found anywhere."""


SIGNS = (
    # First those that a restart would make worse: they also stand in texts that name timeouts as their consequence.
    Sign(Failure.AUTHENTICATION, r"SaslAuthenticationException"),
    Sign(Failure.AUTHENTICATION, r"SslAuthenticationException"),
    Sign(Failure.AUTHENTICATION, r"(?:Topic|Group|Cluster|TransactionalId)AuthorizationException"),
    Sign(Failure.AUTHENTICATION, r"SSLHandshakeException"),
    Sign(Failure.AUTHENTICATION, r"Not authorized to access (?:topics|group)"),
    Sign(Failure.AUTHENTICATION, r"Authentication failed(?: during authentication)? due to"),
    Sign(Failure.WRONG_CLUSTER, r"every listed address belongs to (?:another|a different) cluster"),
    Sign(Failure.WRONG_CLUSTER, r"foreign_cluster"),
    Sign(Failure.WRONG_CLUSTER, r"InconsistentClusterIdException"),
    Sign(Failure.DATA_LOSS, r"KAFKA_DATA_LOSS"),
    Sign(Failure.DATA_LOSS, r"Some data may have been lost because they are not available in Kafka"),
    Sign(Failure.DATA_LOSS, r"DataLossError"),
    Sign(Failure.DATA_LOSS, r"OffsetOutOfRangeException"),
    Sign(Failure.CODE, r"(?:SinkRefused|TransactionRefused)Error"),
    Sign(Failure.TRANSACTION, r"\bTransaction(?:Timeout)?Error"),
    Sign(Failure.CODE, r"UnknownTopicOrPartitionException"),
    Sign(Failure.CODE, r"This server does not host this topic-partition"),
    Sign(Failure.LEADERLESS, r"before the position for partition (?P<what>\S+) could be determined"),
    Sign(Failure.LEADERLESS, r"Cannot fetch record for offset \d+ in \d+ milliseconds"),
    Sign(Failure.LEADERLESS, r"stallTimeout: no record came for"),
    Sign(Failure.LEADERLESS, r"LeaderNotAvailableException"),
    Sign(Failure.LEADERLESS, r"There is no leader for this topic-partition"),
    Sign(Failure.LEADERLESS, r"NotLeaderOrFollowerException"),
    Sign(Failure.LEADERLESS, r"Expiring \d+ record\(s\) for \S+"),
    Sign(Failure.LEADERLESS, r"NotEnoughReplicas(?:AfterAppend)?Exception"),
    Sign(Failure.DEAD_LIST, r"Timed out waiting for a node assignment"),
    Sign(Failure.DEAD_LIST, r"No resolvable bootstrap urls given in bootstrap\.servers"),
    Sign(Failure.DEAD_LIST, r"Timeout expired while fetching topic metadata"),
    Sign(Failure.DEAD_LIST, r"Failed to update metadata after \d+ ms"),
    Sign(Failure.DEAD_LIST, r"Topic \S+ not present in metadata after \d+ ms"),
    Sign(Failure.DEAD_LIST, r"Bootstrap broker \S+ \(id: -\d+ rack: \S+\) disconnected"),
    Sign(Failure.DEAD_LIST, r"no living broker"),
    Sign(Failure.DEAD_LIST, r"KafkaUnreachableError"),
    Sign(Failure.KILLED, r"Query \[id = [^\]]*\] terminated with exception:\s+SQLSTATE: XXKST\s*$"),
    Sign(Failure.KILLED, r"java\.io\.EOFException"),
    Sign(Failure.KILLED, r"Java heap space|GC overhead limit exceeded"),
    Sign(Failure.SLOW_START, r"Python worker failed to connect back"),
    Sign(Failure.KILLED, r"(?:Lost executor|ExecutorLostFailure)"),
    Sign(Failure.KILLED, r"Py4JNetworkError|Answer from Java side is empty"),
)
_REMEDIES = {
    Failure.DEAD_LIST: "none of the brokers it knew could be reached; restarting with a freshly vetted list",
    Failure.LEADERLESS: "bring the partition's brokers back or elect another leader; format('kafka-discovery') would"
    " read the other partitions meanwhile",
    Failure.AUTHENTICATION: "correct the login, the ACLs or the certificates; trying again would only lock the account",
    Failure.WRONG_CLUSTER: "correct the list; the addresses lead to another cluster now",
    Failure.DATA_LOSS: "decide what to do about the lost records first (failOnDataLoss, or a new checkpoint)",
    Failure.KILLED: "the process was ended from outside; give it more memory if that repeats",
    Failure.TRANSACTION: "a transaction did not end: look whether brokers are slow or away, raise transactionTimeout"
    " if batches take that long; the replay writes what is missing",
    Failure.SLOW_START: "give the driver more processor; if it repeats on an idle machine, the interpreter that"
    " PYSPARK_PYTHON names lacks pyspark, pyarrow or a module of the job: its own error stands above",
    Failure.CODE: "the job itself failed; a restart would fail again",
}
_AT_BOOTSTRAP = r"(?:Connection to node -\d+ |Bootstrap broker )[^\n]*(?:could not be established|disconnected)"
"""Nodes with negative numbers are entries of the list: a client that names them never came beyond it, and its timeouts
at a partition are those of a dead list."""
_LAST_WORDS = ("Traceback (most recent call last)", 'Exception in thread "main"', "ERROR MicroBatchExecution")
_LINE_CHARACTERS = 300
_NAMED_EXCEPTION = re.compile(r"(?<![\w.$])(?:[\w$]+\.)+[\w$]*(?:Exception|Error)\b")
_SIGKILL_CODES = (-9, 137)
_JVM_KILLED_CODES = (52, 134, 139)
"""52: Spark's own code for out of memory; 134, 139: abort and segmentation fault."""


def classify(text: str, *, exit_code: int | None = None) -> Finding:
    """Say what a job died of.

    Args:
        text: The end of what it said, a few hundred lines; only the last exception in it is judged.
        exit_code: Of its process; negative: the signal that ended it. None: a query in this process.

    Returns:
        Exactly one finding; what nobody knows is called CODE, for restarting it would help by accident only.

    Runs: anywhere (pure).
    """
    last = _last_exception(text)
    for sign in SIGNS:
        found = re.search(sign.pattern, last, re.MULTILINE)
        if found is not None:
            at_bootstrap = re.search(_AT_BOOTSTRAP, text) if sign.failure is Failure.LEADERLESS else None
            if at_bootstrap is not None:
                return _finding(Failure.DEAD_LIST, _line_at(text, at_bootstrap.start()))
            return _finding(sign.failure, _line_at(last, found.start()))
    if exit_code in _SIGKILL_CODES + _JVM_KILLED_CODES:
        return _finding(Failure.KILLED, f"exit code {exit_code}")
    return _finding(Failure.CODE, next(_telling_lines(last), f"exit code {exit_code}"))


def _finding(failure: Failure, evidence: str) -> Finding:
    return Finding(failure=failure, evidence=evidence, remedy=_REMEDIES[failure])


def _last_exception(text: str) -> str:
    """Cut off what stands before the last exception: warnings of faults that were survived."""
    starts = [found for mark in _LAST_WORDS if (found := text.rfind(mark)) >= 0]
    if not starts:
        return text
    # Python shows chained exceptions as several tracebacks, the cause first: keep a little of what is before.
    start = max(starts)
    chained = text.rfind("The above exception was the direct cause", 0, start)
    before = text.rfind(_LAST_WORDS[0], 0, chained) if chained >= 0 else -1
    return text[before if before >= 0 else start :]


def _line_at(text: str, position: int) -> str:
    """Return the line, or of a very long one (Spark puts whole stack traces into one) what stands around the sign."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : end if end >= 0 else None]
    before = _beginning(line, position - start) if len(line) > _LINE_CHARACTERS else 0
    return line[before : before + _LINE_CHARACTERS].strip()


def _beginning(line: str, position: int) -> int:
    """Return where to begin to quote: at the last exception named before the sign, else at a word near it."""
    nearest = max(0, position - _LINE_CHARACTERS // 2)
    named = [found.start() for found in _NAMED_EXCEPTION.finditer(line, nearest, position + 1)]
    if named:
        return named[-1]
    space = line.find(" ", max(0, position - _LINE_CHARACTERS // 3), position)
    return 0 if nearest == 0 else max(space + 1, nearest)


def _telling_lines(text: str) -> Iterator[str]:
    """Yield lines from the end that name an error."""
    for line in reversed(text.splitlines()):
        if re.search(r"(?:Error|Exception)\b", line):
            yield line.strip()[:_LINE_CHARACTERS]
