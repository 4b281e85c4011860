"""Which cluster is ours, when neither an option nor a saved view says so."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from discovery.core.model import BrokerAddress, ClusterId

_AGREEING = 2


class PinSource(Enum):
    """Who said which cluster is ours; each member holds what is said of it, and what to do if the move is wanted."""

    OPTION = ("the option clusterId says", ", or the option if the move is wanted")
    SAVED = (
        "the saved state says",
        ", or drop the saved view if the move is wanted: `kafka-discovery state list`, then `state reset`",
    )
    ANSWERS = ("this run has agreed on", "")

    def __init__(self, says: str, if_wanted: str) -> None:
        """Give the parts of a message names."""
        self.says = says
        self.if_wanted = if_wanted


@dataclass(frozen=True, slots=True)
class Pin:
    """The cluster id agreed on."""

    cluster_id: ClusterId


@dataclass(frozen=True, slots=True)
class Conflict:
    """Listed addresses belong to several clusters and none has more of them."""

    sentence: str


def choose_pin(
    votes: Mapping[BrokerAddress, ClusterId], *, silent: int, waited_seconds: float, settle_seconds: float
) -> Pin | Conflict | None:
    """Decide from what the *configured* addresses say; learned ones only repeat whoever named them.

    Two that agree without a contradiction are enough. One alone must wait until all others have been judged or
    `settle_seconds` have passed: the first to answer may be the one address that went to another cluster.

    Args:
        votes: Cluster id by configured address that answered.
        silent: Configured addresses not judged yet.
        waited_seconds: Since the first vote.
        settle_seconds: How long a lonely vote waits.

    Returns:
        A pin, a conflict, or None while it is too early.

    Runs: anywhere (pure). Source: docs/decisions/0003-cluster-id-pin.md.
    """
    counted = Counter(votes.values()).most_common()
    if not counted:
        return None
    winner, most = counted[0]
    if len(counted) == 1 and most >= _AGREEING:
        return Pin(winner)
    if silent and waited_seconds < settle_seconds:
        return None
    if len(counted) > 1 and counted[1][1] == most:
        shown = "; ".join(f"{c}: {', '.join(str(a) for a, v in votes.items() if v == c)}" for c, _ in counted)
        return Conflict(f"the listed addresses belong to different clusters ({shown}); set clusterId to the right one")
    return Pin(winner)
