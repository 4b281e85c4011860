"""The options of cuts."""

import pytest

from discovery.core.errors import ConfigError
from discovery.spark.source.options.cuts import CutOptions, parse_cut_options


def test_given_no_source_id_then_nothing_is_cut() -> None:
    assert parse_cut_options({}) is None


def test_given_a_source_id_then_cuts_have_defaults() -> None:
    assert parse_cut_options({"sourceId": "a"}) == CutOptions()


def test_given_every_option_then_each_is_read() -> None:
    given = {"sourceId": "a", "cutAfter": "500ms", "cutLedger": "Kafka", "cutLedgerTopic": "cuts"}
    parsed = parse_cut_options({**given, "coordinatorHost": "[::1]", "coordinatorPort": "7077"})
    assert parsed == CutOptions(after_seconds=0.5, in_kafka=True, topic="cuts", host="::1", port=7077)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cutAfter": "1s"}, "cutAfter: it has no effect without sourceId"),
        ({"sourceId": "a", "cutAfter": "0s"}, "cutAfter: '0s' is not a duration above zero"),
        ({"sourceId": "a", "cutLedger": "disk"}, "cutLedger: 'disk' is not one of file, kafka"),
        ({"sourceId": "a", "cutLedgerTopic": "c"}, "cutLedgerTopic: it has no effect with cutLedger=file"),
        ({"sourceId": "a", "cutLedger": "kafka", "cutLedgerTopic": "a b"}, "cutLedgerTopic: 'a b' is not a topic name"),
        ({"sourceId": "a", "coordinatorHost": "a/b"}, "coordinatorHost: 'a/b' is not a host"),
        ({"sourceId": "a", "coordinatorPort": "70777"}, "coordinatorPort: '70777' is not a port"),
        ({"sourceId": "a", "coordinatorPort": "x"}, "coordinatorPort: 'x' is not a port"),
    ],
)
def test_given_a_mistake_then_it_is_named_with_the_limit(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_cut_options(given)
