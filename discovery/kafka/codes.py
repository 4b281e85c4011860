"""librdkafka's error codes in groups that mean the same to us."""
# ruff: noqa: SLF001 - librdkafka's own codes begin with an underscore; they are public

from confluent_kafka import KafkaError

ALL_BROKERS_DOWN = KafkaError._ALL_BROKERS_DOWN
BAD_MESSAGE = KafkaError._BAD_MSG
LOGIN = KafkaError._AUTHENTICATION
NO_LEADER = KafkaError._NOENT
"""What `list_offsets` says, for all partitions asked, when none of them has a leader."""
SSL = KafkaError._SSL
TRANSPORT = KafkaError._TRANSPORT
WAIT_COORDINATOR = KafkaError._WAIT_COORD

AUTH = frozenset(
    {
        LOGIN,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
UNKNOWN_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_EXCEPTION,
    }
)
"""TOPIC_EXCEPTION is Kafka's INVALID_TOPIC: a name that cannot exist."""
TRANSIENT = frozenset(
    {
        TRANSPORT,
        ALL_BROKERS_DOWN,
        BAD_MESSAGE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._RESOLVE,
        WAIT_COORDINATOR,
        KafkaError._WAIT_CACHE,
        KafkaError._PURGE_QUEUE,
        KafkaError._DESTROY,
        # The asked broker left the cluster, or changed its address, while its answer was awaited.
        KafkaError._DESTROY_BROKER,
        KafkaError._UNKNOWN_BROKER,
        KafkaError._NODE_UPDATE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REBOOTSTRAP_REQUIRED,
    }
)
