"""The checkpoint's JSON: shape, order, messages."""

import json

import pytest

from discovery.core.errors import ConfigError
from discovery.spark.source.planning.offsets import Remembered, parse_offsets, to_json
from tests.support.fakes.feed import tp


def test_given_many_partitions_when_written_then_topics_go_by_name_and_partitions_by_number() -> None:
    text = json.dumps(to_json({tp(10): 1, tp(9): 2, tp(0, "a"): 3}))
    assert text == '{"a": {"0": 3}, "t": {"9": 2, "10": 1}}'


def test_given_the_native_sources_json_when_read_then_it_means_the_same() -> None:
    assert parse_offsets('{"t":{"1":5,"0":-2}}', what="startingOffsets") == {tp(1): 5, tp(0): -2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"t":', "startingOffsets: not valid JSON at character 5: Expecting value"),
        ('{"t":{"0":1,"0":2}}', "startingOffsets: not valid JSON: '0' is named twice"),
        ("[1]", 'startingOffsets: expected an object like {"topic": {"0": 123}}, not [1]'),
        ('{"t":5}', 'startingOffsets: topic t: expected partitions like {"0": 123}, not 5'),
        ('{"t":{"x":5}}', "startingOffsets: topic t: 'x' is not a partition number (0 or more)"),
        (
            '{"t":{"3":-3}}',
            "startingOffsets: topic t, partition 3: -3 is not an offset (0 or more, -1 for latest, -2 for earliest)",
        ),
        (
            '{"t":{"3":true}}',
            "startingOffsets: topic t, partition 3: True is not an offset (0 or more, -1 for latest, -2 for earliest)",
        ),
        ('{"":{"3":1}}', "startingOffsets: '' is not a topic name"),
    ],
)
def test_given_a_wrong_text_when_read_then_one_line_says_where(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_offsets(text, what="startingOffsets")
    assert str(error.value) == expected


def test_given_offsets_that_were_read_when_a_copy_comes_back_then_it_is_not_read_again() -> None:
    remembered = Remembered(keep=2)
    first = remembered.offsets({"t": {"0": 4}}, what="the checkpoint")
    remembered.learn({"t": {"0": 6}}, known := {tp(0): 6})
    assert remembered.offsets({"t": {"0": 4}}, what="the checkpoint") is first
    assert remembered.offsets({"t": {"0": 6}}, what="the checkpoint") is known
    assert remembered.offsets({"t": {"0": 7}}, what="the checkpoint") == {tp(0): 7}
    assert remembered.offsets({"t": {"0": 4}}, what="the checkpoint") is not first  # two are kept


def test_given_offsets_of_another_shape_when_read_then_nothing_is_remembered() -> None:
    remembered = Remembered()
    for _ in range(2):
        with pytest.raises(ConfigError, match="the checkpoint: topic t"):
            remembered.offsets({"t": {"0": -3}}, what="the checkpoint")
