"""Whose view a follower shows: the service's, or an embedded loop's."""

from dataclasses import dataclass
from enum import Enum


class Mode(Enum):
    """Whose view is shown."""

    NOBODY = "nobody"
    SERVICE = "service"
    EMBEDDED_LOOP = "embedded loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When the service is left, and when it leads again."""

    silence_seconds: float = 3.0
    """How long it may say nothing."""
    age_seconds: float = 10.0
    """How old what it says may be: a service that has lost Kafka answers, and knows nothing new."""
    return_seconds: float = 2.0
    """How long it must have been answering freshly before it leads again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What is known of both at one moment, for the choice between them."""

    service_silent_seconds: float
    """Since its last usable answer; infinite where there was none."""
    service_age_seconds: float
    """Since a trusted answer last confirmed what it shows; infinite where none has."""
    service_steady_seconds: float = 0.0
    """Since it has been answering freshly without a gap; 0 while it does not."""
    embedded_loop_usable: bool = False
    """The embedded loop has a fresh view that can stand in for what is shown."""


def choose(mode: Mode, heard: Heard, limits: Limits) -> Mode:
    """Return whose view to show.

    A fresh service leads. An embedded loop leads where the service is silent or old, if it can stand in; where it does
    not, the last view stays, however old: its age says so.

    Runs: anywhere (pure).
    """
    answering = heard.service_silent_seconds <= limits.silence_seconds
    steady = heard.service_steady_seconds >= limits.return_seconds
    fresh = answering and heard.service_age_seconds <= limits.age_seconds
    if fresh and (mode is not Mode.EMBEDDED_LOOP or steady or not heard.embedded_loop_usable):
        return Mode.SERVICE
    if heard.embedded_loop_usable:
        return Mode.EMBEDDED_LOOP
    return Mode.SERVICE if answering and mode is Mode.NOBODY else mode


def embedded_loop_is_due(heard: Heard, *, running_seconds: float, limits: Limits) -> bool:
    """Tell whether to begin an embedded loop.

    Args:
        heard: Of the service.
        running_seconds: Since the follower began: a service gets that long to be heard the first time.
        limits: When to leave it.

    Runs: anywhere (pure).
    """
    silent = heard.service_silent_seconds > limits.silence_seconds
    old = heard.service_age_seconds > limits.age_seconds
    return running_seconds > limits.silence_seconds and (silent or old)
