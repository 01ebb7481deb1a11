"""Control without the right to see log dirs and reassignments decides with what it has, and names what is missing."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from assignor_core.disks import LogDirDescription
from assignor_core.errors import NothingToPlanOn
from assignor_core.live import PartitionKey
from assignor_core.planner import PlannerPolicy
from streaming.control.wiring import decider_of, journal_of
from streaming.settings import Settings
from tests.control.test_deciding import NOON_MS, DescribedCluster, last, settings
from tests.control.test_doubtful_loads import planned, twenty
from tests.control.windows import write_windows

__all__ = ["settings"]  # the fixture


class Hidden(DescribedCluster):
    """What `PartlyShownCluster` shows to a user without DESCRIBE on the cluster."""

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        assert partitions is None or not partitions
        return {broker: () for broker in self.live.broker_racks if brokers is None or broker in brokers}


def hidden() -> Hidden:
    return Hidden(replace(twenty().live, reassignments_hidden=True))


def test_skew_that_only_copies_could_mend_is_a_decision_to_hold_that_names_the_cause(settings: Settings) -> None:
    cluster = hidden()
    write_windows(settings, cluster.live, end_ms=NOON_MS)
    assert decider_of(cluster, journal_of(settings), settings).tick(now_ms=NOON_MS) is None
    detail = last(settings)["detail"]
    assert "no plan lowers max/mean of bytes_in" in detail
    assert "as no broker shows its log dirs: all of them; sizes are unknown, so leaders alone change" in detail


def test_a_plan_by_hand_copies_nothing_and_a_drain_is_refused(settings: Settings) -> None:
    cluster = hidden()
    write_windows(settings, cluster.live, end_ms=NOON_MS)
    plan = planned(cluster, settings).plan
    assert plan.movements
    assert plan.bytes_to_move == 0
    assert all(set(row.new_replicas) == set(row.old_replicas) for row in plan.movements)
    with pytest.raises(NothingToPlanOn, match="broker 3 would have to be copied"):
        planned(cluster, settings, policy=PlannerPolicy(drain=frozenset({3})))
