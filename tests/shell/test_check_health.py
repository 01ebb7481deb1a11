"""`rebalancer check` where brokers are down: who is named, and which partitions have no leader at all."""

from assignor_core.live import NO_LEADER, LiveCluster, LivePartition
from streaming.commands.check import brokers_alive, partitions_healthy, reached

RACKS = {1: None, 2: None}
IN_SYNC = LivePartition((1, 2), 1, (1, 2))


def live(*partitions: LivePartition) -> LiveCluster:
    return LiveCluster("c", RACKS, {("t", number): row for number, row in enumerate(partitions)})


def test_where_all_is_well_nothing_is_named() -> None:
    assert brokers_alive(live(IN_SYNC)) == (True, "all that hold replicas, 2 brokers")
    assert partitions_healthy(live(IN_SYNC)) == (True, "every replica is in sync")


def test_partitions_without_a_leader_are_told_from_those_with_too_few_replicas_in_sync() -> None:
    alone, behind = LivePartition((3,), NO_LEADER, (3,)), LivePartition((1, 3), 1, (1,))
    assert partitions_healthy(live(IN_SYNC, alone, behind)) == (
        False, "1 partition is offline, first t-1; 1 partition is under-replicated, first t-2",
    )  # fmt: skip
    assert partitions_healthy(live(alone)) == (False, "1 partition is offline, first t-0")
    assert partitions_healthy(live(behind)) == (False, "1 partition is under-replicated, first t-0")


def test_brokers_that_are_down_are_named() -> None:
    rows = LivePartition((3,), NO_LEADER, (3,)), LivePartition((1, 3), 1, (1,))
    assert brokers_alive(live(IN_SYNC, *rows)) == (False, "broker 3 is down, with replicas of 2 partitions")
    assert brokers_alive(live(*rows, LivePartition((4, 1), 1, (1,)))) == (
        False, "brokers 3, 4 are down, with replicas of 3 partitions",
    )  # fmt: skip


def test_brokers_without_a_rack_beside_others_that_have_one_are_named() -> None:
    assert reached(live(IN_SYNC)) == (True, "2 brokers, 0 racks, 1 partition")
    assert reached(LiveCluster("c", {1: "a", 2: "b"}, {})) == (True, "2 brokers, 2 racks, 0 partitions")
    _, detail = reached(LiveCluster("c", {1: "a", 2: None, 3: "a"}, {}))
    assert detail.startswith("3 brokers, 1 rack, 0 partitions; broker 2 has no rack while others have one")
