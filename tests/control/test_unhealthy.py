"""Mode `apply` starts no plan that would have to wait: partitions that are offline, or stay under-replicated.

Brokers 1 to 4 as in `test_deciding`: broker 1 stands out, so a plan is wanted.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from assignor_core.deciding.gates import obstacle
from assignor_core.deciding.policy import TriggerPolicy
from assignor_core.deciding.state import LAGGING_KEPT_MAX, TriggerState, with_lagging
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition
from streaming.settings import Settings
from tests.control.test_deciding import (
    MINUTE_MS,
    NOON_MS,
    DescribedCluster,
    after_the_grace_time,
    crowded,
    decide,
    last,
    settings,
    skewed,
    with_control,
    without,
)
from tests.core.states import lagging_since

__all__ = ["settings"]  # the fixture

EVENING_MS = int(datetime(2026, 11, 23, 22, tzinfo=UTC).timestamp()) * 1000


def with_isr(cluster: DescribedCluster, isr: tuple[int, ...]) -> None:
    """Partition t-5 has these replicas in sync; without any it is offline."""
    row = replace(cluster.live.partitions["t", 5], isr=isr, leader=isr[0] if isr else NO_LEADER)
    cluster.live = replace(cluster.live, partitions={**cluster.live.partitions, ("t", 5): row})


def test_no_plan_starts_while_a_partition_is_offline(settings: Settings) -> None:
    cluster = crowded()
    sound = cluster.live
    with_isr(cluster, ())
    assert decide(settings, cluster, NOON_MS) is None
    assert (last(settings)["verdict"], last(settings)["reason"]) == ("hold", "unhealthy")
    assert last(settings)["detail"].startswith("1 partition is offline, first t-5; bytes_in max/mean ")
    cluster.live = sound
    assert decide(settings, cluster, NOON_MS + MINUTE_MS) is not None


def test_a_replica_that_lags_for_a_moment_holds_nothing_back(settings: Settings) -> None:
    cluster = crowded()
    with_isr(cluster, (3,))
    assert decide(settings, cluster, NOON_MS) is not None


def test_no_plan_starts_while_a_partition_stays_under_replicated(settings: Settings) -> None:
    cluster = crowded()
    sound = cluster.live
    with_isr(cluster, (3,))
    assert decide(settings, cluster, NOON_MS, windows=1) is None
    assert last(settings)["reason"] == "not_enough_windows"
    assert decide(settings, cluster, NOON_MS + MINUTE_MS) is None
    assert (last(settings)["verdict"], last(settings)["reason"]) == ("hold", "unhealthy")
    assert last(settings)["detail"].startswith("1 partition is under-replicated, first t-5, for 1.0 min; bytes_in ")
    cluster.live = sound
    assert decide(settings, cluster, NOON_MS + 2 * MINUTE_MS) is not None


def test_after_a_gap_nobody_knows_whether_it_stayed_so(settings: Settings) -> None:
    cluster = crowded()
    with_isr(cluster, (3,))
    assert decide(settings, cluster, NOON_MS, windows=1) is None
    assert decide(settings, cluster, NOON_MS + 10 * MINUTE_MS) is not None


@pytest.mark.parametrize("wanted", [True, False], ids=["skewed still", "even by now"])
def test_a_plan_that_waits_for_its_hours_waits_on_while_a_partition_is_offline(
    settings: Settings, wanted: bool
) -> None:
    own = with_control(settings, maintenance_windows=["22:00-23:00"])
    cluster = crowded()
    with_isr(cluster, ())
    assert decide(own, cluster, NOON_MS) is None
    assert last(own)["reason"] == "maintenance_window", "outside its hours a plan waits anyway"
    waiting = last(own)["plan_id"]
    assert decide(own, cluster, EVENING_MS, windows=3 if wanted else 1) is None
    assert last(own)["reason"] == "unhealthy"
    assert "1 partition is offline, first t-5" in last(own)["detail"]
    assert json.loads(last(own)["state_json"])["waiting"]["plan_id"] == waiting
    with_isr(cluster, (3, 1))
    due = decide(own, cluster, EVENING_MS + MINUTE_MS)
    assert due is not None
    assert due.plan.plan_id == waiting


def test_what_failed_brokers_held_does_not_hold_back_the_plan_that_replaces_them(settings: Settings) -> None:
    """t-9 is offline, though it has a replica on a broker that is alive: it was not in sync."""
    cluster = skewed()
    torn = {("t", 9): LivePartition((4, 1), 4, (4,)), ("t", 10): LivePartition((4,), 4, (4,))}
    cluster.live = replace(cluster.live, partitions={**cluster.live.partitions, **torn})
    without(cluster, 4)
    assert decide(settings, cluster, NOON_MS) is None
    assert after_the_grace_time(settings, cluster, since_ms=NOON_MS) is not None
    assert last(settings)["reason"] == "broker_failed"


def test_of_many_partitions_that_lag_those_that_do_so_for_longest_are_kept() -> None:
    rows = {("t", number): LivePartition((1, 2), 1, (1,)) for number in range(1_000)}
    first = LiveCluster("c", {1: None, 2: None}, {key: row for key, row in rows.items() if key[1] >= 990})
    policy = TriggerPolicy()
    before = with_lagging(policy, TriggerState(evaluated_ms=1_000), first, 1_000)
    state = with_lagging(policy, before, replace(first, partitions=rows), 2_000)
    assert len(lagging_since(state)) == LAGGING_KEPT_MAX
    assert [row for row in lagging_since(state) if row[2] == 1_000] == [("t", n, 1_000) for n in range(990, 1_000)]
    shown = obstacle(state, first, 2_000, relieves=False)
    assert shown is not None
    assert shown.startswith("10 partitions are under-replicated, first t-990, ")
