"""What is to be read and how: the values that travel from the driver to the workers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from discovery.core.model import BrokerAddress, BrokerId, TopicId, TopicPartition
from discovery.core.questions import SLOW_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRange:
    """Records `[start_offset, end_offset)` of one partition, as far as they still exist and are visible."""

    topic_partition: TopicPartition
    start_offset: int
    """-2: the earliest one there is, which nobody could tell while this was planned."""
    end_offset: int
    topic_id: TopicId | None = None
    """None is unknown. A client that read the topic under another id is replaced."""
    leader: BrokerId | None = field(default=None, compare=False)
    """Who led it when it was planned; None is unknown. For grouping and messages: clients find leaders themselves."""
    leader_address: BrokerAddress | None = field(default=None, compare=False)
    """Where that one was; whether it lives is asked there when nothing comes."""
    answer_seconds: float = field(default=0.0, compare=False)
    """How long that one took for an answer; 0: it is quick, or not known."""

    @property
    def is_slow(self) -> bool:
        """Tell whether it is read by a client that waits longer than others do."""
        return self.answer_seconds >= SLOW_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How to read. Picklable; compared by value, because consumers are cached by it (the broker list is not in it)."""

    client_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """librdkafka option names; without `bootstrap.servers`. Passwords are among them, so `repr` leaves it out."""
    include_headers: bool = False
    fail_on_data_loss: bool = True
    batch_rows: int = 10_000
    engine: str = "auto"
    """`native`, `python`, or `auto`: native where it works here, else python with one warning."""
    rack_variable: str | None = None
    """The environment variable that tells each worker its rack; None: `client.rack` is the same everywhere."""
    stall_seconds: float | None = None
    """How long a task may stand still before it fails; None: as long as it takes."""
    max_memory_bytes: int = 64 << 20
    """Bounds what one worker process holds of records that were not handed on yet."""
