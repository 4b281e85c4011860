from typing import Any

from discovery.localkafka.launch import await_registered


class Client:
    """Like librdkafka's: once answered with no brokers it hears of none any more."""

    def __init__(self, listed: set[int]) -> None:
        self._listed = listed

    def registered(self) -> set[int]:
        return self._listed


class Fenced:
    """The one broker of a cluster, fenced as long as `answers` are empty."""

    def __init__(self, *answers: set[int]) -> None:
        self._answers = list(answers)

    def admin(self) -> Client:
        return Client(self._answers.pop(0))


def test_given_a_client_that_was_answered_with_no_brokers_when_waiting_then_a_new_one_is_asked() -> None:
    cluster: Any = Fenced(set(), {1})
    await_registered(cluster, [1], deadline_seconds=5.0)
