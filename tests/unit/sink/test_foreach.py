"""One write of a batch per sink and run."""

import pytest

from discovery.spark.sink.foreach import _Written


def test_given_two_writes_under_one_sink_at_a_time_when_both_fail_then_each_error_is_its_own() -> None:
    written = _Written()
    with pytest.raises(TimeoutError, match="the outer one"), written.once("orders-eu", "run", 0):  # noqa: PT012
        with pytest.raises(TimeoutError, match="the inner one"), written.once("orders-eu", "run", 1):
            raise TimeoutError("the inner one")
        raise TimeoutError("the outer one")
