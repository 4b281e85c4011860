"""What a round may do to the scene, each drawn with a seed of its own."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Sequence

from tests.chaos.joint.scene import Scene
from tests.chaos.seeds import damage, flipped, must
from tests.chaos.service.soak import freeze
from tests.support.family import command_line, descendants

MOST_PARTITIONS = 12
_NEEDED = 3
"""Living brokers that a new partition of three copies needs."""


class Faults:
    """Plays faults on a scene; they pile up until somebody heals it."""

    def __init__(self, scene: Scene) -> None:
        """Take the scene."""
        self._scene = scene
        self.draw = random.Random(0)

    def play(self, fault: str, seed: int) -> None:
        """Do one thing, and let it work for a moment. Blocks a second to half a minute (a driver's start)."""
        self.draw = random.Random(seed)
        FAULTS[fault](self)
        time.sleep(self.draw.uniform(0.2, 2.0))

    # -- brokers --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL one broker or two; they stay dead."""
        self._scene.cluster.kill(self._some())

    def freeze(self) -> None:
        """Stop one broker or two; half of the time they go on after some seconds, else when all is healed."""
        frozen = self._some()
        self._scene.cluster.pause(frozen)
        time.sleep(self.draw.uniform(0.5, 5.0))
        if self.draw.random() < 0.5:
            self._scene.cluster.resume(frozen)

    def restart(self) -> None:
        """Shut a broker down in order and start it again, as a rolling restart does."""
        broker = self._some(most=1)
        self._scene.cluster.terminate(broker)
        self._scene.cluster.restart(broker)

    def reassign(self) -> None:
        """Move everything off a broker; all must live for that."""
        self._scene.heal()
        self._scene.cluster.reassign_off([self.draw.choice(self._scene.brokers)])

    def add_partitions(self) -> None:
        """Let a topic grow by one or two partitions, up to a dozen."""
        topic = self.draw.choice(self._scene.sources)
        self._have_living()
        total = min(self._scene.partitions[topic] + self.draw.randint(1, 2), MOST_PARTITIONS)
        if total > self._scene.partitions[topic]:
            self._scene.cluster.add_partitions(topic, total, await_leaders=False)
            self._scene.partitions[topic] = total
            self._scene.loads[topic].partitions = range(total)

    def recreate(self) -> None:
        """Delete a topic, read to its end or not, and recreate it under its name."""
        scene = self._scene
        self._have_living()
        scene.retire_load(scene.again)
        scene.cluster.delete_topic(scene.again)
        scene.account.excuse(scene.gone)
        scene.heal()  # its copies are placed on all brokers
        leaders = self.draw.sample(scene.brokers, self.draw.randint(1, 3))
        scene.make_topic(scene.again, leaders)
        scene.partitions[scene.again] = len(leaders)
        scene.begin_load(scene.again)

    # -- ours -----------------------------------------------------------------------------------------------------

    def kill_service(self) -> None:
        """SIGKILL the service, start it again after a while."""
        self._scene.service.end()
        time.sleep(self.draw.uniform(0.0, 4.0))
        self._scene.start_service()

    def damage_service(self) -> None:
        """The same, with its state files cut off or a byte in them flipped."""
        self._scene.service.end()
        damage(self._scene.folder / "service", self.draw)
        self._scene.start_service()

    def freeze_service(self) -> None:
        """Stop the service for some seconds."""
        freeze(self._scene.service, self.draw.uniform(0.5, 6.0))

    def jump(self) -> None:
        """Set the service's wall clock by half a minute or an hour, forth or back."""
        self._scene.clock.jump(self.draw.choice((-3600, -30, 0, 30, 3600)))

    # -- Spark's --------------------------------------------------------------------------------------------------

    def kill_executor(self) -> None:
        """SIGKILL one executor; Spark starts another."""
        self._kill(self._scene.executors())

    def kill_worker(self) -> None:
        """SIGKILL the Python processes of one executor."""
        executors = self._scene.executors()
        below = [pid for one in executors for pid in descendants(one) if "pyspark.daemon" in command_line(pid)]
        self._kill(below)

    def kill_driver(self) -> None:
        """SIGKILL the driver with its JVM; another one starts on the checkpoint."""
        self._scene.driver.kill()
        self._scene.restart_driver()

    def damage_driver(self) -> None:
        """The same, with the source's and the sink's saved views damaged.

        Spared are the ledger, which fails closed, and the topic ids: a topic recreated in the very moment in which the
        driver dies and they are lost cannot be distinguished from the old one.
        """
        self._scene.driver.kill()
        damage(self._scene.folder / "state", self.draw, spared="ids")
        self._scene.restart_driver()

    def damage_ledger(self) -> None:
        """The same, with a byte of the source's ledger flipped: it must refuse, and goes on once it has it back."""
        self._scene.driver.kill()
        (ledger,) = (self._scene.folder / "state").rglob("*.log")
        held = ledger.read_bytes()
        ledger.write_bytes(flipped(held, self.draw))
        self._scene.restart_driver()
        refusal = self._scene.refused()
        must(f"{ledger} is damaged in line" in refusal, f"a damaged ledger was taken: {refusal or 'the query runs'}")
        ledger.write_bytes(held)
        self._scene.start_query()

    def jump_hosts(self) -> None:
        """Set the wall clock of Spark's Python processes by half a minute or an hour, forth or back."""
        self._scene.hosts_clock.jump(self.draw.choice((-3600, -30, 0, 30, 3600)))

    # -- inside ---------------------------------------------------------------------------------------------------

    def _some(self, *, most: int = 2) -> list[int]:
        """Draw living brokers, and leave one."""
        living = self._scene.cluster.living_ids()
        if len(living) <= most:
            self._scene.heal()
            living = self._scene.cluster.living_ids()
        return self.draw.sample(living, self.draw.randint(1, most))

    def _have_living(self) -> None:
        if len(self._scene.cluster.living_ids()) < _NEEDED:
            self._scene.heal()

    def _kill(self, processes: Sequence[int]) -> None:
        if processes:
            with contextlib.suppress(ProcessLookupError):  # one that ended by itself is as dead
                os.kill(self.draw.choice(processes), signal.SIGKILL)


FAULTS: dict[str, Callable[[Faults], None]] = {
    "kill brokers": Faults.kill,
    "freeze brokers": Faults.freeze,
    "restart a broker": Faults.restart,
    "reassign": Faults.reassign,
    "add partitions": Faults.add_partitions,
    "recreate a topic": Faults.recreate,
    "kill the service": Faults.kill_service,
    "damage the service's state": Faults.damage_service,
    "freeze the service": Faults.freeze_service,
    "the service's clock jumps": Faults.jump,
    "kill an executor": Faults.kill_executor,
    "kill a worker": Faults.kill_worker,
    "kill the driver": Faults.kill_driver,
    "damage the driver's state": Faults.damage_driver,
    "damage the ledger": Faults.damage_ledger,
    "the hosts' clock jumps": Faults.jump_hosts,
}
MENU = tuple(FAULTS)
_WITH_DRIVER = {"kill the driver", "damage the driver's state", "damage the ledger"}
DRAWN = tuple(fault for fault in MENU for _ in range(1 if fault in _WITH_DRIVER else 3))
"""A driver takes as long to start as a round without one: it comes a third as often as the others."""
DRAWN_AT_FIRST = tuple(fault for fault in DRAWN if fault not in MENU[-2:])
"""By the first two hundred seeds, whose plans stay what they were."""
