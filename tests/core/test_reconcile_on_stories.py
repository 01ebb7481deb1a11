"""The next steps of an execution on simulated clusters from seeds: it ends, within its caps, whatever happens.

The steps are carried out as the executor does: an abort needs three looks, a request without an answer is repeated.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest

from assignor_core.execution.reconcile import Abort, Done, ElectLeaders, Limits, Step, Submit, next_step
from assignor_core.live import NO_LEADER, LiveCluster, PartitionKey
from assignor_core.plan import Movement, Plan
from tests.simulated_cluster import (
    Fate,
    PlannedFault,
    SimulatedClient,
    SimulatedCluster,
    SimulatedRefusal,
    SimulatedSilence,
    plan_faults,
    random_cluster,
    random_faults,
)

TICK_MS = 1_000
FAULTS_MS = 12_000
STORY_MS = 3_600_000
ABORT_LOOKS = 3
LIMITS = Limits(movements_in_flight_max=4, movements_per_topic_max=2, movements_per_broker_max=2, deadline_ms=1_800_000)


@dataclass
class Story:
    """One plan on one cluster, and what was asked of it."""

    cluster: SimulatedCluster
    plan: Plan
    limits: Limits = LIMITS
    """Those that the steps keep to; the caps that are checked are always `LIMITS`."""
    client: SimulatedClient = field(init=False)
    asked: set[PartitionKey] = field(default_factory=set)
    abort_looks: int = 0

    def __post_init__(self) -> None:
        self.client = SimulatedClient(self.cluster)

    def run(self) -> str:
        """The kind of its end: done or aborted; `open` where it has not ended in an hour."""
        started_ms = self.cluster.now_ms
        while self.cluster.now_ms < started_ms + STORY_MS:
            with suppress(SimulatedSilence, SimulatedRefusal):
                live = self.client.describe()
                step = next_step(self.plan, live, self.limits, worked_ms=self.cluster.now_ms - started_ms)
                if end := self.take(step, live):
                    return end
            self.cluster.advance(TICK_MS)
        return "open"

    def take(self, step: Step, live: LiveCluster) -> str | None:
        self.abort_looks = self.abort_looks + 1 if isinstance(step, Abort) else 0
        match step:
            case Submit(reassignments):
                self.check_caps(live, reassignments.keys())
                self.asked |= reassignments.keys()
                self.client.reassign(dict(reassignments))
            case ElectLeaders(partitions):
                self.asked |= set(partitions)
                self.client.elect_preferred(partitions)
            case Abort(_, to_cancel) if self.abort_looks >= ABORT_LOOKS:
                self.asked |= set(to_cancel)
                self.client.reassign(dict.fromkeys(to_cancel))
                return "aborted"
            case Done():
                return "done"
            case _:
                pass
        return None

    def check_caps(self, live: LiveCluster, submitted: Collection[PartitionKey]) -> None:
        """Movements that copy, with those submitted now, are no more than allowed."""
        ours = {(movement.topic, movement.partition) for movement in self.plan.movements}
        assert set(submitted) <= ours
        assert len((live.reassigning() & ours).union(submitted)) <= LIMITS.movements_in_flight_max


def story(seed: int, *, faults_max: int) -> Story:
    """A plan of up to six movements to brokers drawn at random."""
    random = Random(seed)
    cluster = random_cluster(random)
    partitions = cluster.contents.partitions()
    movements = []
    for key, row in random.sample(partitions, min(6, len(partitions))):
        spare = sorted(cluster.contents.brokers.keys() - set(row.replicas))
        if spare:
            new = (random.choice(spare), *row.replicas[1:])
            movements.append(Movement(*key, row.replicas, new, float(row.end_bytes)))
    made = Story(cluster, Plan("c", tuple(movements)))
    plan_faults(cluster, random_faults(random, cluster, duration_ms=FAULTS_MS, faults_max=faults_max))
    if faults_max:
        made.client.faults.planned.extend(PlannedFault(random.choice(list(Fate)), delay_ms=30_000) for _ in range(3))
        made.client.faults.metadata_lag_ms = random.choice((0, 2_000))
    return made


@pytest.mark.parametrize("first", [1, 16])
def test_without_faults_every_plan_is_carried_out(first: int) -> None:
    for seed in range(first, first + 15):
        played = story(seed, faults_max=0)
        assert played.run() == "done", f"seed {seed}"
        played.cluster.advance(TICK_MS)
        for movement in played.plan.movements:
            row = played.cluster.live_partition((movement.topic, movement.partition))
            assert (row.replicas, row.leader) == (movement.new_replicas, movement.new_replicas[0]), f"seed {seed}"


@pytest.mark.parametrize("first", [1, 16])
def test_with_faults_it_ends_and_touches_nothing_but_its_plan(first: int) -> None:
    for seed in range(first, first + 15):
        played = story(seed, faults_max=4)
        assert played.run() in ("done", "aborted"), f"seed {seed}"
        assert played.asked <= {(movement.topic, movement.partition) for movement in played.plan.movements}, (
            f"seed {seed}"
        )
        assert all(row.lost_bytes == 0 for _, row in played.cluster.contents.partitions()), f"seed {seed}"


def test_steps_that_ignore_the_caps_are_caught() -> None:
    played = story(3, faults_max=0)
    played.limits = Limits(movements_in_flight_max=50)
    assert len(played.plan.movements) > LIMITS.movements_in_flight_max
    with pytest.raises(AssertionError):
        played.run()


def test_waves_keep_a_disk_from_filling_that_the_plan_has_room_for() -> None:
    """Broker 2 holds 90 of 100 MB; 30 leave it in wave 0, 20 come in wave 1."""
    megabyte = 1_000_000
    cluster = SimulatedCluster.of(
        {1: None, 2: None, 3: None}, log_dir_bytes=(100 * megabyte,), network_bytes_per_sec=megabyte
    )
    cluster.create_topic("leaves", {0: (2,)}, size_bytes=30 * megabyte)
    cluster.create_topic("stays", {0: (2,)}, size_bytes=60 * megabyte)
    cluster.create_topic("comes", {0: (1,)}, size_bytes=20 * megabyte)
    waves = (Movement("leaves", 0, (2,), (3,), 30e6, wave=0), Movement("comes", 0, (1,), (2,), 20e6, wave=1))
    assert Story(cluster, Plan("c", waves)).run() == "done"
    assert not any(log_dir.offline for broker in cluster.contents.brokers.values() for log_dir in broker.log_dirs)
    assert all(row.leader != NO_LEADER for _, row in cluster.contents.partitions())
