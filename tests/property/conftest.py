"""Simulated outages log nothing."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of simulated outages need no log."""
    log = logging.getLogger("discovery")
    before = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(before)
