"""The load-aware strategy: its quality as numbers."""

import math
import random

import pytest

from assignor_core.assignors import GroupSpec, MemberSpec, assign
from assignor_core.assignors.invariants import violations
from assignor_core.assignors.load_figures import load_figures


def zipf(partitions: int, exponent: float, seed: int) -> list[float]:
    weights = [1000.0 / rank**exponent for rank in range(1, partitions + 1)]
    random.Random(seed).shuffle(weights)
    return weights


def loads(spec: GroupSpec, strategy: str) -> dict[str, float]:
    result = assign(strategy, spec)
    assert violations(spec, result, cooperative=strategy.startswith("cooperative")) == []
    return {
        member_id: sum(spec.partition_weights[topic][partition] for topic, partition in partitions)
        for member_id, partitions in result.assignment.items()
    }


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("exponent", [0.6, 0.9, 1.1])
def test_the_heaviest_member_is_near_the_mean_or_at_the_heaviest_partition(seed: int, exponent: float) -> None:
    weights = zipf(200, exponent, seed)
    spec = GroupSpec({"t": 200}, {f"c{n}": MemberSpec(["t"]) for n in range(12)}, partition_weights={"t": weights})
    heaviest, mean = max(loads(spec, "load-aware").values()), sum(weights) / 12
    assert heaviest <= max(1.05 * mean, max(weights)) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("exponent", "moved_per_least_max"), [(0.5, 1.6), (0.8, 1.3), (1.0, 1.1), (1.2, 1.3)])
def test_hardly_more_moves_than_must_when_a_skewed_group_is_put_right(
    seed: int, exponent: float, moved_per_least_max: float
) -> None:
    """Least: what members have above 1.05 of the mean, or beside a partition that is heavier than that alone."""
    weights = zipf(200, exponent, seed)
    names = [f"c{n}" for n in range(10)]
    unweighted = GroupSpec({"t": 200}, {name: MemberSpec(["t"]) for name in names})
    owned = assign("sticky", unweighted).assignment
    spec = GroupSpec(
        {"t": 200}, {name: MemberSpec(["t"], owned[name], 1) for name in names}, partition_weights={"t": weights}
    )
    result = assign("load-aware", spec)
    before = {name: set(owned[name]) for name in names}
    moved = sum(weights[tp[1]] for name in names for tp in result.assignment[name] if tp not in before[name])
    held = {name: [weights[p] for _, p in owned[name]] for name in names}
    enough = 1.05 * sum(weights) / len(names)
    least = sum(max(0.0, sum(own) - max(enough, *own)) for own in held.values())
    after = max(sum(weights[p] for _, p in result.assignment[name]) for name in names)
    assert max(map(sum, held.values())) > 1.2 * enough, "by count it is skewed"
    assert after <= max(enough, max(weights)) * (1 + 1e-9)
    assert moved <= moved_per_least_max * least


def test_a_partition_that_fills_any_member_stays_where_it_is_alone() -> None:
    weights = {"t": [50.0, 2.0, 2.0, 2.0]}
    members = {"a": MemberSpec(["t"]), "b": MemberSpec(["t"], [("t", 0), ("t", 1)], 1)}
    result = assign("load-aware", GroupSpec({"t": 4}, members, partition_weights=weights))
    assert list(result.assignment["b"]) == [("t", 0)]


@pytest.mark.parametrize("seed", range(5))
def test_a_member_of_twice_the_capacity_gets_twice_the_load(seed: int) -> None:
    weights = zipf(300, 0.5, seed)
    members = {"big": MemberSpec(["t"], capacity=2.0), "c1": MemberSpec(["t"]), "c2": MemberSpec(["t"])}
    spec = GroupSpec({"t": 300}, members, partition_weights={"t": weights})
    assert loads(spec, "load-aware")["big"] == pytest.approx(sum(weights) / 2, rel=0.05)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("strategy", ["load-aware", "cooperative-load-aware"])
def test_figures_are_those_of_a_recount(seed: int, strategy: str) -> None:
    weights = zipf(60, 0.9, seed)
    names = [f"c{n}" for n in range(6)]
    owned = assign("sticky", GroupSpec({"t": 60}, {name: MemberSpec(["t"]) for name in names})).assignment
    members = {name: MemberSpec(["t"], owned[name], 1) for name in names}
    spec = GroupSpec({"t": 60}, members, partition_weights={"t": weights})
    result = assign(strategy, spec)
    figures = load_figures(spec, result)
    mean = sum(weights) / len(names)
    held = {name: {p for _, p in owned[name]} for name in names}
    after = {name: {p for _, p in result.assignment[name]} for name in names}
    assert figures.heaviest_before == pytest.approx(max(sum(weights[p] for p in own) for own in held.values()) / mean)
    assert figures.heaviest_after == pytest.approx(max(sum(weights[p] for p in own) for own in after.values()) / mean)
    assert figures.bound == pytest.approx(max(weights) / mean)
    assert figures.moved_weight == pytest.approx(sum(weights[p] for name in names for p in held[name] - after[name]))
    assert figures.r_score == pytest.approx(figures.moved_weight / mean)
    assert 0 < figures.moved_weight_least <= figures.moved_weight


def test_unknown_weights_count_as_the_mean_of_the_known() -> None:
    members = {"a": MemberSpec(["t"]), "b": MemberSpec(["t"])}
    unknown = GroupSpec({"t": 4}, members, partition_weights={"t": [5.0, math.nan, 1.0]})
    mean = GroupSpec({"t": 4}, members, partition_weights={"t": [5.0, 3.0, 1.0, 3.0]})
    assert assign("load-aware", unknown) == assign("load-aware", mean)


def test_equal_weights_are_the_sticky_assignment() -> None:
    members = {"a": MemberSpec(["t", "u"], [("t", 1)], 3), "b": MemberSpec(["t", "u"])}
    for weights in ({}, {"t": [5.0] * 7, "u": [5.0] * 2}):
        spec = GroupSpec({"t": 7, "u": 2}, members, partition_weights=weights)
        assert assign("load-aware", spec) == assign("sticky", spec)
        assert assign("cooperative-load-aware", spec) == assign("cooperative-sticky", spec)


@pytest.mark.parametrize("seed", range(20))
def test_members_that_read_different_topics(seed: int) -> None:
    draws = random.Random(seed)
    topics = {f"t{n}": draws.randint(1, 20) for n in range(5)}
    members = {f"c{n}": MemberSpec(draws.sample(sorted(topics), draws.randint(0, 5))) for n in range(7)}
    weights = {topic: [draws.random() for _ in range(count)] for topic, count in topics.items()}
    loads(GroupSpec(topics, members, partition_weights=weights), "load-aware")
    loads(GroupSpec(topics, members, partition_weights=weights), "cooperative-load-aware")
