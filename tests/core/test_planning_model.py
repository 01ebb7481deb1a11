"""The model that a plan rests on, built of one look at three brokers, and what is said of it; by worked examples."""

from dataclasses import replace
from typing import Any

import pytest

from assignor_core.disks import LogDirDescription
from assignor_core.errors import LoadsDisagree, NothingToPlanOn
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition
from assignor_core.live_plans.planning import LeaderLoads, Model, build_model, propose_on
from assignor_core.live_plans.tiered_logs import local_bytes_note
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.plan import TAKE_NONE, Movement, Plan
from assignor_core.planner import PlannerPolicy
from assignor_core.planner.asked import plan_as_asked

T0, T1, T2 = (("t", number) for number in range(3))


def at(*replicas: int, **changed: Any) -> LivePartition:
    return replace(LivePartition(replicas, replicas[0], replicas), **changed)


LIVE = LiveCluster("c", {1: "a", 2: "b", 3: None}, {T0: at(1, 2), T1: at(2, 3)})
EVEN = dict.fromkeys((1, 2, 3), 1e6)


def window(start_ms: int, loads: dict[int, float], reported: dict[int, float]) -> ClosedWindow:
    return ClosedWindow(start_ms, start_ms + 10, frozenset(loads), {"bytes_in": loads}, reported)


WINDOWS = (window(0, {1: 1e6}, EVEN), window(10, EVEN, EVEN), window(20, {1: 1e6, 2: 1e6}, EVEN))
LED = dict.fromkeys((0, 10, 20), EVEN)
RATES = {T0: (4.0, 1.0), T1: (2.0, None)}
LOG_DIRS = {
    1: [LogDirDescription("/d", 1000, 600, {T0: 30})],
    2: [LogDirDescription("/d", 1000, 500, {T0: 40, T1: 7})],
    3: [LogDirDescription("/d", 1000, 400, {T1: 5})],
}


def built(live: LiveCluster = LIVE, **changed: Any) -> Model:
    given: dict[str, Any] = {
        "log_dirs": LOG_DIRS,
        "measured": LeaderLoads(RATES, LED),
        "windows": WINDOWS,
        "cluster_name": "main",
        "capacities": {1: Capacity(bytes_in_per_sec=9.0)},
        "disk_reserve": 0.1,
        "drained": frozenset(),
        "disagreement_max": 0.2,
        "now_ms": 35,
    }
    return build_model(live, **(given | changed))


def test_the_model_is_that_of_the_cluster_with_what_was_measured() -> None:
    model = built()
    assert model.cluster == ClusterState(
        "main",
        35,
        (
            Broker(1, "a", capacity=Capacity(bytes_in_per_sec=9.0), disk_room_bytes=500.0),
            Broker(2, "b", disk_room_bytes=400.0),
            Broker(3, None, disk_room_bytes=300.0),
        ),
        (
            Partition("t", 0, (1, 2), PartitionLoad(4.0, 1.0, 40.0), 2),
            Partition("t", 1, (2, 3), PartitionLoad(2.0, 0.0, 7.0), 2),
        ),
    )
    assert (model.unknown, model.unknown_disks, model.leaving) == (frozenset(), frozenset(), frozenset())
    assert model.unreported == {3}, "in the newest window"
    assert (model.span_ms, model.disagreement_max) == ((0, 30), 0.2)
    assert model.disagreement == {1: 0.0, 2: 0.0, 3: 0.0}
    assert built(measured=LeaderLoads(RATES, {})).disagreement == {1: 1.0, 2: 1.0, 3: 1.0}


