"""The cases: what is done to the brokers while a system reads. Every system meets the same."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.harness import make_producer
from benchmarks.peers.forward import forwarded
from benchmarks.peers.program import now
from benchmarks.peers.rows import FOREIGN
from benchmarks.peers.stage import ALL, PARTITIONS, Case, Stage, Struck, at_once, plain_hosts
from benchmarks.peers.titles import CASE_TITLES
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.faults import black_hole

APP = "APP"
_LISTED = (1, 2, 3)
_FOREIGN_ROWS = 60_000
_DOWN_SECONDS = 120.0
_SETTLE_SECONDS = 2.0
_FLUSH_SECONDS = 1.5


def add_partitions(stage: Stage) -> Struck:
    """Double the partitions."""
    stage.cluster.add_partitions(stage.topic, 2 * PARTITIONS)
    stage.load.order(f"partitions {2 * PARTITIONS}")
    return at_once(living=range(2 * PARTITIONS))


def kill(ids: Sequence[int], stage: Stage, *, living: Sequence[int] = ALL) -> Struck:
    """Kill -9 these brokers."""
    struck = at_once(living=living)
    stage.cluster.kill(ids)
    return struck


def remove(ids: Sequence[int], stage: Stage) -> Struck:
    """Move everything off these brokers, then kill them."""
    since = now()
    stage.cluster.reassign_off(ids)
    killed_at = now()
    stage.cluster.kill(ids)
    return Struck(since=since, healed_at=killed_at)


def freeze(ids: Sequence[int], stage: Stage) -> Struck:
    """Stop these brokers without closing a connection."""
    struck = at_once()
    stage.cluster.pause(ids)
    return struck


def idle(_: Stage) -> None:
    """Begin with nothing: the first start is the case."""


def started(stage: Stage) -> Struck:
    """Start the system; everything counts from there."""
    stage.system.start(stage.listed)
    return Struck(since=stage.system.since, healed_at=stage.system.since)


def with_holes(count: int, cluster: LocalKafka, stack: contextlib.ExitStack) -> str:
    """List so many black holes first, then living brokers, twelve in all."""
    holes = [stack.enter_context(black_hole()) for _ in range(count)]
    return ",".join([*holes, *map(cluster.address, cluster.broker_ids[count:])])


def first_three(cluster: LocalKafka, _: contextlib.ExitStack) -> str:
    """List half of the brokers."""
    return ",".join(map(cluster.address, _LISTED))


def restart_on_removed(stage: Stage) -> Struck:
    """Stop the system, remove all brokers it lists, start it again."""
    _remove_listed(stage)
    return started(stage)


def _remove_listed(stage: Stage) -> None:
    stage.system.kill()
    stage.cluster.reassign_off(_LISTED)
    stage.cluster.kill(_LISTED)


def restart_on_foreign(stage: Stage) -> Struck:
    """As above, and another cluster with a topic of that name answers at the old addresses."""
    _remove_listed(stage)
    other = stage.stack.enter_context(LocalKafka(ClusterSettings(brokers=1)))
    other.create_topic(stage.topic, PARTITIONS)
    producer = make_producer(other.bootstrap_servers)
    for number in range(_FOREIGN_ROWS):
        producer.produce(stage.topic, FOREIGN.encode() + b"x" * 99, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush(30)
    stage.stack.enter_context(forwarded([stage.cluster.address(one) for one in _LISTED], other.bootstrap_servers))
    return started(stage)


def end_other_first(stage: Stage) -> None:
    """Give the addresses back before the brokers return."""
    stage.stack.close()
    stage.cluster.heal()


def names(cluster: LocalKafka, _: contextlib.ExitStack) -> str:
    """List every broker by name."""
    return ",".join(f"b{one}.kafka.test:{cluster.address(one).rpartition(':')[2]}" for one in cluster.broker_ids)


def named(stage: Stage) -> str:
    """Return the file that gives the names a meaning."""
    return plain_hosts() + "".join(f"127.0.0.1 b{one}.kafka.test\n" for one in stage.cluster.broker_ids)


def restart_without_names(stage: Stage) -> Struck:
    """Stop the system, let every listed name vanish, start it again."""
    stage.system.kill()
    (stage.folder / "hosts").write_text(plain_hosts())
    return started(stage)


def recreate(stage: Stage) -> Struck:
    """Delete the topic and recreate it under its name; what comes then is marked."""
    stage.load.order("pause")
    time.sleep(_FLUSH_SECONDS)
    since = now()
    stage.cluster.delete_topic(stage.topic)
    stage.cluster.create_topic(stage.topic, assignment=stage.placement)
    stage.load.order("mark b")
    stage.load.order("go")
    return Struck(since=since, healed_at=now())


def all_down(stage: Stage) -> Struck:
    """Kill every broker; bring them back two minutes later."""
    since = now()
    stage.cluster.kill(stage.cluster.broker_ids)
    time.sleep(_DOWN_SECONDS)
    stage.cluster.heal()
    return Struck(since=since, healed_at=now())


def roll(stage: Stage) -> Struck:
    """Restart every broker as a careful operator does, one after the other."""
    since = now()
    for one in stage.cluster.broker_ids:
        stage.cluster.terminate([one])
        stage.cluster.restart([one])
        stage.cluster.wait_registered([one])
        time.sleep(_SETTLE_SECONDS)
    return Struck(since=since, healed_at=now())


def cut_off(stage: Stage) -> Struck:
    """Drop every packet between the system and half of the brokers; the others do not notice."""
    struck = at_once(living=ALL[PARTITIONS // 2 :])
    for one in _LISTED:
        port = stage.cluster.address(one, listener=APP).rpartition(":")[2]
        _rule("OUTPUT", "--dport", port)
        _rule("OUTPUT", "--sport", port)
    return struck


def mend(_: Stage) -> None:
    """Let the packets through again."""
    subprocess.run(["iptables", "-F", "OUTPUT"], check=True, timeout=10)


def _rule(chain: str, which: str, port: str) -> None:
    subprocess.run(["iptables", "-A", chain, "-p", "tcp", which, port, "-j", "DROP"], check=True, timeout=10)


def app_listeners(cluster: LocalKafka, _: contextlib.ExitStack) -> str:
    """List every broker at the listener that can be cut off."""
    return cluster.bootstrap_servers_of(APP)


def _holes(count: int) -> Case:
    return _case(
        f"holes_{count}",
        started,
        begin=idle,
        brokers=12,
        listed=partial(with_holes, count),
        watch_seconds=60.0,
        is_start=True,
    )


_AGAIN = {"listed": first_three, "watch_seconds": 100.0, "is_start": True, "takes_seconds": 20.0}


def _restart(name: str, strike: Callable[[Stage], Struck], **more: Any) -> Case:
    return _case(name, strike, **{**_AGAIN, **more})


def _case(name: str, strike: Callable[[Stage], Struck], **more: Any) -> Case:
    return Case(name=name, title=CASE_TITLES[name], strike=strike, **more)


_DOOMED = (1, 2)
"""Neighbours in the ring: two partitions keep all their copies, so a system could go on with those at once."""
_THEY_DO_NOT_LEAD = (2, 3, 4, 5)
_ALL_CASES = (
    _case("added", add_partitions, watch_seconds=20.0),
    _case("killed", partial(kill, _DOOMED), watch_seconds=40.0),
    _case("removed", partial(remove, (9, 10, 11, 12)), brokers=12, takes_seconds=15.0),
    _case("leaders", partial(kill, _DOOMED, living=_THEY_DO_NOT_LEAD), copies=1, watch_seconds=75.0),
    _case("frozen", partial(freeze, (2,)), watch_seconds=45.0),
    _holes(1),
    _holes(6),
    _holes(11),
    _restart("dead_list", restart_on_removed),
    _restart("names", restart_without_names, listed=names, own_names=True),
    _restart("foreign", restart_on_foreign, heal=end_other_first, watch_seconds=45.0),
    _case("recreated", recreate, watch_seconds=40.0),
    _case("all_down", all_down, watch_seconds=60.0, takes_seconds=_DOWN_SECONDS + 15),
    _case("rolling", roll, watch_seconds=10.0, takes_seconds=60.0),
    _case("cut", cut_off, heal=mend, listener=APP, listed=app_listeners, watch_seconds=75.0),
)
CASES = {case.name: case for case in _ALL_CASES}
