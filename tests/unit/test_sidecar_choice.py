"""Whose view is shown: the service's, or an own loop's."""

import pytest

from discovery.feed.sidecar import Heard, Mode, choose

INF = float("inf")


@pytest.mark.parametrize(
    ("mode", "silent", "steady", "own_usable", "expected"),
    [
        (Mode.NOBODY, 0.0, 0.0, False, Mode.SERVICE),
        (Mode.NOBODY, INF, 0.0, False, Mode.NOBODY),
        (Mode.NOBODY, INF, 0.0, True, Mode.OWN_LOOP),
        (Mode.NOBODY, 0.0, 0.0, True, Mode.SERVICE),
        (Mode.SERVICE, 2.9, 0.0, True, Mode.SERVICE),
        (Mode.SERVICE, 3.1, 0.0, True, Mode.OWN_LOOP),
        (Mode.SERVICE, 3.1, 0.0, False, Mode.SERVICE),
        (Mode.OWN_LOOP, 0.0, 1.9, True, Mode.OWN_LOOP),
        (Mode.OWN_LOOP, 0.0, 2.0, True, Mode.SERVICE),
        (Mode.OWN_LOOP, 0.0, 0.0, False, Mode.SERVICE),
        (Mode.OWN_LOOP, 9.0, 0.0, False, Mode.OWN_LOOP),
    ],
)
def test_given_what_was_heard_when_chosen_then_the_service_leads_and_a_silent_one_is_replaced_only_by_a_usable_view(
    mode: Mode,
    silent: float,
    steady: float,
    own_usable: bool,  # noqa: FBT001 - pytest passes it by name
    expected: Mode,
) -> None:
    heard = Heard(service_silent_seconds=silent, service_steady_seconds=steady, own_loop_usable=own_usable)
    assert choose(mode, heard, silence_seconds=3.0, return_seconds=2.0) is expected
