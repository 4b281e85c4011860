"""Timeouts are checked as a whole."""

import pytest

from discovery.core.errors import ConfigError
from discovery.core.policy import Policy


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"connect_timeout_seconds": 6.0}, ("connect_timeout_seconds", "request_timeout_seconds")),
        ({"request_timeout_seconds": 10.0}, ("request_timeout_seconds", "api_timeout_seconds")),
        ({"api_timeout_seconds": 60.0}, ("api_timeout_seconds", "staleness_seconds")),
        ({"leader_silence_seconds": 4.1}, ("leader_silence_seconds", "offsets_timeout_seconds")),
        ({"interval_seconds": 0.0}, ("interval_seconds",)),
        ({"staleness_seconds": float("inf")}, ("staleness_seconds",)),
    ],
)
def test_given_timeouts_that_contradict_when_made_then_both_fields_are_named(
    changes: dict[str, float], named: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        Policy(**changes)  # type: ignore[arg-type]
    assert all(name in str(caught.value) for name in named)
