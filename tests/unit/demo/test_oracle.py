"""What the generator makes and how it accounts for it."""

import json
import zlib
from pathlib import Path

import pytest

from discovery.core.errors import ConfigError
from discovery.demo.load.events import Event, EventFactory
from discovery.demo.load.oracle import Oracle, load_expected, load_produced, save_produced
from discovery.demo.settings import fast, full

NOW = 1_767_225_600.0


def factory(seed: int = 1, share: float = 0.1) -> EventFactory:
    return EventFactory(users=50, malformed_share=share, seed=seed, name="t")


def test_given_a_seed_when_made_twice_then_the_events_are_the_same() -> None:
    first, second = factory(), factory()
    assert [first.make(NOW) for _ in range(50)] == [second.make(NOW) for _ in range(50)]


def test_given_many_events_when_made_then_ids_differ_and_accounts_match_the_bytes() -> None:
    made = [factory_event for maker in [factory()] for factory_event in (maker.make(NOW) for _ in range(500))]
    good = [(event, json.loads(event.value)) for event in made if not event.malformed]
    assert len({fields["event_id"] for _, fields in good}) == len(good)
    for event, fields in good:
        assert event.user_id == fields["user_id"]
        assert event.checksum == zlib.crc32(fields["event_id"].encode())
        assert fields["ts"].startswith(str(event.day))


def test_given_a_share_of_malformed_when_made_then_about_so_many_are_broken() -> None:
    maker = factory(share=0.2)
    assert 60 < sum(maker.make(NOW).malformed for _ in range(500)) < 140
    assert not any(factory(share=0).make(NOW).malformed for _ in range(100))


def test_given_acknowledgements_when_accounted_then_only_they_count(tmp_path: Path) -> None:
    oracle = Oracle(wall=lambda: 5.0)
    good, bad = Event(value=b"", day="2026-01-01", user_id="u", checksum=7), Event(value=b"x")
    oracle.sent = 5
    oracle.delivered(good, 2, 10)
    oracle.delivered(good, 2, 11)
    oracle.delivered(bad, 3, 0)
    oracle.refused()
    produced = oracle.produced()
    assert (produced.sent, produced.acknowledged, produced.malformed, produced.failed) == (5, 2, 1, 1)
    assert produced.end_offsets == {"2": 12, "3": 1}
    assert produced.first_ack_wall == {"2": 5.0, "3": 5.0}
    oracle.save_expected(tmp_path / "expected")
    account = load_expected(tmp_path / "expected")
    assert account.users == {("2026-01-01", "u"): (2, 14)}
    assert account.malformed == {(3, 0)}


def test_given_a_progress_file_when_read_back_then_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "produced"
    assert load_produced(path) is None
    produced = Oracle(wall=lambda: 1.0).produced(finished=True)
    save_produced(path, produced)
    assert load_produced(path) == produced
    assert [file.name for file in tmp_path.iterdir()] == ["produced"]


@pytest.mark.parametrize("brokers", [0, 3, 5, 7, 10, 51, -6])
def test_given_brokers_that_do_not_fill_the_racks_when_settled_then_one_line_says_so(brokers: int) -> None:
    with pytest.raises(ConfigError, match=f"--brokers {brokers}: .* choose a multiple of 3 in 6..48"):
        full(brokers)


def test_given_twelve_brokers_when_settled_then_four_of_one_rack_die_and_two_of_another_freeze() -> None:
    assert full().doomed == (9, 10, 11, 12)
    assert full().freezing == (5, 6)
    assert fast().doomed == (5, 6)
    assert not set(fast().doomed) & set(fast().freezing)
