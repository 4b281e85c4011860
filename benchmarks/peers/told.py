"""What a user was told, made short. Pure."""

import re

BREAK = " // "
"""Between the lines of an exception that is told in one."""
NOTHING = "nothing"
_RAISED = re.compile(r"[\w.]+(?:Error|Exception)\b: ")
_SHOWN = 300


def spark_cause(text: str) -> str:
    """Return the line that says what happened: Spark's own, or the last of a Python traceback inside."""
    lines = text.split(BREAK)
    raised = [one for one in lines if _RAISED.match(one)]
    own = lines[0].partition("terminated with exception: ")[2] or lines[0]
    return short(raised[-1] if raised and any("Traceback" in one for one in lines) else own)


def java_cause(trace: str) -> str:
    """Return the innermost cause of a Java stack trace."""
    causes = [line for line in trace.splitlines() if line and not line.startswith("\t")]
    return short(causes[-1].removeprefix("Caused by: ") if causes else "")


def short(text: str) -> str:
    """Return one line that fits a table; `nothing` for an empty one."""
    words = " ".join(text.split())
    return (words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…") or NOTHING
