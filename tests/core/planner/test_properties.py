"""Any cluster, any policy: hard rules hold, promises are kept, the same input gives the same bytes."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assignor_core.load import NO_BROKER, cluster_arrays
from assignor_core.model import Broker, ClusterState, Partition, PartitionLoad
from assignor_core.plan import plan_to_json
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.bounds import lower_bounds
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import problem_of
from assignor_core.resources import LOADS, PLANNED
from assignor_core.skew import measure_skew
from tests.core.planner.cases import clusters, sets_of, with_room
from tests.core.planner.invariants import bytes_out_by_broker, check_plan

LEADER_BAND_MORE = 0.02
"""Leader bytes in may be so much further from even, by policy, before it counts as worse."""

TOPICS = frozenset({"t0", "t1"})
RULES: dict[str, st.SearchStrategy[Any]] = {
    "leaders_only": st.just(True),
    "movements_max": st.integers(0, 5),
    "bytes_max": st.integers(0, 3000).map(float),
    "inflow_max": st.integers(0, 2000).map(float),
    "excluded_topics": st.just(frozenset({"t0"})),
    "only_topics": st.just(frozenset({"t1", "t2"})),
    "excluded_brokers": st.just(frozenset({0})),
    "only_brokers": st.just(frozenset({10})),
    "pinned_partitions": st.just(frozenset((f"t{number % 3}", number) for number in range(0, 25, 2))),
    "drain": st.sampled_from((frozenset({0}), frozenset({10}))),
    "wave_movements_max": st.sampled_from((1, 3)),
    "keep_racks": st.just(True),
    "leader_racks": st.sampled_from((("r0",), ("r1", "r0"), ("nowhere",))).map(lambda racks: ((TOPICS, racks),)),
    "spread_topics": st.just(TOPICS),
    "leaders_min": st.just(((frozenset({"t0"}), 2),)),
    "replicas_max": st.integers(1, 12),
    "headroom": st.just(0.2),
    "failover_headroom": st.sampled_from(("broker", "rack")),
}
"""Limits and rules that a policy may have besides its band and its sets of brokers."""


@st.composite
def planning(draw: st.DrawFn) -> tuple[ClusterState, PlannerPolicy]:
    """Any cluster, and a policy with some rules."""
    state = draw(clusters(reads=True))
    rules = {name: draw(RULES[name]) for name in sorted(draw(st.sets(st.sampled_from(sorted(RULES)), max_size=4)))}
    if "failover_headroom" in rules:
        state = with_room(state, draw(st.sampled_from((0.8, 1.1, 1.5))))
    sets = draw(st.just(()) | sets_of(state))
    return state, PlannerPolicy(band=draw(st.sampled_from((0.0, 0.03, 0.1))), broker_sets=sets, **rules)


EMPTIED_WITH_COUNTS_APART = ClusterState(
    "any",
    0,
    (Broker(0), Broker(10)),
    tuple(Partition(f"t{n % 3}", n, (0 if n < 3 else 10,), PartitionLoad(0.0, 0.0, 0.0)) for n in range(5)),
)
"""After the first of two waves one broker has four of five replicas; what is emptied doesn't count at the end."""


@example((EMPTIED_WITH_COUNTS_APART, PlannerPolicy(band=0.0, drain=frozenset({10}), wave_movements_max=1)))
@given(planning())
@settings(max_examples=160, deadline=None)
def test_hard_rules_always_hold_and_loads_are_those_that_replicas_serve(
    asked: tuple[ClusterState, PlannerPolicy],
) -> None:
    plan = propose(*asked)
    after = check_plan(*asked, plan)
    assert plan.loads_after["bytes_out"] == pytest.approx(bytes_out_by_broker(after), rel=1e-5, abs=1e-6)


@pytest.mark.long
@given(planning())
@settings(max_examples=40, deadline=None)
def test_the_same_input_gives_the_same_bytes(asked: tuple[ClusterState, PlannerPolicy]) -> None:
    first, second = (json.dumps(plan_to_json(propose(*asked))) for _ in range(2))
    assert first == second