def test_a_partition_counts_with_its_target_and_replicas_in_sync_or_not_at_all() -> None:
    moving = at(3, 1, 2, leader=1, isr=(1, 2), adding_replicas=(3,), removing_replicas=(2,))
    live = replace(
        LIVE, partitions={T0: moving, T1: at(2, 3, leader=NO_LEADER, isr=()), T2: at(4, 2, leader=2, isr=(2,))}
    )
    model = built(live)
    assert [(row.partition, row.replicas, row.in_sync) for row in model.cluster.partitions] == [
        (0, (3, 1), 1),
        (2, (4, 2), 1),
    ]
    assert [(row.broker_id, row.state) for row in model.cluster.brokers] == [
        (1, BrokerState.ALIVE), (2, BrokerState.ALIVE), (3, BrokerState.ALIVE), (4, BrokerState.DEAD)
    ]  # fmt: skip
    assert model.unknown == {T2}, "what has no leader can't be unknown"
    assert model.cluster.partitions[1].load == PartitionLoad(4.0, 1.0, 0.0), "the mean of its topic, and no size"
    # A broker that gets its first replica is none that must report.
    assert built(replace(LIVE, partitions={T0: at(1, 2)})).unreported == frozenset()


def test_a_drained_broker_must_end_empty_and_need_not_report() -> None:
    model = built(drained=frozenset({3, 9}))
    assert [row.state for row in model.cluster.brokers] == [BrokerState.ALIVE, BrokerState.ALIVE, BrokerState.DRAINING]
    assert (model.leaving, model.unreported) == (frozenset({3}), frozenset())


def test_a_broker_whose_disks_are_unknown_takes_nothing_unless_its_capacity_bounds_them() -> None:
    hidden = LOG_DIRS | {3: [LogDirDescription("/d")]}
    model = built(log_dirs=hidden)
    assert (model.unknown_disks, model.cluster.brokers[2].disk_room_bytes) == (frozenset({3}), 0.0)
    bounded = built(log_dirs=hidden, capacities={3: Capacity(disk_bytes=1e9)})
    assert (bounded.unknown_disks, bounded.cluster.brokers[2].disk_room_bytes) == (frozenset(), None)
    # A broker that shows them is not unknown for want of a capacity, nor with one.
    assert built(capacities={3: Capacity(disk_bytes=1e9)}).cluster.brokers[2].disk_room_bytes == 300.0


def test_partitions_of_which_nothing_is_known_count_as_the_mean_of_all_or_none() -> None:
    live = replace(LIVE, partitions={**LIVE.partitions, ("u", 0): at(1, 3)})
    assert built(live).cluster.partitions[2].load == PartitionLoad(3.0, 0.5, 0.0)
    nothing = built(live, measured=LeaderLoads({T0: (None, 5.0)}, {}))
    assert [row.load.bytes_in_per_sec for row in nothing.cluster.partitions] == [0.0, 0.0, 0.0]
    assert nothing.unknown == {T0, T1, ("u", 0)}


def planned(model: Model, live: LiveCluster = LIVE, **policy: Any) -> tuple[str, ...]:
    """The lines of the plan's diagnosis."""
    return propose_on(model, live, PlannerPolicy(**policy), elapsed_s=lambda: 0.0).plan.diagnosis


SOUND = replace(built(), unreported=frozenset())


def test_a_plan_names_what_it_rests_on_and_how_long_it_took() -> None:
    clock = iter((5.0, 25.0))
    proposed = propose_on(SOUND, LIVE, PlannerPolicy(), elapsed_s=lambda: next(clock))
    assert (proposed.elapsed_ms, proposed.window_span_ms) == (20_000.0, (0, 30))
    assert proposed.observed is not None
    assert proposed.observed.kafka_cluster_id == "c"
    assert not [line for line in proposed.plan.diagnosis if "unknown" in line or "show" in line or "reports" in line]


def with_unknown(count: int, of: int) -> tuple[Model, LiveCluster]:
    """The model of as many partitions, of which the load of the first ones is unknown."""
    live = replace(LIVE, partitions={("t", number): at(1 + number % 3, 1 + (number + 1) % 3) for number in range(of)})
    rates = {("t", number): (1.0, 1.0) for number in range(count, of)}
    return replace(built(live, measured=LeaderLoads(rates, LED)), unreported=frozenset()), live


