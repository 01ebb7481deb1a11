"""Stories of brokers that fail in mode `apply`: their replicas are re-created, and they may return at any time.

Six to nine brokers with replicas that take a while to copy. One or two brokers fail for longer than the grace time;
they return before, during or after the execution that replaces them, or not at all. Some partitions are offline
meanwhile: all their replicas are on brokers that failed. Others fill log dirs that receive. Control may be killed.

1. No log dir goes offline that others fill while replicas are copied into it.
4. Once a control has seen that a broker is back, it begins no movement of a plan from before that empties it.
8. If a broker stays away, every partition that has a leader ends with all replicas on brokers that are alive, or is on
   its way there.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from assignor_core.live import NO_LEADER, PartitionKey
from streaming.settings import Settings
from tests.simulated_cluster import SimulatedCluster
from tests.simulated_cluster.replication import used_bytes
from tests.simulation.control import Change, SimulatedControl
from tests.simulation.disks import lacking_bytes
from tests.simulation.monitor import Monitor
from tests.simulation.roles import begin
from tests.simulation.story import LOOK_MS, PlayedStory, played
from tests.simulation.world import WINDOW_MS, Actor, Blow, Interruption, World, settings_of
from tests.tables_in_memory import in_memory

GRACE_MS = 120_000
FAILS_MS = 70_000
STORY_MS = 1_800_000
RETURNED_MS = 420_000
"""By then all have failed and returned that do."""
SWEPT_MS = 1_200_000
AT_REST_MS = 60_000
"""A story ends once nothing has been under way for so long."""
CALLS_STRUCK = 600
SLOW = 10_000_000
"""Bytes/s: at this rate a control that is killed is there again before the rest is copied."""
FILLS_MS, FILLED_MS = 250_000, 120_000
FILLED_FROM_BYTES, LEFT_FREE = 500_000_000, 0.8
PARTITIONS = 24
RATE = 200_000


def run_relief_story(seed: int) -> PlayedStory:
    """The story of a seed from beginning to end."""
    return played(ReliefStory(seed))


class ReliefMonitor(Monitor):
    """The usual monitor, which also knows when brokers came back."""

    def __post_init__(self) -> None:
        self.failed_ms: dict[int, int] = {}
        self.back_ms: dict[int, int] = {}
        super().__post_init__()

    def changing(self, who: SimulatedControl, change: Change) -> None:
        super().changing(who, change)
        epoch_ms = self.world.now_ms - self.world.cluster.now_ms
        looked_ms = self._looked_ms.get(who.name, 0)
        approved_ms = min((row.approved_ms - epoch_ms for row in self.executions() if row.in_progress), default=0)
        for key, target in sorted(change.targets.items()):
            row = self.world.cluster.placement.partition(key)
            if target is None or row is None:
                continue
            for broker in sorted(set(row.replicas) - set(target)):
                failed_ms, back_ms = self.failed_ms.get(broker, approved_ms), self.back_ms.get(broker, looked_ms)
                if failed_ms < approved_ms < back_ms < looked_ms:
                    self.breaks("4 a broker that is back is not emptied", f"{who.name}: {change.text}, broker {broker}")


class ReliefStory:
    """Everything that follows from one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random = self._random = Random(f"relief {seed}")
        # Drawn apart, so that the rest of the story is what it would be without.
        self._fills = Random(f"fills {seed}")
        self._brokers = range(1, random.randint(6, 9) + 1)
        self._failing = random.sample(self._brokers, random.choice((1, 1, 2)))
        cluster = SimulatedCluster.of(dict.fromkeys(self._brokers))
        factor = random.choice((2, 3))
        placed = {number: tuple(random.sample(self._brokers, factor)) for number in range(PARTITIONS)}
        size_bytes = random.choice((100_000_000, 400_000_000))
        rates = {"bytes_in_per_sec": RATE, "retention_bytes": max(size_bytes, 10 * RATE)}
        cluster.create_topic("t", placed, size_bytes=size_bytes, **rates)
        if random.random() < 0.4:
            cluster.create_topic("alone", {0: (self._failing[0],)}, **rates)
        self.world = World(cluster, _settings(random, in_memory(f"relief-{seed}")))
        self.world.draw_release(seed)
        self.world.faults["a broker fails"] += len(self._failing)
        self._monitor = ReliefMonitor(self.world, undisturbed=False)
        self._others = Actor("others")

    def run(self) -> PlayedStory:
        """Until what failed is replaced or back."""
        world, random = self.world, self._random
        for _ in range(random.choice((0, 0, 1, 2))):
            blow = random.choice((Blow.KILL_BEFORE, Blow.KILL_AFTER))
            world.interruptions[random.randrange(1, CALLS_STRUCK)] = Interruption(blow, random.choice((100, 20_000)))
        begin(world, self._monitor, self._others)
        for broker in self._failing:
            fails_ms = random.randrange(1_000, FAILS_MS)
            world.plan(fails_ms, self._others, partial(self._fail, broker))
            seen_ms = -(-fails_ms // WINDOW_MS) * WINDOW_MS
            # Most return while the plan that replaces them is carried out.
            after_ms = random.choice((None, random.randrange(-60_000, 0), *(random.randrange(5_000, 90_000),) * 3))
            if after_ms is not None:
                world.plan(seen_ms + GRACE_MS + after_ms, self._others, partial(self._return, broker))
        if self._fills.random() < 0.5 and world.settings.control.throttle_bytes_per_sec <= SLOW:
            world.plan(self._fills.randrange(5_000, FILLS_MS), self._others, self._fill)
        world.pass_time(RETURNED_MS)
        self._go_on(STORY_MS, lambda: any(self._left()))
        self._judge_replicas()
        for broker in self._away():
            self._return(broker)  # only the broker itself can drop its throttle
        world.pass_time(AT_REST_MS)
        self._go_on(world.cluster.now_ms + SWEPT_MS, lambda: any(self._monitor.leftovers()))
        self._monitor.judge_end()
        return PlayedStory.of(self.seed, self._monitor, "relief")

    def _fail(self, broker: int) -> None:
        self.world.cluster.kill_broker(broker)
        self._monitor.failed_ms[broker] = self.world.cluster.now_ms
        self.world.note("others", f"broker {broker} fails")
        self._monitor.look(self._others)

    def _return(self, broker: int) -> None:
        self.world.cluster.restart_broker(broker)
        self._monitor.back_ms[broker] = self.world.cluster.now_ms
        self.world.faults["a broker that failed returns"] += 1
        self.world.note("others", f"broker {broker} is back")
        self._monitor.look(self._others)

    def _fill(self) -> None:
        """Others leave less free in a log dir than copies into it still need, and remove their files later."""
        contents = self.world.cluster.contents
        lacking = lacking_bytes(contents)
        (broker, index), left = max(lacking.items(), key=lambda row: (row[1], row[0]), default=((0, 0), 0))
        if left < FILLED_FROM_BYTES or not contents.brokers[broker].running:
            return
        log_dir = contents.brokers[broker].log_dirs[index]
        taken = log_dir.size_bytes - used_bytes(contents)[broker, index] - round(LEFT_FREE * left)
        log_dir.other_bytes += taken
        self.world.faults["a log dir is filled by others while it receives"] += 1
        self.world.note("others", f"fill dir {index} of broker {broker}")

        def remove() -> None:
            log_dir.other_bytes -= taken

        self.world.plan(FILLED_MS, self._others, remove)

    def _go_on(self, until_ms: int, lacks: Callable[[], bool]) -> None:
        """While something is under way or to be done, not beyond `until_ms`."""
        rested_ms, cluster = 0, self.world.cluster
        while rested_ms < AT_REST_MS and cluster.now_ms < until_ms:
            self.world.pass_time(LOOK_MS)
            busy = any(not row.ended or row.owes for row in self._monitor.executions()) or lacks()
            rested_ms = 0 if busy else rested_ms + LOOK_MS

    def _away(self) -> set[int]:
        return set(self._failing) - self._monitor.back_ms.keys()

    def _left(self) -> list[PartitionKey]:
        """Partitions with a leader and with replicas on brokers that are away, for good."""
        rows = self.world.cluster.placement.partitions()
        return [key for key, row in rows if row.leader != NO_LEADER and self._away() & set(row.live().target_replicas)]

    def _judge_replicas(self) -> None:
        if left := self._left():
            self._monitor.breaks("8 lost replicas are re-created", f"{left} have replicas on {sorted(self._away())}")


def _settings(random: Random, root: str) -> Settings:
    trigger = {
        "windows_over": 2, "windows_considered": 3, "resources": ["bytes_in"], "cooldown_ms": 0,
        "broker_failure_grace_ms": GRACE_MS,
    }  # fmt: skip
    control = {
        "mode": "apply",
        "execution_deadline_ms": 900_000,
        "movements_in_flight_max": random.choice((1, 1, 2, 50)),
        "throttle_bytes_per_sec": random.choice((10_000_000, 50_000_000)),
        "staged_moves": random.random() < 0.3,
        "bad_plans_max": 10,
    }
    return settings_of(root, trigger=trigger, planner={"windows": 3}, control=control)
