"""The names of cases and systems, in words and in their order. Imports nothing, so that any process may read it."""

CASE_TITLES = {
    "added": "partitions added, 6 to 12",
    "killed": "2 of 6 brokers killed, RF 3",
    "removed": "4 of 12 removed after reassignment",
    "leaders": "RF 1, two of six leaders dead",
    "frozen": "one of six brokers frozen",
    "holes_1": "start, 1 of 12 addresses black-holed",
    "holes_6": "start, 6 of 12 addresses black-holed",
    "holes_11": "start, 11 of 12 addresses black-holed",
    "dead_list": "restart, all listed brokers removed",
    "names": "restart, all listed names gone",
    "foreign": "restart, listed addresses are another cluster's",
    "recreated": "topic deleted and recreated",
    "all_down": "all brokers down for 2 minutes",
    "rolling": "rolling restart of all six",
    "cut": "cut off from half of the brokers",
}
SYSTEM_TITLES = {
    "native": "Spark's own source",
    "flink": "Flink KafkaSource",
    "flink_dynamic": "Flink DynamicKafkaSource",
    "ours": "kafka-discovery",
    "sidecar": "kafka-discovery, service",
    "endpoint": "Spark's own source behind the endpoint",
}
PEERS = ("native", "flink", "flink_dynamic")
OURS = "ours"
"""What peers are compared with: the default, nothing else deployed."""