@pytest.mark.long
def test_with_too_many_unknown_partitions_there_is_no_plan_for_balance() -> None:
    model, live = with_unknown(2, 20)
    lines = planned(model, live)
    assert any(line.startswith("the load of 2 partitions (first: t-0) is unknown: ") for line in lines)
    too_many, live = with_unknown(3, 20)
    with pytest.raises(NothingToPlanOn, match=r"the load of 3 partitions \(15%\) is unknown in these windows"):
        planned(too_many, live)
    # A plan that only empties brokers is made all the same, but for one that must not be emptied.
    for policy in ({"only_brokers": frozenset({3}), "drain": frozenset({3})}, {"only_brokers": frozenset({3})}):
        if "drain" in policy:
            assert planned(too_many, live, **policy)
        else:
            with pytest.raises(NothingToPlanOn):
                planned(too_many, live, **policy)
    leaving = replace(too_many, cluster=replace(too_many.cluster, brokers=(
        *too_many.cluster.brokers[:2], replace(too_many.cluster.brokers[2], state=BrokerState.DRAINING)
    )))  # fmt: skip
    assert planned(leaving, live, only_brokers=frozenset({3}))
    alone, live = with_unknown(1, 1)
    with pytest.raises(NothingToPlanOn, match="100%"):
        planned(alone, live)


@pytest.mark.long
def test_unknown_partitions_stay_and_silent_brokers_take_nothing() -> None:
    """Broker 3 is empty, and would take half of all."""
    live = replace(LIVE, partitions={("t", number): at(1, 2) for number in range(12)})
    measured = LeaderLoads({("t", number): (1.0, 1.0) for number in range(1, 12)}, LED)
    model = built(live, measured=measured)
    proposed = propose_on(replace(model, unreported=frozenset()), live, PlannerPolicy(), elapsed_s=lambda: 0.0)
    assert any(3 in row.new_replicas for row in proposed.plan.movements)
    assert ("t", 0) not in [row.key for row in proposed.plan.movements]
    silent = replace(model, unreported=frozenset({3}))
    proposed = propose_on(silent, live, PlannerPolicy(), elapsed_s=lambda: 0.0)
    assert not any(3 in row.new_replicas for row in proposed.plan.movements)
    assert f"{TAKE_NONE}, as their load in the newest window is unknown: 3" in proposed.plan.diagnosis
    with pytest.raises(NothingToPlanOn, match="the load of broker 3 is unknown in the newest window"):
        planned(silent, live, add=frozenset({1, 3}))
    both = replace(model, unreported=frozenset({2, 3}))
    with pytest.raises(NothingToPlanOn, match="the load of broker 2 is unknown"):
        planned(both, live, add=frozenset({2, 3}))
    # One that is emptied is not asked for its load.
    drained = propose_on(silent, live, PlannerPolicy(drain=frozenset({3})), elapsed_s=lambda: 0.0).plan.diagnosis
    assert not any("newest window" in line for line in drained)


def test_a_plan_names_how_few_bytes_it_copies_of_tiered_logs() -> None:
    """Broker 3 is emptied: of t-0 and t-1 the disks hold 40 and 7 bytes, remote storage 1000 of t-1."""
    live = replace(LIVE, partitions={T0: at(1, 2), T1: at(2, 3)})
    model = replace(built(live, measured=LeaderLoads(RATES, LED, remote_bytes={T1: 1000.0})), unreported=frozenset())
    proposed = propose_on(model, live, PlannerPolicy(drain=frozenset({3})), elapsed_s=lambda: 0.0)
    (movement,) = [row for row in proposed.plan.movements if row.key == T1]
    assert movement.bytes_to_move == 7.0
    assert proposed.plan.diagnosis[-1] == (
        "1 movement is of a tiered log and copies local bytes only: 7 of 1007 bytes, the rest stays in remote storage"
    )
    plain = replace(built(live, measured=LeaderLoads(RATES, LED)), unreported=frozenset())
    without = propose_on(plain, live, PlannerPolicy(drain=frozenset({3})), elapsed_s=lambda: 0.0)
    assert without.plan.plan_id == proposed.plan.plan_id
    assert not any("tiered" in line for line in without.plan.diagnosis)


