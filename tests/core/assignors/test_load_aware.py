"""The load-aware strategy: its quality as numbers."""

import math
import random
from dataclasses import astuple, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assignor_core.assignors import GroupSpec, MemberSpec, TopicPartition, assign
from assignor_core.assignors.load_figures import load_figures
from tests.core.assignors.invariants import violations
from tests.costs import grows_at_most

ROUNDS_MAX = 10


def rebalanced(spec: GroupSpec, rounds: int) -> list[int]:
    """How many partitions were revoked in each of so many cooperative rounds, each on the result of the one before.

    Rounds after two that changed nothing are not played: they would be asked the same.
    """
    revoked: list[int] = []
    rounds_at_rest = 0
    for generation in range(1, rounds + 1):
        result = assign("cooperative-load-aware", spec)
        assert violations(spec, result, cooperative=True) == []
        owned = {member_id: set(member.owned_partitions) for member_id, member in spec.members.items()}
        revoked.append(sum(len(owned[member_id] - set(result.assignment[member_id])) for member_id in owned))
        members = {
            member_id: replace(member, owned_partitions=result.assignment[member_id], generation_id=generation)
            for member_id, member in spec.members.items()
        }
        at_rest = all(list(spec.members[name].owned_partitions) == list(result.assignment[name]) for name in members)
        rounds_at_rest = rounds_at_rest + 1 if at_rest else 0
        if rounds_at_rest == 2:
            break
        spec = replace(spec, members=members)
    return revoked + [0] * (rounds - len(revoked))


def random_group(seed: int) -> GroupSpec:
    """Any subscriptions, capacities and weights; idle members; owned as if dealt by chance."""
    draws = random.Random(seed)
    topics = {f"t{n}": draws.randint(1, draws.choice((3, 12, 30))) for n in range(draws.randint(1, 5))}
    members = {}
    for n in range(draws.randint(1, 10)):
        read = draws.choice(([name for i, name in enumerate(topics) if i % 2 == n % 2], sorted(topics)))
        read = draws.sample(read, draws.randint(0, len(read)))
        members[f"c{n}"] = MemberSpec(read, capacity=draws.choice((1.0, 1.0, 2.0, 0.3)))
    owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    for topic, count in topics.items():
        readers = [member_id for member_id, member in members.items() if topic in member.topics]
        for partition in range(count if readers else 0):
            owned[draws.choice(readers)].append((topic, partition))
    weights = {
        topic: [draws.choice((draws.random(), draws.paretovariate(1.0), float(draws.randint(0, 5)))) for _ in range(n)]
        for topic, n in topics.items()
    }
    members = {name: replace(member, owned_partitions=owned[name]) for name, member in members.items()}
    return GroupSpec(topics, members, partition_weights=weights)


@pytest.mark.long
@given(st.integers(0, 2**32 - 1))
@example(81)
@settings(max_examples=40, deadline=None)
def test_any_group_comes_to_rest_and_stays(seed: int) -> None:
    revoked = rebalanced(random_group(seed), ROUNDS_MAX + 2)
    assert not any(revoked[ROUNDS_MAX:])


def test_readers_of_another_topic_take_no_part_in_a_fair_share() -> None:
    """With the share of all three members the two readers of t were above it for good, and t moved for ever."""
    weights = {"t": [3.0, 8.0, 3.0, 9.0, 1.0, 4.0, 3.0, 2.0, 3.0, 2.0, 7.0, 1.0], "u": [1.0]}
    members = {"m0": MemberSpec(["t"]), "m1": MemberSpec(["t"]), "x": MemberSpec(["u"])}
    spec = GroupSpec({"t": 12, "u": 1}, members, partition_weights=weights)
    assert rebalanced(spec, ROUNDS_MAX) == [0] * ROUNDS_MAX
    owned = assign("load-aware", spec).assignment
    spec = replace(spec, members={name: replace(members[name], owned_partitions=owned[name]) for name in members})
    figures = load_figures(spec, assign("load-aware", spec))
    assert (figures.moved_weight, figures.moved_weight_least, figures.heaviest_after) == (0.0, 0.0, 1.0)


