"""What metadata shows: reassignments, whoever has asked for them."""

import pytest

from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, Reassignment, lagging, offline, too_many_away

STILL = LivePartition((1, 2), 1, (1, 2))
GROWS = LivePartition((1, 2, 3), 1, (1, 2), adding_replicas=(3,))
SHRINKS = LivePartition((1, 2), 1, (1, 2), removing_replicas=(2,))


def test_a_replication_factor_that_grows_or_shrinks_is_a_reassignment() -> None:
    assert [row.reassigning for row in (STILL, GROWS, SHRINKS)] == [False, True, True]
    assert [row.target_replicas for row in (STILL, GROWS, SHRINKS)] == [(1, 2), (1, 2, 3), (1,)]
    cluster = LiveCluster("c", {1: None}, {("t", 0): STILL, ("t", 1): GROWS, ("t", 2): SHRINKS})
    assert cluster.reassigning() == {("t", 1), ("t", 2)}


def test_what_the_controller_lists_completes_the_metadata_of_a_broker() -> None:
    behind = LivePartition((1, 2), 2, (2,), adding_replicas=(9,), removing_replicas=(8,))
    assert behind.with_reassignment(None) == LivePartition((1, 2), 2, (2,))
    moving = Reassignment((3, 1, 2), adding_replicas=(3,), removing_replicas=(2,))
    assert behind.with_reassignment(moving) == LivePartition((3, 1, 2), 2, (2,), (3,), (2,))


@pytest.mark.parametrize(("away", "alive", "held_back"), [(0, 0, False), (2, 3, False), (3, 3, True), (1, 0, True)])
def test_as_many_away_as_the_share_allows_are_not_too_many(away: int, alive: int, held_back: bool) -> None:
    assert (too_many_away(away, alive, 0.4) is not None) == held_back


def test_brokers_that_are_away_and_hold_replicas() -> None:
    cluster = LiveCluster("c", {1: None, 3: None}, {("t", 0): STILL, ("t", 1): GROWS})
    assert cluster.hosts_away() == {2}


def test_what_is_offline_waits_for_a_broker_that_is_lost_or_is_named() -> None:
    rows = {
        ("t", 1): LivePartition((2, 3), NO_LEADER, ()),
        ("t", 0): LivePartition((4,), NO_LEADER, ()),
        ("t", 2): STILL,
    }
    cluster = LiveCluster("c", {1: None}, rows)
    assert [offline(cluster, lost) for lost in ((), (3,), (1,))] == [
        [("t", 0), ("t", 1)], [("t", 0)], [("t", 0), ("t", 1)]
    ]  # fmt: skip


def test_what_lags_has_a_leader_and_is_not_being_moved() -> None:
    behind = LivePartition((1, 2, 3), 1, (1,))
    rows = {("t", 1): behind, ("t", 0): behind, ("t", 2): GROWS, ("t", 3): STILL}
    rows["t", 4] = LivePartition((1, 2), NO_LEADER, ())
    cluster = LiveCluster("c", {1: None}, rows)
    assert lagging(cluster) == [("t", 0), ("t", 1)]
    assert lagging(cluster, ours=[("t", 0)]) == [("t", 1)]
    # Those that are away excuse only what is missing on them.
    assert lagging(cluster, lost=(2,)) == [("t", 0), ("t", 1)]
    assert lagging(cluster, lost=(2, 3, 4)) == []