def test_a_plan_that_copies_nothing_of_tiered_logs_does_not_name_them() -> None:
    moves = [
        Movement("t", 0, (1, 2), (2, 1), 0.0),
        Movement("u", 0, (1,), (2,), 5.0),
        Movement("v", 0, (1,), (2,), 6.0),
    ]
    assert local_bytes_note(moves, {("t", 0): 9.0, ("u", 0): 0.0}) is None
    assert local_bytes_note(moves, {("u", 0): 4.0, ("v", 0): 4.0}) == (
        "2 movements are of tiered logs and copy local bytes only: 11 of 19 bytes, the rest stays in remote storage"
    )
    twice = Movement("t", 0, (1, 2), (3, 4), 6.0)
    assert local_bytes_note([twice], {("t", 0): 9.0}) == (
        "1 movement is of a tiered log and copies local bytes only: 6 of 24 bytes, the rest stays in remote storage"
    )


def test_what_only_brokers_hold_that_did_not_answer_counts_with_the_mean_size_and_as_unknown() -> None:
    live = replace(LIVE, partitions={**LIVE.partitions, T2: at(3), ("t", 3): at(1, 2)})
    rates = RATES | dict.fromkeys((T2, ("t", 3)), (1.0, 1.0))
    model = built(live, log_dirs={broker: LOG_DIRS[broker] for broker in (1, 2)}, measured=LeaderLoads(rates, LED))
    assert (model.silent, model.unknown_disks, model.unknown) == (frozenset({3}), frozenset(), frozenset({T2}))
    assert [row.load.disk_bytes for row in model.cluster.partitions] == [40.0, 7.0, pytest.approx(47 / 3), 0.0]
    assert model.cluster.brokers[2].disk_room_bytes == 0.0
    assert built(live, log_dirs={}, drained=frozenset({3})).silent == {1, 2}


def test_brokers_that_did_not_answer_take_nothing_and_are_named() -> None:
    silent = replace(SOUND, silent=frozenset({2, 3}))
    assert f"{TAKE_NONE}, as they did not answer when asked for their log dirs: 2, 3" in planned(silent)
    assert not any("did not answer" in line for line in planned(SOUND, add=frozenset({3})))
    with pytest.raises(NothingToPlanOn, match=r"^broker 2 did not answer a request for its log dirs"):
        planned(silent, add=frozenset({1, 2, 3}))


@pytest.mark.long
def test_brokers_whose_disks_are_unknown_are_named() -> None:
    line = (
        f"{TAKE_NONE}, as their log dirs do not show what is free: 2, 3; planner.capacities may give their disk_bytes"
    )
    assert line in planned(replace(SOUND, unknown_disks=frozenset({3, 2})))
    many = planned(replace(SOUND, unknown_disks=frozenset(range(1, 8))))
    assert any("free: 1, 2, 3, 4, 5 and 2 more; " in line for line in many)


@pytest.mark.parametrize(
    ("disagreement", "line"),
    [
        ({1: 0.1, 2: -0.2, 3: 0.1}, None),
        (
            {1: 0.25, 2: -0.15},
            "broker 1 reports 0.25 of a broker's mean bytes in more than its partitions add up to, 0.2 ",
        ),
        (
            {1: 0.1, 2: -0.5, 3: 0.4},
            "broker 2 reports 0.50 of a broker's mean bytes in less than its partitions add up",
        ),
        ({}, None),
    ],
)
def test_where_brokers_and_partitions_disagree_there_is_no_plan_for_balance(
    disagreement: dict[int, float], line: str | None
) -> None:
    model = replace(SOUND, disagreement=disagreement)
    relief = planned(model, only_brokers=frozenset({3}), drain=frozenset({3}))
    if line is None:
        assert not any("reports" in row for row in (*planned(model), *relief))
        return
    with pytest.raises(LoadsDisagree, match=f"^{line}"):
        planned(model)
    assert any(row.startswith(line) for row in relief)


