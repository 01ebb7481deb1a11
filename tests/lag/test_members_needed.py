"""How many members groups need, as serve exports it: while they are behind, and once they keep up again."""

import pytest

from assignor_core.lag.members import MembersAdvice
from streaming.serve.samples import group_samples
from streaming.serve.snapshot import SnapshotReader
from streaming.views import one_group
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

WINDOWS = 30


class Group:
    """A group whose eight partitions get so many records a window each, and from which it reads so many."""

    def __init__(self, root: str) -> None:
        self.settings = settings_for(root)
        self._synthetic = Synthetic(root)
        self._snapshots = SnapshotReader(self.settings)
        self._start_ms = NOW_MS - 2_000 * WINDOW_MS
        self._ends, self._committed = [0] * 8, [0] * 8

    def goes_on(self, written: int, read: int, *, windows: int = WINDOWS, hot: int = 0) -> MembersAdvice | None:
        """The need of the group after so many windows; partition 0 gets `hot` records more."""
        with self._synthetic.together():
            for _ in range(windows):
                self._start_ms += WINDOW_MS
                for p in range(8):
                    self._ends[p] += written + (hot if p == 0 else 0)
                    self._committed[p] = min(self._ends[p], self._committed[p] + read)
                rows = [("g", "t", p, self._committed[p], self._ends[p]) for p in range(8)]
                self._synthetic.group_lag(self._start_ms, rows)
        self.snapshot = self._snapshots.read(self._start_ms + WINDOW_MS)
        return self.snapshot.groups.needs.get("g")


@pytest.fixture
def group(tables_in_memory: str) -> Group:
    return Group(tables_in_memory)


def test_a_group_that_is_behind_needs_more_and_one_that_keeps_up_again_needs_fewer(group: Group) -> None:
    behind = group.goes_on(1_000, 500)
    # One member reads half of eight equal partitions, so three are what a member can be given: 8 = 3 + 3 + 2.
    assert behind is not None
    assert (behind.needed, behind.bound) == (3, 3)
    assert ("consumergroup_members_needed", ("g",), 3) in list(group_samples(group.snapshot).samples)
    assert group_samples(group.snapshot).counts["consumergroup_members_needed"] == 1
    keeps_up = group.goes_on(300, 10_000)
    assert keeps_up is not None
    assert keeps_up.needed == 1, "what a member can read is remembered"


def test_of_a_group_that_never_was_behind_nothing_is_known(group: Group) -> None:
    assert group.goes_on(1_000, 1_000) is None


def test_a_hot_partition_limits_what_members_help(group: Group) -> None:
    need = group.goes_on(1_000, 500, hot=7_000)
    assert need is not None
    assert need.needed is None
    assert need.heaviest_partition_ratio > 0.8
    assert need.bound > 1
    exported = {sample.name: sample.value for sample in group_samples(group.snapshot).samples}
    assert "consumergroup_members_needed" not in exported
    assert exported["consumergroup_members_needed_bound"] == need.bound
    assert exported["consumergroup_heaviest_partition_ratio"] == need.heaviest_partition_ratio


def test_what_a_member_can_read_is_forgotten_after_a_day(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_group, "REMEMBERED_MS", WINDOWS * WINDOW_MS)
    assert group.goes_on(1_000, 500) is not None
    assert group.goes_on(300, 10_000, windows=2 * WINDOWS) is None


def test_of_a_group_with_very_many_partitions_the_bound_alone_is_known(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_group, "PACKED_MAX", 7)
    need = group.goes_on(1_000, 500)
    assert need is not None
    assert (need.needed, need.bound) == (None, 3)


def test_no_more_groups_than_allowed_are_looked_at(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_group, "PARTITIONS_MAX", 7)
    assert group.goes_on(1_000, 500) is None
