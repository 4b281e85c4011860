"""librdkafka as confluent-kafka brings it: public functions only, and a check that a message looks as we think."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any

import confluent_kafka.cimpl

OLDEST = (2, 12)
"""Before it, asking for watermarks ignored its timeout."""
NEWEST_MAJOR = 2


class NotUsableError(Exception):
    """Why the fast engine cannot run here; one line."""


class Message(ctypes.Structure):
    """`rd_kafka_message_t`."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


class ListedPartition(ctypes.Structure):
    """The head of `rd_kafka_topic_partition_t`."""

    _fields_ = (("topic", c_char_p), ("partition", c_int32), ("offset", c_int64))


class MetadataBroker(ctypes.Structure):
    """`rd_kafka_metadata_broker`."""

    _fields_ = (("id", c_int32), ("host", c_char_p), ("port", c_int))


class MetadataPartition(ctypes.Structure):
    """`rd_kafka_metadata_partition`."""

    _fields_ = (
        ("id", c_int32),
        ("err", c_int),
        ("leader", c_int32),
        ("replica_cnt", c_int),
        ("replicas", c_void_p),
        ("isr_cnt", c_int),
        ("isrs", c_void_p),
    )


class MetadataTopic(ctypes.Structure):
    """`rd_kafka_metadata_topic`."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition_cnt", c_int),
        ("partitions", POINTER(MetadataPartition)),
        ("err", c_int),
    )


class Metadata(ctypes.Structure):
    """The head of `rd_kafka_metadata`."""

    _fields_ = (
        ("broker_cnt", c_int),
        ("brokers", POINTER(MetadataBroker)),
        ("topic_cnt", c_int),
        ("topics", POINTER(MetadataTopic)),
    )


_P = c_void_p
_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "conf_new": (_P, []),
    "conf_destroy": (None, [_P]),
    "conf_set": (c_int, [_P, c_char_p, c_char_p, c_char_p, c_size_t]),
    "conf_set_events": (None, [_P, c_int]),
    "conf_enable_sasl_queue": (None, [_P, c_int]),
    "sasl_background_callbacks_enable": (_P, [_P]),
    "new": (_P, [c_int, _P, c_char_p, c_size_t]),
    "destroy": (None, [_P]),
    "set_log_queue": (c_int, [_P, _P]),
    "queue_get_main": (_P, [_P]),
    "queue_get_consumer": (_P, [_P]),
    "queue_destroy": (None, [_P]),
    "queue_poll": (_P, [_P, c_int]),
    "event_type": (c_int, [_P]),
    "event_error": (c_int, [_P]),
    "event_error_string": (c_char_p, [_P]),
    "event_log": (c_int, [_P, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_int)]),
    "event_message_array": (c_size_t, [_P, POINTER(_P), c_size_t]),
    "event_destroy": (None, [_P]),
    "consume_batch_queue": (ctypes.c_ssize_t, [_P, c_int, _P, c_size_t]),
    "consumer_close": (c_int, [_P]),
    "topic_partition_list_new": (_P, [c_int]),
    "topic_partition_list_add": (POINTER(ListedPartition), [_P, c_char_p, c_int32]),
    "topic_partition_list_destroy": (None, [_P]),
    "incremental_assign": (_P, [_P, _P]),
    "incremental_unassign": (_P, [_P, _P]),
    "error_string": (c_char_p, [_P]),
    "error_destroy": (None, [_P]),
    "err2str": (c_char_p, [c_int]),
    "topic_new": (_P, [_P, c_char_p, _P]),
    "topic_name": (c_char_p, [_P]),
    "topic_destroy": (None, [_P]),
    "metadata": (c_int, [_P, c_int, _P, POINTER(POINTER(Metadata)), c_int]),
    "metadata_destroy": (None, [_P]),
    "query_watermark_offsets": (c_int, [_P, c_char_p, c_int32, POINTER(c_int64), POINTER(c_int64), c_int]),
    "get_watermark_offsets": (c_int, [_P, c_char_p, c_int32, POINTER(c_int64), POINTER(c_int64)]),
    "message_destroy": (None, [_P]),
    "message_timestamp": (c_int64, [_P, _P]),
    "message_headers": (c_int, [_P, _P]),
    "header_cnt": (c_size_t, [_P]),
    "header_get_all": (c_int, [_P, c_size_t, _P, _P, _P]),
    "produce": (c_int, [_P, c_int32, c_int, c_char_p, c_size_t, c_char_p, c_size_t, _P]),
    "purge": (c_int, [_P, c_int]),
}
PRODUCER, CONSUMER = 0, 1
EVENT_DELIVERED, EVENT_LOG, EVENT_ERROR = 1, 4, 8
_PURGE_QUEUED = -152


class Library:
    """The functions by their names without `rd_kafka_`. Thread-safe as librdkafka is."""

    def __init__(self) -> None:
        """Find and describe every function.

        Raises:
            NotUsableError: the library is another version, or hides its functions.
        """
        # The extension module's own dependencies are searched too: exactly the library that it runs on.
        loaded = ctypes.CDLL(confluent_kafka.cimpl.__file__)
        try:
            found = int(loaded.rd_kafka_version())
            version = (found >> 24, found >> 16 & 0xFF)
            if version < OLDEST or version[0] > NEWEST_MAJOR:
                raise NotUsableError(f"librdkafka {version[0]}.{version[1]} is not one this engine was tried with")
            for name, (result, arguments) in _PROTOTYPES.items():
                function = getattr(loaded, f"rd_kafka_{name}")
                function.restype, function.argtypes = result, arguments
                setattr(self, "rd_new" if name == "new" else name, function)
        except AttributeError as error:
            raise NotUsableError(f"librdkafka does not show its functions: {error}") from error

    def __getattr__(self, name: str) -> Any:
        """Only for what the constructor did not find."""
        raise AttributeError(name)

    def address(self, name: str) -> int:
        """Return where a function lies, for compiled code that calls it."""
        return int(ctypes.cast(getattr(self, name), c_void_p).value or 0)

    def new(self, kind: int, options: dict[str, str], events: int) -> int:
        """Make a client.

        Raises:
            ValueError: an option is refused; says which and why.
        """
        conf, why = self.conf_new(), ctypes.create_string_buffer(512)
        for option, value in options.items():
            if self.conf_set(conf, option.encode(), value.encode(), why, len(why)):
                self.conf_destroy(conf)
                raise ValueError(why.value.decode(errors="replace"))
        self.conf_set_events(conf, events)
        # Tokens of OAUTHBEARER expire, and their renewal is an event; librdkafka's own thread serves it, since ours
        # would drop what it does not know.
        renews = options.get("sasl.mechanism", options.get("sasl.mechanisms")) == "OAUTHBEARER"
        if renews:
            self.conf_enable_sasl_queue(conf, 1)
        handle = self.rd_new(kind, conf, why, len(why))
        if not handle:
            self.conf_destroy(conf)
            raise ValueError(why.value.decode(errors="replace"))
        if renews and (error := self.sasl_background_callbacks_enable(handle)):
            text = self.error_string(error).decode(errors="replace")
            self.error_destroy(error)
            self.destroy(handle)
            raise ValueError(text)
        return int(handle)


@cache
def library() -> Library:
    """Load librdkafka and check, once per process, that its messages are laid out as we read them.

    Raises:
        NotUsableError: the fast engine cannot run here.

    Runs: worker, once; about 5 ms, no network.
    """
    found = Library()
    _check_message(found)
    return found


def _check_message(lib: Library) -> None:
    """Let a producer without brokers give a message back: every field has a value we know."""
    try:
        handle = lib.new(PRODUCER, {"log_level": "0", "enable.metrics.push": "false"}, EVENT_DELIVERED)
    except ValueError as error:
        raise NotUsableError(f"librdkafka refuses a client: {error}") from error
    topic, queue = lib.topic_new(handle, b"layout", None), lib.queue_get_main(handle)
    try:
        lib.produce(topic, 7, 2, b"payload", 7, b"key", 3, 0x5EED)
        lib.purge(handle, 1)
        event = lib.queue_poll(queue, 5_000)
        one = (c_void_p * 1)()
        if not event or lib.event_message_array(event, one, 1) != 1:
            raise NotUsableError("librdkafka gives no message back")
        fits = _is_as_sent(Message.from_address(one[0] or 0), topic)
        lib.event_destroy(event)
    finally:
        lib.queue_destroy(queue)
        lib.topic_destroy(topic)
        lib.destroy(handle)
    if not fits:
        raise NotUsableError("librdkafka lays its messages out in another way")


def _is_as_sent(message: Message, topic: int) -> bool:
    return (
        message.err == _PURGE_QUEUED
        and message.rkt == topic
        and message.partition == 7  # noqa: PLR2004
        and (message.len, message.key_len) == (7, 3)
        and ctypes.string_at(message.payload or 0, 7) == b"payload"
        and ctypes.string_at(message.key or 0, 3) == b"key"
        and message.offset == -1001  # noqa: PLR2004 - librdkafka's "no offset"
        and message.private == 0x5EED  # noqa: PLR2004
    )


__all__ = ["CONSUMER", "EVENT_ERROR", "EVENT_LOG", "Library", "Message", "NotUsableError", "byref", "library"]