HIDDEN: dict[int, tuple[LogDirDescription, ...]] = {1: (), 2: (), 3: ()}
"""What a user without DESCRIBE on the cluster sees of log dirs."""


def test_where_no_broker_shows_its_log_dirs_leaders_alone_change_and_disk_is_unknown() -> None:
    crowd = {("t", number): at(1, 2 + number % 2) for number in range(6)}
    live = LiveCluster("c", LIVE.broker_racks, crowd, reassignments_hidden=True)
    loads = LeaderLoads(dict.fromkeys(crowd, (2.0, 1.0)), LED)
    by_hand = dict.fromkeys((1, 2, 3), Capacity(disk_bytes=1e12))
    model = built(live, log_dirs=HIDDEN, measured=loads, capacities=by_hand)
    assert model.sizes_hidden
    assert not model.unknown
    assert {row.disk_room_bytes for row in model.cluster.brokers} == {0.0}
    plan = propose_on(model, live, PlannerPolicy(), elapsed_s=lambda: 0.0).plan
    assert plan.movements
    assert plan.bytes_to_move == 0
    assert all(set(row.new_replicas) == set(row.old_replicas) for row in plan.movements)
    for figures in (plan.skew_before, plan.skew_after, plan.lower_bound):
        assert "bytes_in" in figures
        assert "disk" not in figures
    assert f"{TAKE_NONE}, as no broker shows its log dirs: all of them; sizes are unknown, so leaders alone change" in (
        plan.diagnosis
    )
    assert any(line.startswith("whether partitions are being reassigned is unknown") for line in plan.diagnosis)


def test_where_no_broker_shows_its_log_dirs_no_broker_is_emptied_or_filled() -> None:
    model = built(log_dirs=HIDDEN)
    for policy in (PlannerPolicy(drain=frozenset({1})), PlannerPolicy(add=frozenset({1}))):
        with pytest.raises(NothingToPlanOn, match="replicas of or for broker 1 would have to be copied"):
            propose_on(model, LIVE, policy, elapsed_s=lambda: 0.0)
    with pytest.raises(NothingToPlanOn, match="broker 2 would have to be copied"):
        propose_on(built(log_dirs=HIDDEN, drained=frozenset({2})), LIVE, PlannerPolicy(), elapsed_s=lambda: 0.0)


def test_one_broker_that_hides_its_log_dirs_hides_no_sizes_of_the_others() -> None:
    model = built(log_dirs=LOG_DIRS | {3: ()})
    assert not model.sizes_hidden
    assert model.unknown_disks == {3}


def asked(cluster: ClusterState, policy: PlannerPolicy) -> Plan:
    """The plan that brings the first partition to broker 3, and nothing else."""
    first = cluster.partitions[0]
    return plan_as_asked(cluster, policy, {(first.topic, first.partition): (3, *first.replicas)}, "asked for")


def test_what_somebody_asks_for_is_planned_whatever_is_known_of_the_load() -> None:
    model = replace(built(), unreported=frozenset({3}), disagreement={1: 0.9}, unknown=frozenset(LIVE.partitions))
    with pytest.raises(NothingToPlanOn):
        propose_on(model, LIVE, PlannerPolicy(), elapsed_s=lambda: 0.0)
    plan = propose_on(model, LIVE, PlannerPolicy(), elapsed_s=lambda: 0.0, asked=asked).plan
    assert [row.reason for row in plan.movements] == ["asked for"]
    assert plan.problems == ("puts replicas on brokers that are excluded: 3",)
    assert not any(line.startswith(TAKE_NONE) for line in plan.diagnosis)
    assert any(line.startswith("broker 1 reports") for line in plan.diagnosis)
    assert plan.lower_bound == {}


def test_no_replica_is_added_where_nobody_knows_what_it_holds() -> None:
    with pytest.raises(NothingToPlanOn, match="no broker shows its log dirs"):
        propose_on(built(log_dirs=HIDDEN), LIVE, PlannerPolicy(), elapsed_s=lambda: 0.0, asked=asked)
