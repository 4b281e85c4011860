"""What was reported to a user, made short. Pure."""

import re

BREAK = " // "
"""Between the lines of an exception that is shortened to one."""
NOTHING = "nothing"
_RAISED = re.compile(r"[\w.]+(?:Error|Exception)\b: ")
_SHOWN = 300
_CAUSED = "Caused by: "


def spark_cause(text: str) -> str:
    """Return the line that says what happened: the last of a Python traceback, the innermost cause, or Spark's own."""
    lines = text.split(BREAK)
    # The bench's own function calls Java from Python: that it did is not what happened.
    raised = [one for one in lines if _RAISED.match(one) and not one.startswith("py4j.")]
    if raised and any("Traceback" in one for one in lines):
        return short(raised[-1])
    causes = [one.removeprefix(_CAUSED) for one in lines if one.startswith(_CAUSED)]
    return short(causes[-1] if causes else lines[0].partition("terminated with exception: ")[2] or lines[0])


def java_cause(trace: str) -> str:
    """Return the innermost cause of a Java stack trace."""
    causes = [line for line in trace.splitlines() if line and not line.startswith("\t")]
    return short(causes[-1].removeprefix(_CAUSED) if causes else "")


def short(text: str) -> str:
    """Return one line that fits a table; `nothing` for an empty one."""
    words = " ".join(text.split())
    return (words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…") or NOTHING
