"""What may still be copied to a broker: the fullest log dir that Kafka may choose, the reserve, what is on its way."""

import pytest

from assignor_core.disks import LogDirDescription, catching_up, largest_replicas, rooms
from assignor_core.execution.room import PATIENCE_MS, RoomLeft, WaitsForRoom
from assignor_core.live import LiveCluster, LivePartition
from tests.simulated_cluster import SimulatedClient, SimulatedCluster

MB = 1_000_000
T0 = ("t", 0)


def room(*log_dirs: LogDirDescription, partition: LivePartition | None = None, reserve: float = 0.1) -> float | None:
    """Of broker 1; the leader of the partition is broker 2, which holds 400 bytes of it."""
    live = LiveCluster("c", {1: None, 2: None}, {} if partition is None else {T0: partition})
    leader = LogDirDescription("/l", 10**6, 10**6, {T0: 400})
    return rooms(live, {1: log_dirs, 2: [leader]}, catching_up(live, (1,)), reserve=reserve)[1]


def test_the_fullest_log_dir_that_may_be_chosen_counts() -> None:
    wide, narrow = LogDirDescription("/a", 1000, 900), LogDirDescription("/b", 1000, 150)
    assert room(wide) == 800.0
    assert room(wide, narrow) == 50.0
    assert room(wide, narrow, reserve=0.0) == 150.0
    assert room(wide, LogDirDescription("/b", 1000, 20)) == 0.0  # into its reserve already
    assert room(wide, LogDirDescription("/b", is_offline=True)) == 800.0
    assert room(LogDirDescription("/b", is_offline=True), wide) == 800.0
    assert room(wide, LogDirDescription("/b", 1000, 150, is_cordoned=True)) == 800.0


def test_a_broker_that_no_log_dir_of_takes_replicas_has_no_room() -> None:
    assert room(LogDirDescription("/a", 1000, 900, is_cordoned=True)) == 0.0
    assert room(LogDirDescription("/a", is_offline=True)) == 0.0


@pytest.mark.parametrize(
    "log_dirs",
    [
        (),
        (LogDirDescription("/a", 1000, 900), LogDirDescription("/b")),
        (LogDirDescription("/a", total_bytes=1000),),
        (LogDirDescription("/a", usable_bytes=900),),
    ],
)
def test_where_one_log_dir_does_not_show_what_is_free_nothing_is_known(log_dirs: tuple[LogDirDescription, ...]) -> None:
    assert room(*log_dirs) is None


def test_what_replicas_still_lack_is_taken_from_the_log_dir_that_they_lie_in() -> None:
    growing = LogDirDescription("/a", 1000, 900, {T0: 100})
    arriving = LivePartition((1, 2), 2, (2,), adding_replicas=(1,))
    assert room(growing, partition=arriving) == 800.0 - 300.0
    assert room(growing, LogDirDescription("/b", 1000, 700), partition=arriving) == 500.0
    assert room(growing, LogDirDescription("/b", 1000, 550), partition=arriving) == 450.0
    assert room(LogDirDescription("/a", 1000, 900, {T0: 500}), partition=arriving) == 800.0  # larger than its leader's
    in_sync = LivePartition((1, 2), 2, (1, 2))
    assert room(growing, partition=in_sync) == 800.0


def test_a_replica_without_a_log_dir_may_arrive_in_any() -> None:
    empty = (LogDirDescription("/a", 1000, 900), LogDirDescription("/b", 1000, 700))
    arriving = LivePartition((1, 2), 2, (2,), adding_replicas=(1,))
    assert room(*empty, partition=arriving) == 600.0 - 400.0
    # What lay on a log dir that is offline is made nowhere else.
    lost = LivePartition((1, 2), 2, (2,))
    assert room(empty[0], LogDirDescription("/b", is_offline=True), partition=lost) == 800.0
    assert room(empty[0], LogDirDescription("/b", is_offline=True), partition=arriving) == 400.0


def test_the_size_of_a_partition_is_that_of_its_largest_replica() -> None:
    a, b = LogDirDescription("/a", replica_bytes={T0: 5, ("t", 1): 0}), LogDirDescription("/b", replica_bytes={T0: 7})
    assert largest_replicas({1: [a], 2: [b]}) == largest_replicas({1: [b, a]}) == {T0: 7, ("t", 1): 0}


