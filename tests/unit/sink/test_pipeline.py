"""What a pipeline by offsets refuses before it writes, without Kafka."""

from contextlib import nullcontext

import pytest

from discovery.core.errors import SinkRefusedError, TransactionError
from discovery.spark.sink.options import BY_OFFSET, parse_options
from discovery.spark.sink.pipeline import refuse_other_copy, refuse_other_topic

OPTIONS = parse_options(
    {"kafka.bootstrap.servers": "b1:9092", "sinkId": "copy", "topic": "events-eu", BY_OFFSET: "events one"}
)


@pytest.mark.parametrize(
    ("known", "now", "refusal"),
    [
        ("one", "one", None),
        ("", "one", None),
        ("", "", None),
        ("one", "two", (SinkRefusedError, r"the topic was recreated \(id one, now two\)")),
        ("one", "", (TransactionError, "brokers did not report the topic's id, .*; restart the query")),
    ],
)
def test_given_the_id_of_a_topic_when_its_offsets_are_read_then_only_the_same_topics_count(
    known: str, now: str, refusal: tuple[type[Exception], str] | None
) -> None:
    with pytest.raises(refusal[0], match=refusal[1]) if refusal else nullcontext():
        refuse_other_topic(known, now, "copy: events-0")


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (None, None, None),
        ("events", "events-eu", None),
        ("events", "events-us", "it copies to topic events-us, this one to events-eu; give each copy a sinkId"),
        ("visits", "events-eu", "it copies from topic visits, this one from events; give each copy a sinkId"),
    ],
)
def test_given_a_used_sink_when_another_copy_starts_then_it_is_refused(
    source: str | None, target: str | None, said: str | None
) -> None:
    with pytest.raises(SinkRefusedError, match=said) if said else nullcontext():
        refuse_other_copy(OPTIONS, source=source, target=target)
