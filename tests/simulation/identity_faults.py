"""Faults of identity and of time: another cluster behind the address, topics hidden or made again, paused machines,
requests that are carried out late. They have a stream of random numbers of their own.
"""

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from random import Random

from assignor_core.errors import InputError
from assignor_core.plan import Plan
from tests.simulated_cluster import Fate, PlannedFault, RequestKind, SimulatedCluster
from tests.simulation.monitor import Monitor
from tests.simulation.world import Actor, Blow, Interruption, World

OTHER_CLUSTER = "another-cluster"
BEGIN_MS = 20_000
"""A control has the lease by then: the tables know their cluster."""
LATE_MAX_MS = 60_000
EARLY_CALLS = 150
"""Among so many first calls out most executions of a story are carried out."""
TAKEN_OVER_MS = 45_000
"""A stand-by takes the lease over within this time."""


class IdentityFaults:
    """What of these strikes one story."""

    def __init__(self, seed: int, world: World, monitor: Monitor, faults_ms: int) -> None:
        self._random = Random(f"identity {seed}")
        self._world = world
        self._monitor = monitor
        self._faults_ms = faults_ms
        self._others = Actor("others")
        self.leaves_late_work = False
        """Whether what control does after the end of an execution matters to the story."""

    def plan(self) -> None:
        """Plan those that don't depend on a plan of movements."""
        random, world = self._random, self._world
        for number, interruption in sorted(world.interruptions.items()):
            if interruption.blow.freezes and random.random() < 0.5:
                world.interruptions[number] = replace(interruption, clock_stops=True)
        if random.random() < 0.3:
            blow = random.choice((Blow.FREEZE_BEFORE, Blow.FREEZE_AFTER))
            world.interruptions[random.randrange(1, EARLY_CALLS)] = Interruption(blow, TAKEN_OVER_MS, clock_stops=True)
        if random.random() < 0.2:
            self.leaves_late_work = True
            self._for_a_while("another cluster answers at the address", self._lead_away, self._lead_back)
        if random.random() < 0.15:
            topic = random.choice(sorted(world.cluster.contents.topics))
            hidden = world.client_faults.hidden_topics
            self._monitor.touch_topic(topic)
            self.leaves_late_work = True
            self._for_a_while(
                f"{topic} may not be described", partial(hidden.add, topic), partial(hidden.discard, topic), 30_000
            )
        for _ in range(random.choice((0, 0, 0, 0, 0, 1, 3))):
            kind = random.choice((RequestKind.REASSIGN, RequestKind.CHANGE_THROTTLES))
            fault = PlannedFault(Fate.LATE, kind, random.randrange(1_000, LATE_MAX_MS))
            self.leaves_late_work = True
            self._later(f"a request is carried out late: {kind.value}", partial(self._plan_late, fault))

    def plan_for(self, plan: Plan) -> None:
        """Let a topic of a plan that has just been approved be made again, its partitions where they were."""
        if self._random.random() < 0.15:
            topic = self._random.choice(plan.movements).topic
            self._world.plan(
                self._random.randrange(1_000, 30_000), self._others,
                partial(self._strike, f"{topic} of the plan is made again", partial(self._make_again, topic)),
            )  # fmt: skip

    def end(self) -> None:
        """Faults are over."""
        self._world.other_cluster = None
        self._world.client_faults.hidden_topics.clear()

    def _for_a_while(
        self, what: str, begin: Callable[[], object], end: Callable[[], object], duration_max_ms: int = 60_000
    ) -> None:
        start_ms = self._random.randrange(BEGIN_MS, self._faults_ms // 2)
        self._world.plan(start_ms, self._others, partial(self._strike, what, begin))
        self._world.plan(start_ms + self._random.randrange(500, duration_max_ms), self._others, partial(self._end, end))

    def _end(self, action: Callable[[], object]) -> None:
        action()

    def _later(self, what: str, action: Callable[[], object]) -> None:
        delay_ms = self._random.randrange(1_000, self._faults_ms // 2)
        self._world.plan(delay_ms, self._others, partial(self._strike, what, action))

    def _strike(self, what: str, action: Callable[[], object]) -> None:
        action()
        self._world.note("others", what)
        self._world.faults[" ".join(word for word in what.split() if not any(sign.isdigit() for sign in word))] += 1
        self._monitor.look(self._others)

    def _plan_late(self, fault: PlannedFault) -> None:
        self._world.client_faults.planned.append(fault)

    def _lead_away(self) -> None:
        """A copy of the cluster: only its id is another one."""
        contents = self._world.cluster.contents
        other = SimulatedCluster(OTHER_CLUSTER, deepcopy(list(contents.brokers.values())), contents.release)
        other.contents.topics.update(deepcopy(contents.topics))
        other.contents.throttle_rates.update(deepcopy(contents.throttle_rates))
        self._world.other_cluster, self._world.led_away_ms = other, self._world.now_ms

    def _lead_back(self) -> None:
        self._world.other_cluster = None

    def _make_again(self, topic: str) -> None:
        cluster, before = self._world.cluster, self._world.cluster.contents.topics.get(topic)
        if before is None or any(row.reassigning for row in before.partitions.values()):
            return  # Kafka ends reassignments with the topic: nothing would be left to compare
        replicas = {number: row.replicas for number, row in before.partitions.items()}
        if len({len(row) for row in replicas.values()}) > 1:
            return  # Kafka makes topics with one replication factor
        self._monitor.touch_topic(topic)
        cluster.delete_topic(topic)
        with suppress(InputError):  # a broker has no log dir that is online: it is made with fewer partitions
            cluster.create_topic(topic, replicas)
