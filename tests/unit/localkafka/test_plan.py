import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.cli.local_kafka import parse_ids
from discovery.config.java import parse_major
from discovery.core.errors import ConfigError
from discovery.core.prediction.reassignment import plan_reassignment, to_json
from discovery.localkafka.properties import (
    ClusterSettings,
    broker_properties,
    controller_properties,
    kafka_uuid,
    meta_properties,
    port_names,
    render,
)


def test_given_12_brokers_in_3_racks_when_racks_are_named_then_each_holds_4_neighbours() -> None:
    settings = ClusterSettings(brokers=12, racks=3)
    racks = [settings.rack_of(broker_id) for broker_id in settings.broker_ids]
    assert racks == ["rack-0"] * 4 + ["rack-1"] * 4 + ["rack-2"] * 4


@pytest.mark.parametrize(
    ("brokers", "racks", "option"), [(0, 1, "--brokers 0"), (49, 1, "--brokers"), (3, 4, "--racks 4")]
)
def test_given_a_count_out_of_range_when_settings_are_made_then_the_option_and_the_limit_are_named(
    brokers: int, racks: int, option: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{option}.*choose 1\.\."):
        ClusterSettings(brokers=brokers, racks=racks)


def test_given_one_broker_when_configured_then_internal_topics_have_one_replica() -> None:
    wanted = broker_properties(ClusterSettings(brokers=1), 1, port=20000, controller_port=20001, data="/d")
    assert wanted["offsets.topic.replication.factor"] == "1"
    assert wanted["transaction.state.log.min.isr"] == "1"


def test_given_extra_properties_when_a_broker_is_configured_then_they_win() -> None:
    settings = ClusterSettings(extra_properties={"broker.session.timeout.ms": "9000"})
    wanted = broker_properties(settings, 1, port=20000, controller_port=20001, data="/d")
    assert wanted["broker.session.timeout.ms"] == "9000"


def test_given_users_when_a_broker_is_configured_then_its_listener_asks_for_passwords() -> None:
    settings = ClusterSettings(sasl_users={"ann": "secret"})
    wanted = broker_properties(settings, 1, port=20000, controller_port=20001, data="/d", admin_password="x")  # noqa: S106 - no secret
    assert "CLIENT:SASL_PLAINTEXT" in wanted["listener.security.protocol.map"]
    assert 'user_ann="secret"' in wanted["listener.name.client.plain.sasl.jaas.config"]


def test_given_more_listeners_when_a_broker_is_configured_then_each_has_its_port_its_protocol_and_its_options() -> None:
    settings = ClusterSettings(listeners={"MUTUAL": {"security.protocol": "SSL", "ssl.client.auth": "required"}})
    assert port_names(settings, 2) == ("2", "2/MUTUAL")
    wanted = broker_properties(
        settings, 2, port=20000, controller_port=20001, data="/d", listener_ports={"MUTUAL": 20002}
    )
    assert wanted["listeners"] == "CLIENT://127.0.0.1:20000,MUTUAL://127.0.0.1:20002"
    assert wanted["listener.security.protocol.map"] == "CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT,MUTUAL:SSL"
    assert wanted["listener.name.mutual.ssl.client.auth"] == "required"
    assert "listener.name.mutual.security.protocol" not in wanted


@pytest.mark.parametrize("listeners", [{"CLIENT": {"security.protocol": "SSL"}}, {"x": {}}, {"X": {}}])
def test_given_a_listener_that_cannot_be_when_settings_are_made_then_the_rule_is_named(
    listeners: dict[str, dict[str, str]],
) -> None:
    with pytest.raises(ConfigError, match="use capitals and digits"):
        ClusterSettings(listeners=listeners)


def test_given_a_controller_when_configured_then_it_is_its_own_quorum() -> None:
    wanted = controller_properties(ClusterSettings(), port=20000, data="/d")
    assert wanted["controller.quorum.bootstrap.servers"] == "127.0.0.1:20000"


def test_given_a_backslash_when_rendered_then_java_reads_it_back() -> None:
    assert render({"a": "x\\y", "b": "1"}) == "a=x\\\\y\nb=1\n"


def test_given_a_broker_when_its_folder_is_formatted_then_cluster_and_node_are_named() -> None:
    lines = meta_properties(cluster_id="abc", broker_id=7).splitlines()
    assert lines[:3] == ["version=1", "cluster.id=abc", "node.id=7"]


def test_given_many_ids_when_made_then_each_is_22_characters_and_no_option() -> None:
    ids = {kafka_uuid() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(text) == 22 and not text.startswith("-") for text in ids)


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023', 21),
        ("", None),
    ],
)
def test_given_what_java_says_when_read_then_the_major_version_is_found(text: str, major: int | None) -> None:
    assert parse_major(text) == major


@pytest.mark.parametrize(
    ("texts", "ids"),
    [(["1", "2"], [1, 2]), (["1,2", "2"], [1, 2]), (["9-12"], [9, 10, 11, 12]), (["3,1-2"], [3, 1, 2])],
)
def test_given_ids_in_any_spelling_when_read_then_they_are_numbers(texts: list[str], ids: list[int]) -> None:
    assert parse_ids(texts) == ids


@pytest.mark.parametrize("text", ["a", "1-", "-1", "1.5", "²"])
def test_given_a_wrong_id_when_read_then_the_spelling_is_explained(text: str) -> None:
    with pytest.raises(ConfigError, match="write numbers as"):
        parse_ids([text])


def test_given_three_racks_when_one_is_emptied_then_no_rack_holds_two_replicas() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "c"}
    changes = plan_reassignment({("t", 0): [1, 2, 3]}, leaving={3}, living=racks, racks=racks)
    assert changes == {("t", 0): [1, 2, 4]}


def test_given_too_few_brokers_when_emptied_then_the_partition_and_the_remedy_are_named() -> None:
    with pytest.raises(ConfigError, match="t-0 has 2 replicas and only 1 broker would remain"):
        plan_reassignment({("t", 0): [1, 2]}, leaving={2}, living={1, 2}, racks={})


@given(
    st.integers(1, 3).flatmap(
        lambda rf: st.dictionaries(
            st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9)),
            st.permutations(range(1, 9)).map(lambda order: list(order[:rf])),
        )
    ),
    st.sets(st.integers(1, 8), max_size=5),
)
def test_given_any_placement_when_brokers_are_emptied_then_replicas_are_distinct_living_and_as_many(
    placement: dict[tuple[str, int], list[int]], leaving: set[int]
) -> None:
    racks = {broker: f"r{broker % 3}" for broker in range(1, 9)}
    changes = plan_reassignment(placement, leaving=leaving, living=racks, racks=racks)
    for key, replicas in {**placement, **changes}.items():
        assert not leaving & set(replicas)
        assert len(set(replicas)) == len(replicas) == len(placement[key])
    assert all(set(placement[key]) & leaving for key in changes)


def test_given_a_plan_when_written_then_kafkas_tool_can_read_it() -> None:
    written = json.loads(to_json({("t", 1): [2, 3]}))
    assert written == {"version": 1, "partitions": [{"topic": "t", "partition": 1, "replicas": [2, 3]}]}
