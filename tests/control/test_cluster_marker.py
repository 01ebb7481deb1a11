"""Two folders of tables on one cluster: the marker on the cluster keeps their controls from changing it together."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from assignor_core.marker import MARKER_INTERVAL_MS, MARKER_TTL_MS, REPLACED_SILENT_MS, Marker
from streaming.commands.check import markers_finding
from streaming.control.carrier import Carrier
from streaming.control.cluster_marker import ANNOUNCED_BEFORE_MS, ClusterMarker
from streaming.control.journal import ExecutionRecord
from streaming.control.lease import TAKE_OVER_MARGIN_MS, Lease
from streaming.control.wiring import executor_of, journal_of
from streaming.errors import AnotherControl
from streaming.settings import Settings
from tests.control.clock import Clock
from tests.control.noted_cluster import NOON_MS, NotedCluster, approve
from tests.simulated_cluster import SimulatedClient
from tests.tables_in_memory import forget


class Tables:
    """One folder of tables with its lease, and who carries out what is approved there."""

    def __init__(self, root: str | Path, cluster: NotedCluster, clock: Clock, *, ttl_ms: int = 10**9) -> None:
        self.settings = Settings.model_validate({"storage": {"tables": str(root)}})
        self._cluster = cluster
        self.lease = Lease(str(root), "main", ttl_ms, clock, clock)
        if not self.lease.try_acquire():
            clock.now_ms += 10**9 + TAKE_OVER_MARGIN_MS + 1
            assert self.lease.try_acquire()
        self.marker = ClusterMarker(cluster, self.lease)
        self.carrier = self.new_carrier()

    def new_carrier(self) -> Carrier:
        """As after a restart of control."""
        journal = journal_of(self.settings)
        return Carrier(
            executor_of(self._cluster, journal, self.settings), journal, ClusterMarker(self._cluster, self.lease)
        )

    def approve(self, partition: int) -> ExecutionRecord:
        return approve(journal_of(self.settings), partition)

    def events(self, record: ExecutionRecord) -> list[str]:
        return [event.event for event in journal_of(self.settings).execution(record.execution.execution_id).events]


@pytest.fixture
def cluster() -> NotedCluster:
    return NotedCluster()


@pytest.fixture
def one(tables_in_memory: str, cluster: NotedCluster, clock: Clock) -> Tables:
    return Tables(tables_in_memory, cluster, clock)


@pytest.fixture
def two(tables_in_memory: str, cluster: NotedCluster, clock: Clock) -> Iterator[Tables]:
    root = f"{tables_in_memory}-two"
    yield Tables(root, cluster, clock)
    forget(root)


@pytest.fixture
def on_disk(tmp_path: Path, cluster: NotedCluster, clock: Clock) -> Tables:
    """A folder that can be copied."""
    return Tables(tmp_path / "one", cluster, clock)


def begin(tables: Tables, partition: int, clock: Clock) -> ExecutionRecord:
    record = tables.approve(partition)
    tables.carrier.tick(now_ms=NOON_MS)
    clock.now_ms += ANNOUNCED_BEFORE_MS
    tables.carrier.tick(now_ms=NOON_MS + 1)
    return record


def test_the_marker_stands_before_the_first_change_and_names_lease_and_process(
    one: Tables, cluster: NotedCluster, clock: Clock
) -> None:
    record = one.approve(0)
    one.carrier.tick(now_ms=NOON_MS)
    (marker,) = cluster.markers()
    assert (marker.lease_id, marker.since_ms, marker.is_released) == (one.lease.lease_id, clock.now_ms, False)
    assert (one.events(record), cluster.changes) == (["approved"], [])
    clock.now_ms += ANNOUNCED_BEFORE_MS
    one.carrier.tick(now_ms=NOON_MS + 1)
    assert one.events(record) == ["approved", "started", "submitted"]
    cluster.settle(("t", 0), (2,))
    one.carrier.tick(now_ms=NOON_MS + 2)
    assert one.events(record)[-1] == "done"
    assert [row.is_released for row in cluster.markers()] == [True]


def test_nothing_is_begun_while_the_control_of_other_tables_changes_the_cluster(
    one: Tables, two: Tables, cluster: NotedCluster, clock: Clock
) -> None:
    begin(one, 0, clock)
    waiting = two.approve(1)
    for _ in range(20):
        clock.now_ms += 30_000
        one.carrier.tick(now_ms=NOON_MS + 2)
        with pytest.raises(
            AnotherControl,
            match=f"with lease {(one.lease.lease_id or '')[:12]} changes this cluster: it has other tables than ",
        ):
            two.carrier.tick(now_ms=NOON_MS + 2)
    assert two.events(waiting) == ["approved"]
    cluster.settle(("t", 0), (2,))
    one.carrier.tick(now_ms=NOON_MS + 3)
    for _ in range(2):
        two.carrier.tick(now_ms=NOON_MS + 4)
        clock.now_ms += ANNOUNCED_BEFORE_MS
    assert two.events(waiting) == ["approved", "started", "submitted"]
    assert [row.lease_id for row in cluster.markers()] == [two.lease.lease_id]  # one stays


def test_a_stale_marker_is_taken_over_after_a_disaster(two: Tables, cluster: NotedCluster, clock: Clock) -> None:
    """Its clock may be wrong by any amount: only whether it is renewed counts."""
    lost = Marker("0" * 32, "a-machine-that-burned/1", 5, 10**15)
    cluster.cluster.contents.markers.append(lost)
    record = two.approve(0)
    for _ in range(MARKER_TTL_MS // 10_000 + 1):
        with pytest.raises(AnotherControl, match="a-machine-that-burned/1"):
            two.carrier.tick(now_ms=NOON_MS)
        clock.now_ms += 10_000
    for _ in range(2):
        two.carrier.tick(now_ms=NOON_MS)
        clock.now_ms += ANNOUNCED_BEFORE_MS
    assert two.events(record) == ["approved", "started", "submitted"]
    assert [row.lease_id for row in cluster.markers()] == [two.lease.lease_id]


def test_who_finds_another_marker_on_the_way_changes_nothing_more(
    one: Tables, two: Tables, cluster: NotedCluster, clock: Clock
) -> None:
    """It was frozen for longer than its marker lived, and its lease nobody wanted."""
    record = begin(one, 0, clock)
    cluster.cancel(("t", 0))  # else the other's plan would be refused
    two.approve(1)
    for _ in range(MARKER_TTL_MS // 10_000 + 2):
        try:
            two.carrier.tick(now_ms=NOON_MS + 1)
        except AnotherControl:
            clock.now_ms += 10_000
    clock.now_ms += ANNOUNCED_BEFORE_MS
    two.carrier.tick(now_ms=NOON_MS + 1)
    cluster.changes.clear()
    with pytest.raises(AnotherControl):
        one.carrier.tick(now_ms=NOON_MS + 2)
    assert cluster.changes == []
    assert one.events(record)[-1] == "submitted"


def test_after_a_restart_the_own_marker_needs_no_announcement(one: Tables, cluster: NotedCluster, clock: Clock) -> None:
    record = begin(one, 0, clock)
    cluster.settle(("t", 0), (2,))
    one.new_carrier().tick(now_ms=NOON_MS + 2)
    assert one.events(record)[-1] == "done"
    assert [row.is_released for row in cluster.markers()] == [True]


def test_the_marker_is_renewed_while_an_execution_is_under_way(
    one: Tables, cluster: NotedCluster, clock: Clock
) -> None:
    begin(one, 0, clock)
    before = cluster.markers()[0]
    clock.now_ms += 15_000
    one.carrier.tick(now_ms=NOON_MS + 2)
    after = cluster.markers()[0]
    assert (after.renewed_ms, after.since_ms) == (clock.now_ms, before.since_ms)
    assert len(cluster.markers()) == 1


def test_check_names_a_control_that_changes_the_cluster_with_other_tables(
    one: Tables, two: Tables, cluster: NotedCluster, clock: Clock
) -> None:
    assert markers_finding(cluster, two.settings, now_ms=0) == (True, "no rebalancer has changed this cluster")
    begin(one, 0, clock)
    (marker,) = cluster.markers()
    passed, detail = markers_finding(cluster, two.settings, now_ms=clock.now_ms + 7_000)
    assert not passed
    age_s = (clock.now_ms + 7_000 - marker.renewed_ms) // 1000
    assert detail == f"{marker} changes this cluster with other tables; it renewed its marker {age_s} s ago"
    assert markers_finding(cluster, one.settings, now_ms=clock.now_ms)[0]
    cluster.settle(("t", 0), (2,))
    one.carrier.tick(now_ms=NOON_MS + 2)
    for tables, named in ((one, "these"), (two, "other")):
        passed, detail = markers_finding(cluster, tables.settings, now_ms=clock.now_ms)
        assert (passed, detail) == (True, f"{marker}, of {named} tables, was the last to change this cluster")


def test_markers_are_not_read_at_each_step(
    one: Tables, cluster: NotedCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(one, 0, clock)
    reads: list[int] = []
    read = cluster.markers

    def counted() -> tuple[Marker, ...]:
        reads.append(clock.now_ms)
        return read()

    monkeypatch.setattr(cluster, "markers", counted)
    for look in range(60):
        clock.now_ms += 1_000
        one.carrier.tick(now_ms=NOON_MS + look)
    assert len(reads) == 60_000 // MARKER_INTERVAL_MS


def copy_of(tables: Tables, tmp_path: Path, cluster: NotedCluster, clock: Clock) -> Tables:
    """Somebody copies the folder while its control works, and starts one on the copy. The first one goes on."""
    shutil.copytree(tables.settings.storage.tables, tmp_path / "copy")
    return Tables(tmp_path / "copy", cluster, clock)


@pytest.mark.long
def test_who_works_with_a_copy_of_the_tables_changes_nothing_while_the_first_goes_on(
    on_disk: Tables, tmp_path: Path, cluster: NotedCluster, clock: Clock
) -> None:
    record = begin(on_disk, 0, clock)
    copy = copy_of(on_disk, tmp_path, cluster, clock)
    assert copy.lease.lease_id == on_disk.lease.lease_id
    cluster.changes.clear()
    for _ in range(20):
        on_disk.carrier.tick(now_ms=NOON_MS + 2)
        with pytest.raises(AnotherControl, match=r"has the same lease as .*: one of the two folders is a copy"):
            copy.carrier.tick(now_ms=NOON_MS + 2)
        passed, detail = markers_finding(cluster, copy.settings, now_ms=clock.now_ms)
        assert not passed
        assert "changes this cluster with a copy of these tables, or has just ended" in detail
        clock.now_ms += 10_000
    assert cluster.changes == []
    cluster.settle(("t", 0), (2,))
    on_disk.carrier.tick(now_ms=NOON_MS + 3)
    assert on_disk.events(record)[-1] == "done"
    assert cluster.changes == ["clear"]


def test_who_works_with_the_tables_of_which_there_is_a_copy_changes_nothing_while_that_one_does(
    on_disk: Tables, tmp_path: Path, cluster: NotedCluster, clock: Clock
) -> None:
    copy = copy_of(on_disk, tmp_path, cluster, clock)
    begin(copy, 1, clock)
    waiting = on_disk.approve(0)
    with pytest.raises(AnotherControl, match="has the same lease"):
        on_disk.carrier.tick(now_ms=NOON_MS + 2)
    assert on_disk.events(waiting) == ["approved"]


@pytest.mark.parametrize("copied", [False, pytest.param(True, marks=pytest.mark.long)])
def test_of_two_that_announce_themselves_at_once_one_gives_way(
    on_disk: Tables, tmp_path: Path, cluster: NotedCluster, clock: Clock, copied: bool
) -> None:
    """With a lease each, or with the same one where a folder is a copy of the other."""
    other = copy_of(on_disk, tmp_path, cluster, clock) if copied else Tables(tmp_path / "two", cluster, clock)
    holders = [(tables, tables.lease.holder) for tables in (on_disk, other)]
    first, second = (row for row, _ in sorted(holders, key=lambda row: row[1].identity if row[1] else ("", "")))
    records = [first.approve(0), second.approve(1)]
    second.carrier.tick(now_ms=NOON_MS)
    written, cluster.cluster.contents.markers = cluster.cluster.contents.markers, []
    first.carrier.tick(now_ms=NOON_MS)  # its broker does not show the other's marker yet
    cluster.cluster.contents.markers += written
    clock.now_ms += ANNOUNCED_BEFORE_MS
    with pytest.raises(AnotherControl):
        second.carrier.tick(now_ms=NOON_MS + 1)
    first.carrier.tick(now_ms=NOON_MS + 1)
    assert first.events(records[0]) == ["approved", "started", "submitted"]
    assert second.events(records[1]) == ["approved"]


@pytest.mark.parametrize("given_back", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_second_control_of_the_same_tables_goes_on_after_the_first(
    on_disk: Tables, tmp_path: Path, cluster: NotedCluster, clock: Clock, given_back: bool
) -> None:
    """Killed on another machine: nobody sees that it is gone, but its marker stands still."""
    record = begin(on_disk, 0, clock)
    if given_back:
        on_disk.lease.release()
    second = Tables(tmp_path / "one", cluster, clock)
    cluster.settle(("t", 0), (2,))
    waited_ms = 0
    while second.events(record)[-1] != "done":
        assert waited_ms <= REPLACED_SILENT_MS + 2 * ANNOUNCED_BEFORE_MS
        with suppress(AnotherControl):
            second.carrier.tick(now_ms=NOON_MS + 2)
        clock.now_ms += 1_000
        waited_ms += 1_000
    if given_back:
        assert waited_ms <= 2 * ANNOUNCED_BEFORE_MS
    assert [row.identity for row in cluster.markers()] == [second.lease.holder.identity if second.lease.holder else ()]


def test_a_turn_that_takes_long_looks_at_the_markers_again_before_a_change(
    one: Tables, two: Tables, cluster: NotedCluster, clock: Clock
) -> None:
    """Its request comes when its marker has become stale, and another one has begun."""
    leased = SimulatedClient(cluster.cluster, may_act=one.lease.check)
    one.marker = ClusterMarker(leased, one.lease)
    assert not one.marker.hold()
    clock.now_ms += ANNOUNCED_BEFORE_MS
    assert one.marker.hold()
    clock.now_ms += MARKER_INTERVAL_MS + 1
    leased.reassign({("t", 0): (2,)})
    (marker,) = cluster.markers()
    assert marker.renewed_ms == clock.now_ms
    cluster.cluster.contents.markers = [replace(marker, lease_id="0" * 32)]
    clock.now_ms += MARKER_INTERVAL_MS + 1
    with pytest.raises(AnotherControl):
        leased.reassign({("t", 1): (2,)})
    assert cluster.describe().reassigning() == {("t", 0)}
