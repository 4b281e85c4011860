"""Work on a thread of its own: what it raised is raised, and holds nothing that the work held."""

import asyncio
import gc
import weakref

import pytest

from discovery.config.threads import in_thread


class Client:
    """Stands for what a failed call held: to go on, it would need threads and connections."""


def test_given_work_that_fails_when_its_error_is_kept_then_nothing_that_it_held_is() -> None:
    held: list[weakref.ref[Client]] = []

    def asked() -> None:
        client = Client()
        held.append(weakref.ref(client))
        raise TimeoutError("no answer")

    def work() -> None:
        client = Client()
        held.append(weakref.ref(client))
        try:
            asked()
        except TimeoutError as error:
            raise ValueError("nobody answers") from error

    gc.disable()
    try:
        with pytest.raises(ValueError, match="nobody answers") as raised:
            asyncio.run(in_thread(work))
        assert [one() for one in held] == [None, None]
    finally:
        gc.enable()
    assert isinstance(raised.value.__cause__, TimeoutError)
    assert raised.traceback[-1].name == "work", "where it happened is still known"
