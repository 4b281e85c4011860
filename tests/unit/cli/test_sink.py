"""What `sink status` shows."""

from discovery.cli.sink import _as_json, _lines
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


def test_given_a_sink_whose_offsets_have_expired_when_shown_then_no_takeover_is_advised() -> None:
    head, one = _lines("orders", SinkStatus(control=None, lanes=(lane(0, None),)))
    assert head == "orders: the control record has expired; the next start puts it back, or refuses and says what to do"
    assert one == "  lane 0: no marker"
