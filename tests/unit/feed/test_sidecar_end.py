"""The end of a reader while its embedded loop begins; and a token that must not travel in the open."""

import threading
from collections.abc import Callable

import pytest

from discovery.core.errors import ConfigError, KafkaUnreachableError, StateError
from discovery.core.model import TopicName, parse_bootstrap_servers
from discovery.feed.base import Interest
from discovery.feed.leading import Limits
from discovery.feed.service_client import ServiceClient
from discovery.feed.sidecar import SidecarFeed
from tests.support.fakes.feed import ScriptedFeed
from tests.support.faults import refused_port

PATIENCE = 20.0


class SlowToStart(ScriptedFeed):
    """An embedded loop whose start waits, as for the lock of a source that another process still holds."""

    def __init__(self) -> None:
        super().__init__()
        self.starting, self.may_go_on, self.ended = threading.Event(), threading.Event(), threading.Event()

    def start(self) -> None:
        self.starting.set()
        assert self.may_go_on.wait(PATIENCE)
        self.ended.clear()

    def stop(self) -> None:
        self.ended.set()


def feed_of(address: str, embedded_loop: Callable[..., ScriptedFeed]) -> SidecarFeed:
    return SidecarFeed(
        ServiceClient(f"http://{address}"),
        bootstrap=parse_bootstrap_servers("b:1"),
        interest=Interest(topics=(TopicName("t"),)),
        embedded_loop=embedded_loop,
        limits=Limits(silence_seconds=0.01),
    )


def test_given_an_embedded_loop_that_is_just_starting_when_the_reader_stops_then_the_loop_stops_too() -> None:
    loop = SlowToStart()
    with refused_port() as nobody:
        feed = feed_of(nobody, lambda _: loop)
        feed.start()
        assert loop.starting.wait(PATIENCE)
        ending = threading.Thread(target=feed.stop)
        ending.start()
        assert loop.ended.wait(PATIENCE), "the end reaches the loop before it runs"
        loop.may_go_on.set()
        ending.join(PATIENCE)
        assert not ending.is_alive()
        assert loop.ended.wait(PATIENCE), "a loop runs that nobody will ever stop"


def test_given_a_stopped_reader_when_asked_then_no_new_loop_begins_and_no_thread_is_left() -> None:
    made: list[ScriptedFeed] = []

    def embedded_loop(_: object) -> ScriptedFeed:
        made.append(ScriptedFeed())
        return made[-1]

    with refused_port() as nobody:
        feed = feed_of(nobody, embedded_loop)
        feed.start()
        feed.stop()
        count = len(made)
        with pytest.raises(KafkaUnreachableError, match="this reader was stopped"):
            feed.refresh(1.0)
    assert len(made) == count
    assert all(loop.stopped for loop in made)
    assert not [thread for thread in feed._threads if thread.is_alive()]


@pytest.mark.parametrize("error", [StateError("sourceId 'q' is in use"), OSError(28, "No space left on device")])
def test_given_an_embedded_loop_that_cannot_start_when_asked_then_it_is_as_if_nobody_had_answered(
    error: Exception,
) -> None:
    class Refused(ScriptedFeed):
        def start(self) -> None:
            raise error

    with refused_port() as nobody:
        feed = feed_of(nobody, lambda _: Refused())
        for ask in (lambda: feed.refresh(1.0), lambda: feed.commit_offsets("g", {}, timeout_seconds=1.0)):
            with pytest.raises(KafkaUnreachableError, match=f"no embedded loop can start .*: .*{error.args[-1]}"):
                ask()
            assert feed._embedded is None, "it would be started again and again, also once the service leads"
        feed.stop()


@pytest.mark.parametrize("url", ["http://10.0.0.5:9463", "http://service.example:9463", "http://[2001:db8::1]:9463"])
def test_given_a_token_when_it_would_travel_readable_then_one_line_refuses_it(url: str) -> None:
    with pytest.raises(ConfigError, match="would carry the token readable over the network; use https") as refused:
        ServiceClient(url, token="secret-of-sixteen")  # noqa: S106
    assert "secret-of" not in str(refused.value)
    assert "\n" not in str(refused.value)
    ServiceClient(url).close()


@pytest.mark.parametrize("url", ["https://10.0.0.5:9463", "http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"])
def test_given_a_token_when_it_travels_encrypted_or_not_at_all_then_it_is_taken(url: str) -> None:
    ServiceClient(url, token="secret-of-sixteen").close()  # noqa: S106