def test_what_no_log_dir_shows_takes_no_room() -> None:
    live = LiveCluster("c", {1: None, 2: None}, {T0: LivePartition((2, 1), 2, (2,), adding_replicas=(1,))})
    behind = catching_up(live, (1, 2))
    assert behind == {1: [T0], 2: []}
    assert rooms(live, {1: [LogDirDescription("/a", 1000, 900)], 2: []}, behind, reserve=0.1) == {1: 800.0, 2: None}


def test_where_nobody_who_answers_holds_the_whole_replica_nothing_is_known_of_what_it_lacks() -> None:
    growing = LogDirDescription("/a", 1000, 900, {T0: 100})
    live = LiveCluster("c", {1: None, 2: None}, {T0: LivePartition((1, 2), 2, (2,), adding_replicas=(1,))})
    behind = catching_up(live, (1,))
    assert rooms(live, {1: [growing]}, behind, reserve=0.1) == {1: None}
    assert rooms(live, {1: [growing], 2: []}, behind, reserve=0.1) == {1: 800.0}  # refuses: what is held counts
    gone = LiveCluster("c", {1: None}, live.partitions)
    assert rooms(gone, {1: [growing]}, behind, reserve=0.1) == {1: 800.0}


def test_a_broker_that_does_not_show_its_disks_is_named() -> None:
    assert (
        RoomLeft({3: None, 4: 10.0}, {}).lacking(T0, [4, 3], {}) == "broker 3 does not show what is free on its disks"
    )


def test_a_movement_is_given_up_after_it_has_not_fitted_for_long_enough() -> None:
    began_ms, lacking = 7_000, {T0: "needs 60 bytes"}
    waits = WaitsForRoom().after(lacking, began_ms)
    for look_ms in range(10_000, PATIENCE_MS, 10_000):
        waits = waits.after(lacking | {("t", 1): "needs 5 bytes"}, began_ms + look_ms)
    assert waits.after(lacking, began_ms + PATIENCE_MS - 1).given_up == {}
    given_up = waits.after(lacking, began_ms + PATIENCE_MS)
    assert given_up.given_up == lacking
    # Given up for good, even where it would fit now; one that has fitted meanwhile begins anew.
    assert given_up.after({}, began_ms + PATIENCE_MS + 1).given_up == lacking
    assert waits.after({}, began_ms + 2) == WaitsForRoom()


def test_a_movement_that_fits_after_a_long_time_without_a_look_is_not_given_up() -> None:
    """The execution was held back for another reason, so nobody looked."""
    waits = WaitsForRoom().after({T0: "broker 8 did not answer a request for its log dirs"}, 0)
    assert waits.given_up == {}
    assert waits.after({}, 2 * PATIENCE_MS).given_up == {}


@pytest.mark.parametrize("next_look_ms", [2 * PATIENCE_MS, 10_000 - PATIENCE_MS])
def test_time_without_a_look_is_no_time_without_room(next_look_ms: int) -> None:
    """The execution was held back meanwhile, or paused for the night, or the clock was set back."""
    lacking = {T0: "needs 60 bytes"}
    waits = WaitsForRoom().after(lacking, 0).after(lacking, 10_000).after(lacking, next_look_ms)
    assert waits.given_up == {}
    for look_ms in range(0, PATIENCE_MS, 10_000):
        waits = waits.after(lacking, next_look_ms + look_ms)
    assert waits.given_up == {}
    assert waits.after(lacking, next_look_ms + PATIENCE_MS).given_up == lacking


def test_a_simulated_cluster_shows_its_log_dirs() -> None:
    cluster = SimulatedCluster.of({1: None, 2: None}, log_dir_bytes=(10 * MB, 20 * MB))
    cluster.create_topic("t", {0: (1,), 1: (1,)}, size_bytes=MB)
    first, second = SimulatedClient(cluster).log_dirs()[1]
    assert (first.total_bytes, first.usable_bytes, first.replica_bytes) == (10 * MB, 9 * MB, {("t", 0): MB})
    assert (second.total_bytes, second.usable_bytes, second.replica_bytes) == (20 * MB, 19 * MB, {("t", 1): MB})
    cluster.fail_log_dir(1, 0)
    cluster.contents.brokers[1].log_dirs[1].cordoned = True
    first, second = SimulatedClient(cluster).log_dirs([1], [("t", 0)])[1]
    assert first == LogDirDescription("/disk-0", is_offline=True)
    assert (second.replica_bytes, second.is_cordoned) == ({}, True)
    assert SimulatedClient(cluster).log_dirs([2]).keys() == {2}
