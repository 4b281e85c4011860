"""A view goes over the wire and arrives as it was; anything else is refused, not half taken."""

import json
from dataclasses import replace

import pytest

from discovery.core.errors import WireError
from discovery.core.model import BrokerAddress, LoopState, TopicName, Verdict
from discovery.feed.base import AddressReport, FeedView, Interest
from discovery.feed.wire import Position, covers, decode_position, decode_view, encode_view
from tests.support.fakes.feed import partition_view, tp, view_of

ALL = Interest(pattern="", both_ends=True)
T = Interest(topics=(TopicName("t"),))
VIEW = view_of(
    {
        tp(0): partition_view(3, 9, leader_epoch=4),
        tp(1): partition_view(None, None, leader=None, parked_since_wall=5.5),
        tp(0, "u"): partition_view(0, 2**62, gone=True),
    },
    addresses={BrokerAddress("b1", 9092): AddressReport(verdict=Verdict.SILENT, detail="no answer", configured=True)},
    sentence="fresh: all is well",
)


def _sent(view: FeedView, *, since: int = 0, only: tuple[int, ...] | None = None) -> dict[str, object]:
    wanted = list(view.partitions) if only is None else [tp(i) for i in only]
    position = Position(epoch="e", version=7)
    document = encode_view(view, position=position, since=since, partitions=wanted, scope=ALL)
    seen: dict[str, object] = json.loads(json.dumps(document))
    return seen


def _received(document: dict[str, object], held: FeedView | None = None, interest: Interest = ALL) -> FeedView:
    return decode_view(document, held=held, interest=interest, version=1, age_seconds=0.0)


def test_given_a_whole_view_when_sent_then_it_arrives_as_it_was() -> None:
    assert _received(_sent(VIEW)) == VIEW
    assert decode_position(_sent(VIEW)) == Position(epoch="e", version=7)


def test_given_a_slow_leader_when_sent_then_its_answer_time_arrives_and_an_older_services_document_has_none() -> None:
    slow = replace(VIEW.partitions[tp(0)], answer_seconds=20.0)
    document = _sent(replace(VIEW, partitions={**VIEW.partitions, tp(0): slow}))
    assert _received(document).partitions[tp(0)].answer_seconds == 20.0
    del document["answer_seconds"]
    assert _received(document).partitions[tp(0)].answer_seconds == 0.0


def test_given_changes_when_sent_then_they_are_laid_over_what_is_held() -> None:
    after = replace(VIEW, partitions={**VIEW.partitions, tp(0): partition_view(3, 12), tp(2): partition_view(0, 1)})
    received = _received(_sent(after, since=6, only=(0, 2)), held=VIEW)
    assert received.partitions == after.partitions
    assert list(received.partitions) == sorted(received.partitions)


def test_given_an_interest_when_received_then_other_topics_are_left_out_and_missing_ones_named_once_confirmed() -> None:
    assert set(_received(_sent(VIEW), interest=T).partitions) == {tp(0), tp(1)}
    wanted = Interest(topics=(TopicName("t"), TopicName("none"), TopicName("u")))
    assert _received(_sent(VIEW), interest=wanted).missing_topics == ("none", "u")
    doubtful = replace(VIEW, state=LoopState.FAILSAFE)
    assert _received(_sent(doubtful), interest=wanted).missing_topics == ()


@pytest.mark.parametrize(
    "damage",
    [
        {"state": "merry"},
        {"generation": "x"},
        {"bootstrap": ["nonsense"]},
        {"bootstrap": None},
        {"addresses": {"b:1": {}}},
        {"topics": []},
        {"topics": {"t": {"topic_id": None, "gone": False, "partitions": [[0]]}}},
        {"topics": {"t": {"topic_id": None, "gone": False, "partitions": [[0, 1, None, -5, 1, 1, None, None]]}}},
        {"leaders": {"x": "b:1"}},
        {"answer_seconds": {"1": -1}},
        {"answer_seconds": {"1": "long"}},
        {"answer_seconds": 3},
        {"since": 3},
    ],
)
def test_given_a_damaged_document_when_received_then_it_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(WireError):
        _received({**_sent(VIEW), **damage})


def test_given_no_document_of_ours_when_read_then_it_is_refused() -> None:
    for read in (decode_position, lambda d: covers(d, T), _received):
        with pytest.raises(WireError):
            read({"hello": "world"})


@pytest.mark.parametrize(
    ("scope", "interest", "covered"),
    [
        ({"topics": [], "pattern": ""}, T, True),
        ({"topics": ["t", "u"], "pattern": None}, T, True),
        ({"topics": ["u"], "pattern": None}, T, False),
        ({"topics": [], "pattern": "^t"}, T, True),
        ({"topics": [], "pattern": ""}, Interest(pattern="x"), True),
        ({"topics": [], "pattern": "x"}, Interest(pattern="x"), True),
        ({"topics": [], "pattern": "y"}, Interest(pattern="x"), False),
        ({"topics": [], "pattern": ""}, Interest(assigned=(tp(1),)), True),
    ],
)
def test_given_what_a_service_follows_when_compared_then_it_is_known_whether_it_suffices(
    scope: dict[str, object],
    interest: Interest,
    covered: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    assert covers({"scope": scope}, interest) is covered
