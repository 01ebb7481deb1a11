"""A few small shapes of `make bench-planner ARGS="--shapes 200"`: balance, and the same plan each time."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from assignor_core.model import Broker, BrokerState, ClusterState, Partition, PartitionLoad
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy, propose
from tests.benchmarks.bench_shapes import OVER_MAX, over_band_or_bound
from tests.benchmarks.models import Kind, generate
from tests.benchmarks.shapes import shape, variants
from tests.core.planner.invariants import check_plan

KINDS = [(name, seed, kind) for seed in (2, 29) for name, kind in variants(seed).items()]
SEED_OF_FAST = 29
"""The seed of `KINDS` that `make test-fast` tries, too."""
SMALL = [
    (75, "plain"),  # a rack with fewer brokers than replicas
    (75, "dead"),
    # A partition that is heavier than what one of few brokers should carry.
    pytest.param(11, "plain", marks=pytest.mark.long),
    # Only several changes at once bring it within its band.
    pytest.param(173, "to empty", marks=pytest.mark.long),
    # Heavy partitions need other seats.
    pytest.param(129, "unequal", marks=pytest.mark.long),
    # All is within band and bound, and what would still move copies more than it relieves.
    pytest.param(18, "dead", marks=pytest.mark.long),
    # Racks have to sort what they must hold by themselves.
    pytest.param(19, "unequal disks", marks=pytest.mark.long),
    # Many small changes at random, or of heavy partitions alone.
    pytest.param(49, "unequal disks", marks=pytest.mark.long),
    # Another plan would make even what is within the band.
    pytest.param(157, "plain", marks=pytest.mark.long),
    (142, "plain"),  # its broker has no room for what the others can't hold: a bound of two loads
    # Loads that only exchanges of like rates and unlike sizes make even.
    pytest.param(36, "unequal disks", marks=pytest.mark.long),
]
UNEQUAL_DISKS = "unequal disks"


@cache
def planned(kind: Kind, seed: int) -> tuple[ClusterState, Plan]:
    """A model and its plan by the default policy: several tests ask about the same."""
    state = generate(kind, seed)
    return state, propose(state)


@pytest.mark.parametrize(
    ("name", "seed", "kind"),
    [
        pytest.param(name, seed, kind, id=f"{name} {seed}", marks=pytest.mark.long if seed != SEED_OF_FAST else ())
        for name, seed, kind in KINDS
    ],
)
def test_variants_of_a_shape_end_within_their_band(name: str, seed: int, kind: Kind) -> None:
    policy = PlannerPolicy()
    state, plan = planned(kind, seed)
    after = check_plan(state, policy, plan)
    # With disks that differ and loads that go together, a few brokers may have no way into the band.
    if name != UNEQUAL_DISKS:
        assert over_band_or_bound(plan, policy) <= OVER_MAX
        assert propose(after, policy).movements == ()


@pytest.mark.long
@pytest.mark.parametrize(("seed", "name"), SMALL)
def test_small_clusters_that_are_hard_to_balance_end_within_their_band_or_at_a_bound(seed: int, name: str) -> None:
    kind = shape(seed) if name == "plain" else variants(seed)[name]
    state, plan = planned(kind, seed)
    assert over_band_or_bound(plan, PlannerPolicy()) <= OVER_MAX
    after = check_plan(state, PlannerPolicy(), plan)
    assert propose(after).movements == ()


@pytest.mark.parametrize("seed", [*(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 25)), 29])
def test_a_shape_in_another_order_gives_the_same_plan(seed: int) -> None:
    for kind in variants(seed).values():
        state, plan = planned(kind, seed)
        shuffled = replace(state, brokers=state.brokers[::-1], partitions=state.partitions[::-1])
        assert propose(shuffled).plan_id == plan.plan_id


def test_shapes_differ_in_all_that_a_cluster_can_differ_in() -> None:
    kinds = [kind for seed in range(60) for kind in (shape(seed), *variants(seed).values())]
    assert {kind.replication_factor for kind in kinds} == {1, 2, 3, 4, 5}
    assert min(kind.brokers for kind in kinds) == 3
    assert max(kind.brokers for kind in kinds) > 200
    for field in ("brokers_new", "brokers_draining", "brokers_dead", "twice_every", "disk_twice_every"):
        assert any(getattr(kind, field) for kind in kinds)
    assert any(kind.hot_partition_shares for kind in kinds)
    assert any(kind.rack_sigma for kind in kinds)


def test_a_model_of_a_shape_has_the_brokers_that_its_kind_names() -> None:
    kind = replace(shape(2), brokers_new=5, brokers_draining=1, brokers_dead=1)
    states = [broker.state for broker in generate(kind, 2).brokers]
    assert len(states) == kind.brokers + 5
    assert (states.count(BrokerState.DRAINING), states.count(BrokerState.DEAD)) == (1, 1)


BAND = 0.03


def with_empty_brokers(full: int, empty: int, partitions: int, factor: int, spread: float) -> ClusterState:
    """`full` brokers share partitions at random, whose loads are lognormal; the others are new."""
    random = np.random.default_rng(1)
    rows = []
    for number, load in enumerate(np.exp(random.normal(0.0, spread, partitions)).tolist()):
        replicas = tuple(random.choice(full, factor, replace=False).tolist())
        rows.append(Partition("t", number, replicas, PartitionLoad(1e3 * load, 2e3 * load, 1e6 * load)))
    return ClusterState("c", 0, tuple(Broker(number) for number in range(full + empty)), tuple(rows))


@pytest.mark.long
@pytest.mark.parametrize(
    ("full", "empty", "partitions", "factor", "spread"),
    [(3, 3, 2_000, 3, 0.3), (6, 2, 4_000, 3, 0.3), (6, 2, 3_000, 3, 0.0), (3, 9, 5_000, 1, 0.0)],
)
def test_brokers_that_are_empty_get_their_share(
    full: int, empty: int, partitions: int, factor: int, spread: float
) -> None:
    cluster = with_empty_brokers(full, empty, partitions, factor, spread)
    plan = propose(cluster, PlannerPolicy(band=BAND))
    for resource in ("bytes_in", "disk"):
        assert plan.skew_after[resource]["max_over_mean"] <= 1.0 + BAND + 1e-3
    assert plan.diagnosis == ()
