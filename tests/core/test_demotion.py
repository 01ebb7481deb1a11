"""Leadership is taken off brokers by the order of replicas alone, and brought back."""

from random import Random

import pytest

from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, PartitionKey
from assignor_core.live_plans.demotion import propose_demotion, propose_restoration
from assignor_core.plan import Plan

NOBODY: frozenset[int] = frozenset()


def at(*replicas: int, leader: int | None = None, isr: tuple[int, ...] | None = None) -> LivePartition:
    return LivePartition(replicas, replicas[0] if leader is None else leader, replicas if isr is None else isr)


def cluster(*rows: LivePartition) -> LiveCluster:
    return LiveCluster("c", dict.fromkeys(range(1, 6)), {("t", number): row for number, row in enumerate(rows)})


def demotion(live: LiveCluster, *brokers: int, demoted: frozenset[int] = NOBODY) -> Plan:
    return propose_demotion(live, frozenset(brokers), demoted=demoted, cluster_name="main").plan


def restoration(live: LiveCluster, before: Plan, *brokers: int, demoted: frozenset[int] = NOBODY) -> Plan:
    orders = {row.key: row.old_replicas for row in before.movements}
    return propose_restoration(live, frozenset(brokers), orders, demoted=demoted, cluster_name="main").plan


def lists(plan: Plan) -> dict[int, tuple[int, ...]]:
    assert all((row.kind, row.bytes_to_move) == ("leader", 0.0) for row in plan.movements)
    return {row.partition: row.new_replicas for row in plan.movements}


def after(live: LiveCluster, plan: Plan) -> LiveCluster:
    """Carried out, with the preferred replicas as leaders."""
    new: dict[PartitionKey, LivePartition] = {row.key: at(*row.new_replicas) for row in plan.movements}
    return LiveCluster(live.cluster_id, live.broker_racks, {**live.partitions, **new})


def test_a_demoted_broker_stands_behind_all_others() -> None:
    live = cluster(at(3, 1, 2), at(1, 3, 2), at(1, 2, 3), at(2, 1), at(1, 3, leader=3))
    assert lists(demotion(live, 3)) == {0: (1, 2, 3), 1: (1, 2, 3), 4: (1, 3)}, "t-4 needs an election alone"
    assert demotion(after(live, demotion(live, 3)), 3).movement_count == 0


def test_several_are_demoted_together_and_beside_others_that_are() -> None:
    live = cluster(at(3, 4, 1), at(4, 2), at(3, 5))
    assert lists(demotion(live, 3, 4)) == {0: (1, 3, 4), 1: (2, 4), 2: (5, 3)}
    assert lists(demotion(live, 3, demoted=frozenset({4}))) == {0: (1, 3, 4), 2: (5, 3)}


def test_what_nobody_else_could_lead_is_named() -> None:
    live = cluster(at(3, 1, isr=(3,)), at(3), at(3, 4), at(3, 1), at(1, 3, isr=(1,)))
    plan = demotion(live, 3, demoted=frozenset({4}))
    assert plan.problems == ("2 partitions have no other replica in sync that may lead: t-0, t-2",)
    assert plan.diagnosis == ("1 partition has one replica and stays where it is: t-1",)
    assert lists(plan) == {3: (1, 3)}


def test_what_is_being_reassigned_is_waited_for() -> None:
    moving = LivePartition((3, 1, 2), 3, (3, 1), adding_replicas=(2,), removing_replicas=(1,))
    assert demotion(cluster(moving), 3).problems == ("1 partition is being reassigned: t-0",)
    demoted = demotion(cluster(at(3, 1)), 3)
    assert restoration(cluster(moving), demoted, 3).problems == ("1 partition is being reassigned: t-0",)


def test_the_order_of_before_comes_back() -> None:
    live = cluster(at(3, 1, 2), at(1, 3, 2), at(1, 2, 3), at(2, 1), at(3, 4))
    made = demotion(live, 3)
    demoted = after(live, made)
    assert after(demoted, restoration(demoted, made, 3)) == live


def test_what_was_moved_meanwhile_keeps_its_other_replicas() -> None:
    live = cluster(at(3, 1, 2), at(1, 3, 2), at(3, 1))
    made = demotion(live, 3)
    moved = cluster(at(1, 5, 3), at(1, 2), at(1, 3), at(1, 3))
    assert lists(restoration(moved, made, 3)) == {0: (3, 1, 5), 2: (3, 1)}, "t-3 was made since"


@pytest.mark.parametrize("seed", range(50))
def test_brokers_that_are_demoted_and_return_in_any_order_leave_the_cluster_as_it_was(seed: int) -> None:
    """While one is demoted it leads nothing that another could lead."""
    random = Random(seed)
    live = before = cluster(*(at(*random.sample(range(1, 6), random.randint(1, 3))) for _ in range(20)))
    plans: dict[int, Plan] = {}
    for broker in random.sample(range(1, 6), 2):
        plans[broker] = demotion(live, broker, demoted=frozenset(plans))
        live = after(live, plans[broker])
    for row in live.partitions.values():
        assert row.leader not in plans or set(row.replicas) <= plans.keys()
    for broker in list(reversed(plans)):
        made = plans.pop(broker)
        live = after(live, restoration(live, made, broker, demoted=frozenset(plans)))
    assert live == before


def test_a_partition_without_a_leader_is_not_led_by_a_broker_of_kafkas_number_for_none() -> None:
    (movement,) = demotion(cluster(at(3, 1, leader=NO_LEADER, isr=(3,))), 3).movements
    assert movement.reason == "no broker leads it now, broker 1 is to lead it"
