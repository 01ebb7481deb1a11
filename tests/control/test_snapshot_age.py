"""A request that rests on an old look is not sent."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.plan import Movement, Plan
from streaming.control.cluster_snapshot import SNAPSHOT_AGE_MAX_MS, SnapshotAge
from streaming.control.journal import ExecutionRecord
from streaming.control.lease import Lease
from streaming.control.wiring import executor_of, journal_of
from streaming.errors import SnapshotTooOld
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, SKEW, NotedCluster, stored


@dataclass
class Clocks:
    """One goes on while the process is stopped, the other is set."""

    boot_ms: int = 0
    wall_ms: int = 0
    age: SnapshotAge = field(init=False)

    def __post_init__(self) -> None:
        self.age = SnapshotAge(lambda: self.boot_ms, lambda: self.wall_ms)

    def sends(self, *, after_ms: int) -> bool:
        """Whether a request is sent that long after its look."""
        self.age.begin()
        self.boot_ms += after_ms
        self.wall_ms += after_ms
        return self.sends_now()

    def sends_now(self) -> bool:
        try:
            with self.age.limited():
                self.age.check()
        except SnapshotTooOld:
            return False
        return True


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def test_an_old_look_sends_nothing_and_the_next_one_does(clocks: Clocks) -> None:
    assert SNAPSHOT_AGE_MAX_MS == 10_000, "docs/execution.md"
    assert clocks.sends(after_ms=SNAPSHOT_AGE_MAX_MS)
    assert not clocks.sends(after_ms=3 * SNAPSHOT_AGE_MAX_MS)
    assert clocks.sends(after_ms=0)
    assert not clocks.sends(after_ms=SNAPSHOT_AGE_MAX_MS + 1), "what was slow once allows nothing for ever"


def test_a_cluster_whose_looks_all_take_long_is_not_starved(clocks: Clocks) -> None:
    assert [clocks.sends(after_ms=90_000) for _ in range(4)] == [False, True, True, True]
    assert not clocks.sends(after_ms=1_000_000)
    clocks.age.begin()
    clocks.boot_ms += 4_000_000
    text = "the snapshot of the cluster is 4000 s old, at most 2000 s are allowed: nothing was sent"
    with pytest.raises(SnapshotTooOld, match=text), clocks.age.limited():
        clocks.age.check()


@pytest.mark.parametrize("stopped", ["boot_ms", "wall_ms"])
def test_one_of_the_two_clocks_may_have_stood_still(clocks: Clocks, stopped: str) -> None:
    clocks.age.begin()
    running = {"boot_ms": "wall_ms", "wall_ms": "boot_ms"}[stopped]
    setattr(clocks, running, SNAPSHOT_AGE_MAX_MS + 1)
    assert not clocks.sends_now()


def test_a_clock_that_is_set_back_makes_no_look_younger(clocks: Clocks) -> None:
    clocks.age.begin()
    clocks.boot_ms, clocks.wall_ms = SNAPSHOT_AGE_MAX_MS + 1, -3_600_000
    assert not clocks.sends_now()


def test_what_rests_on_no_look_is_not_judged(clocks: Clocks) -> None:
    clocks.age.begin()
    with clocks.age.limited():
        clocks.age.check()
    clocks.boot_ms = 10 * SNAPSHOT_AGE_MAX_MS
    clocks.age.check()


class Frozen(NotedCluster):
    """Control is frozen after its last look before it first moves something, for less time than its lease lasts; t is
    made again meanwhile.
    """

    def __init__(self, clocks: Clocks) -> None:
        super().__init__()
        self.clocks = clocks
        self._frozen = False

    def describe(self, topics: Collection[str] | None = None) -> LiveCluster:
        answer = super().describe(topics)
        if "throttle" in self.changes and not self._frozen:
            self._frozen = True
            self.clocks.boot_ms += SNAPSHOT_AGE_MAX_MS + 1
            self.cluster.delete_topic("t")
            self.cluster.create_topic("t", dict.fromkeys(range(3), (1,)))
        return answer

    def reassign(self, targets: Mapping[PartitionKey, tuple[int, ...] | None]) -> None:
        self.clocks.age.check()
        super().reassign(targets)


def test_a_topic_that_is_made_again_while_control_is_frozen_is_not_moved(settings: Settings) -> None:
    cluster, journal = Frozen(Clocks()), journal_of(settings)
    made = Plan("c", (Movement("t", 0, (1,), (2,), 5.0),), SKEW, SKEW)
    kept = stored(journal, made, live=cluster.describe())
    record = ExecutionRecord(journal.approve(kept, "a test", now_ms=NOON_MS))
    executor = executor_of(cluster, journal, settings, cluster.clocks.age)
    assert executor.begin(record, kept, now_ms=NOON_MS)
    with pytest.raises(SnapshotTooOld, match="is 10 s old"):
        executor.tick(record, made, now_ms=NOON_MS + 1_000)
    executor.tick(record, made, now_ms=NOON_MS + 2_000)
    assert not [change for change in cluster.changes if change.startswith("move")]


def test_the_lease_asks_for_the_age_last(tables_in_memory: str) -> None:
    clocks = Clocks()
    lease = Lease(tables_in_memory, "main", 60_000, clock=lambda: clocks.boot_ms, wall_clock=lambda: clocks.wall_ms)
    assert lease.try_acquire()
    lease.snapshot_age.begin()
    clocks.wall_ms = SNAPSHOT_AGE_MAX_MS + 1  # the machine was paused, and its clock has been set
    lease.check()
    with lease.snapshot_age.limited(), pytest.raises(SnapshotTooOld):
        lease.check()
