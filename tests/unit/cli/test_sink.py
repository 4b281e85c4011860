"""`sink status` as JSON."""

from discovery.cli.sink import _as_json
from discovery.spark.sink.marker import Marker
from discovery.spark.sink.operator import LaneStatus, SinkStatus


def lane(number: int, attempt: str | None) -> LaneStatus:
    marker = None
    if attempt is not None:
        marker = Marker(
            query_id="q", batch_id=4, lanes=3, rows=0, fingerprint="", attempt=attempt, wall_seconds=1, generation=2
        )
    return LaneStatus(lane=number, marker=marker, open_transaction=False)


def test_given_a_lane_in_which_a_generation_begins_when_shown_then_it_is_no_batch_without_rows() -> None:
    found = SinkStatus(control=None, lanes=(lane(0, ""), lane(1, "0-1"), lane(2, None)))
    assert [one["generation_begun"] for one in _as_json("orders", found)["lanes"]] == [True, False, None]