@pytest.mark.long
@given(clusters(), st.integers(2, 4))
@settings(max_examples=15, deadline=None)
def test_a_partition_of_unknown_load_is_one_without_load_that_is_pinned(cluster: ClusterState, step: int) -> None:
    no_load = PartitionLoad(0.0, 0.0, 0.0)
    chosen = cluster.partitions[::step]
    unknown, pinned = (
        replace(
            cluster,
            partitions=tuple(
                replace(row, load=no_load, is_load_known=known) if row in chosen else row for row in cluster.partitions
            ),
        )
        for known in (False, True)
    )
    keys = frozenset((row.topic, row.partition) for row in chosen)
    assert propose(unknown).movements == propose(pinned, PlannerPolicy(pinned_partitions=keys)).movements


@pytest.mark.long
@given(clusters(all_alive=True))
@settings(max_examples=15, deadline=None)
def test_the_worst_broker_is_never_worse_off_for_balance(cluster: ClusterState) -> None:
    plan = propose(cluster)
    before, after = measure_skew(cluster), measure_skew(check_plan(cluster, PlannerPolicy(), plan))
    if not any(movement.reason.startswith("spreads") for movement in plan.movements):
        worst_before = max(before[name].max_over_mean for name in LOADS)
        assert max(after[name].max_over_mean for name in LOADS) <= max(worst_before + LEADER_BAND_MORE, 1.05)


@pytest.mark.long
@given(st.integers(0, 2**32 - 1), st.sampled_from((3.0, 0.1, 1e6 / 7)))
@settings(max_examples=8, deadline=None)
def test_scaling_all_loads_changes_nothing(seed: int, factor: float) -> None:
    """Loads of 1 to 4 units make ties everywhere, which figures that differ in the last bit would break another way."""
    random = np.random.default_rng(seed)
    figures = random.integers(1, 5, size=(40, 3))
    replicas = [tuple(random.permutation(7)[:3].tolist()) for _ in figures]
    brokers = tuple(Broker(broker, f"r{broker % 3}") for broker in range(7))

    def scaled(by: float) -> ClusterState:
        loads = [PartitionLoad(*row) for row in (by * figures).tolist()]
        placed = enumerate(zip(replicas, loads, strict=True))
        return ClusterState("c", 0, brokers, tuple(Partition("t", number, *of) for number, of in placed))

    def moved(by: float) -> list[tuple[int, tuple[int, ...], int]]:
        return [
            (movement.partition, movement.new_replicas, movement.wave) for movement in propose(scaled(by)).movements
        ]

    assert moved(factor) == moved(1.0)


@pytest.mark.long
@given(clusters())
@settings(max_examples=60, deadline=None)
def test_crowded_is_what_alive_brokers_could_spread_better(cluster: ClusterState) -> None:
    arrays = cluster_arrays(cluster)
    placement = Placement(arrays)
    crowded = problem_of(arrays, PlannerPolicy(), placement).crowded(placement.replicas)
    alive = arrays.racks[arrays.alive].tolist()

    def squares(racks: Iterable[int]) -> int:
        return sum(count * count for count in Counter(racks).values())

    for row, is_crowded in zip(arrays.replicas.tolist(), crowded.tolist(), strict=True):
        held = [int(arrays.racks[broker]) for broker in row if broker != NO_BROKER]
        assert is_crowded == any(squares(held) > squares(others) for others in combinations(alive, len(held)))


@pytest.mark.long
@given(clusters(all_alive=True), st.data())
@settings(max_examples=15, deadline=None)
def test_no_placement_beats_the_lower_bound(cluster: ClusterState, data: st.DataObject) -> None:
    """Any placement that spreads racks as evenly as possible: here the planner's own with exchanged leaders."""
    policy = PlannerPolicy(band=data.draw(st.sampled_from((0.0, 0.2))))
    plan = propose(cluster, policy)
    arrays = cluster_arrays(cluster)
    placement = Placement(arrays)
    bounds = lower_bounds(arrays, placement, problem_of(arrays, policy, placement).share, crowded=False)
    if plan.feasible:
        for name in PLANNED:
            assert plan.skew_after[name]["max_over_mean"] >= bounds[name] - 1e-9
