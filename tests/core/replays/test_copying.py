"""How a replay carries a plan out, beside the executor's own steps on the simulated cluster."""

import random

import pytest

from assignor_core.execution.reconcile import Done, ElectLeaders, Limits, Submit, next_step
from assignor_core.live import LiveCluster
from assignor_core.plan import Movement, Plan
from assignor_core.replays.copying import Copying, Pace
from assignor_core.throttles import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from tests.simulated_cluster import SimulatedCluster

TICK_MS = 5_000
THROTTLE = 10_000_000
SECONDS_MAX = 50_000


def random_plan(seed: int) -> tuple[Plan, dict[int, tuple[int, int]]]:
    """A plan for topic t on six brokers, and by partition its size in bytes and its rate in bytes/s."""
    chance = random.Random(seed)
    movements, loads = [], {}
    for number in range(chance.randint(3, 25)):
        old = tuple(chance.sample(range(1, 7), 2))
        kept, receiving = old[0], [broker for broker in range(1, 7) if broker not in old]
        new = chance.choice([(old[1], old[0]), (kept, chance.choice(receiving)), tuple(chance.sample(receiving, 2))])
        loads[number] = (chance.randint(1, 60) * 10_000_000, chance.randint(0, 5) * 100_000)
        copied = loads[number][0] * len(set(new) - set(old))
        movements.append(Movement("t", number, old, new, float(copied), wave=chance.randint(0, 1)))
    return Plan("c", tuple(sorted(movements, key=lambda row: row.wave))), loads


def replayed_s(plan: Plan, loads: dict[int, tuple[int, int]], limits: Limits) -> float:
    old = {movement.key: movement.old_replicas for movement in plan.movements}
    copying = Copying(
        plan,
        Pace(THROTTLE, TICK_MS, limits),
        leader_of=lambda key: old[key][0],
        bytes_of=lambda key: loads[key[1]][0],
        produced_of=lambda key: loads[key[1]][1],
    )
    ended = copying.advance(SECONDS_MAX * 1000)
    assert copying.is_over
    assert sorted(movement.key for movement in ended) == sorted(old)
    assert copying.copied_bytes == plan.bytes_to_move
    return copying.elapsed_ms / 1000


def executed_s(plan: Plan, loads: dict[int, tuple[int, int]], limits: Limits) -> float:
    """The same by the executor's steps, on a simulated cluster whose network is no limit."""
    racks = dict.fromkeys(range(1, 7))
    cluster = SimulatedCluster.of(racks, network_bytes_per_sec=10**10, disk_bytes_per_sec=10**10)
    cluster.create_topic("t", {row.partition: row.old_replicas for row in plan.movements})
    for number, (size, rate) in loads.items():
        partition = cluster.contents.topics["t"].partitions[number]
        partition.end_bytes = partition.acknowledged_bytes = size
        partition.bytes_in_per_sec = rate
        for copy in partition.copies.values():
            copy.end_bytes = size
    for broker in racks:
        for setting in (LEADER_RATE, FOLLOWER_RATE):
            cluster.set_throttle_rate(broker, setting, THROTTLE)
    for setting in (LEADER_REPLICAS, FOLLOWER_REPLICAS):
        cluster.set_throttled_replicas("t", setting, "*")
    while cluster.now_ms < SECONDS_MAX * 1000:
        partitions = {("t", number): cluster.live_partition(("t", number)) for number in loads}
        step = next_step(plan, LiveCluster("c", racks, partitions), limits, worked_ms=0)
        if isinstance(step, Done):
            break
        if isinstance(step, Submit):
            cluster.reassign(dict(step.reassignments))
        elif isinstance(step, ElectLeaders):
            cluster.elect_preferred(step.partitions)
        cluster.advance(TICK_MS)
    return cluster.now_ms / 1000


@pytest.mark.parametrize("seed", range(6))
def test_it_takes_as_long_as_the_executor_does_on_the_simulated_cluster(seed: int) -> None:
    plan, loads = random_plan(seed)
    limits = Limits(movements_in_flight_max=6, movements_per_broker_max=3)
    # Rates are the same; the executor elects leaders in steps of their own and counts what copies a little differently.
    by_executor_s = executed_s(plan, loads, limits)
    assert replayed_s(plan, loads, limits) == pytest.approx(by_executor_s, rel=0.2, abs=4 * TICK_MS / 1000)


def test_two_copies_of_one_leader_share_its_throttle() -> None:
    movements = tuple(Movement("t", number, (1,), (2 + number,), 100.0 * THROTTLE) for number in range(2))
    loads = dict.fromkeys(range(2), (100 * THROTTLE, 0))
    assert replayed_s(Plan("c", movements), loads, Limits()) == pytest.approx(200, abs=TICK_MS / 1000)


def test_nothing_begins_while_it_may_not() -> None:
    movement = Movement("t", 0, (1,), (2,), 10.0 * THROTTLE)
    copying = Copying(
        Plan("c", (movement,)),
        Pace(THROTTLE, TICK_MS),
        leader_of=lambda _: 1,
        bytes_of=lambda _: 10.0 * THROTTLE,
        produced_of=lambda _: 0.0,
    )
    assert copying.advance(60_000, may_begin=False) == []
    assert (copying.is_over, copying.worked_ms) == (False, 0.0)
    assert copying.advance(60_000) == [movement]
    assert copying.is_over