def test_a_topic_that_can_be_evened_out_is_beside_one_that_can_not() -> None:
    """The only reader of a heavy topic is no measure for what others read."""
    members = {"a": MemberSpec(["t"], [("t", p) for p in range(6)], 1), "b": MemberSpec(["t"]), "x": MemberSpec(["u"])}
    spec = GroupSpec({"t": 6, "u": 2}, members, partition_weights={"t": [1.0, 1.5] * 3, "u": [900.0, 100.0]})
    assert sorted(loads(spec, "load-aware").values()) == [3.5, 4.0, 1000.0]


@pytest.mark.parametrize("rate", [0.0, 5e-324, 1e-310])
def test_where_all_are_silent_partitions_are_dealt_by_number(rate: float) -> None:
    members = {name: MemberSpec(["t"]) for name in "abc"}
    result = assign("load-aware", GroupSpec({"t": 6}, members, partition_weights={"t": [rate, *[0.0] * 5]}))
    assert [len(owned) for owned in result.assignment.values()] == [2, 2, 2]


def test_subscriptions_that_keep_a_group_from_being_even_move_nothing() -> None:
    """All read u, one of them t as well: that one is above any fair share, and can give nothing that helps."""
    members = {"a": MemberSpec(["t", "u"]), "b": MemberSpec(["u"]), "c": MemberSpec(["u"])}
    spec = GroupSpec({"t": 4, "u": 4}, members, partition_weights={"t": [5.0] * 4, "u": [1.0, 2.0, 1.0, 2.0]})
    assert rebalanced(spec, ROUNDS_MAX) == [0] * ROUNDS_MAX


def test_idle_members_change_no_figure() -> None:
    owned = [("t", 0), ("t", 1), ("t", 2)]
    members = {"a": MemberSpec(["t"], owned, 1), "b": MemberSpec(["t"])}
    spec = GroupSpec({"t": 3}, members, partition_weights={"t": [4.0, 2.0, 2.0]})
    idle = replace(spec, members={**members, "idle": MemberSpec([]), "lost": MemberSpec(["gone"], capacity=7.0)})
    figures = [load_figures(one, assign("load-aware", one)) for one in (spec, idle)]
    assert figures[0] == figures[1]
    assert figures[0].r_score == 1.0


def test_figures_of_a_group_without_partitions_are_zeros() -> None:
    for spec in (GroupSpec({}, {}), GroupSpec({"t": 3}, {}), GroupSpec({"t": 3}, {"a": MemberSpec(["u"])})):
        assert set(astuple(load_figures(spec, assign("load-aware", spec)))) == {0.0}


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


@pytest.mark.parametrize("capacities", [(1.0, 1.0), (1.0, 3.0)])
def test_no_member_can_be_below_its_fair_share_unless_another_is_above(capacities: tuple[float, float]) -> None:
    """Without a heavy partition the bound was what one partition takes of a share."""
    members = {f"c{n}": MemberSpec(["t"], capacity=capacity) for n, capacity in enumerate(capacities)}
    spec = GroupSpec({"t": 40}, members, partition_weights={"t": [1.0] * 40})
    figures = load_figures(spec, assign("load-aware", spec))
    assert figures.bound == pytest.approx(1.0) == pytest.approx(figures.heaviest_after)


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
    assert figures.bound == pytest.approx(max(1.0, max(weights) / mean))
    assert figures.moved_weight == pytest.approx(sum(weights[p] for name in names for p in held[name] - after[name]))
    assert figures.r_score == pytest.approx(figures.moved_weight / mean)
    assert 0 < figures.moved_weight_least <= figures.moved_weight


@pytest.mark.long
def test_a_free_partition_costs_the_same_however_many_read_it() -> None:
    """All readers of a topic were hashed for each of its partitions: 18 times as slow with 10,000 as with 100."""
    weights = {"t": zipf(40_000, 0.3, 1)}

    def group(members: int) -> GroupSpec:
        return GroupSpec({"t": 40_000}, {f"c{n}": MemberSpec(["t"]) for n in range(members)}, partition_weights=weights)

    assert grows_at_most(8, lambda spec: assign("load-aware", spec), group(100), group(10_000))


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
