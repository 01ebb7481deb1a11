"""Rules of placement drawn at random on seeded shapes: no plan breaks a hard rule. The benchmark plans 200 shapes."""

import pytest

from assignor_core.plan import plan_to_json
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.policy import BrokerSet
from tests.benchmarks.drawn_rules import cluster_of, drawn_rules, rules_of
from tests.benchmarks.models import Kind, generate
from tests.core.planner.invariants import check_plan

RULES = {
    "replicas_max", "spread_topics", "leaders_min", "broker_sets", "leader_racks", "keep_racks", "headroom",
    "failover_headroom",
}  # fmt: skip
NOWHERE = frozenset({"no such topic"})


@pytest.mark.parametrize("seed", [75, *(pytest.param(seed, marks=pytest.mark.long) for seed in (3, 22, 30))])
def test_a_plan_under_drawn_rules_breaks_none(seed: int) -> None:
    _, cluster = cluster_of(seed)
    policy = drawn_rules(cluster, seed)
    check_plan(cluster, policy, propose(cluster, policy))


def test_every_rule_is_drawn_for_some_shape_and_none_for_all() -> None:
    _, cluster = cluster_of(3)
    drawn = [set(rules_of(drawn_rules(cluster, seed))) for seed in range(40)]
    assert set.union(*drawn) == RULES
    assert set.intersection(*drawn) == set()


@pytest.mark.long
def test_rules_that_no_topic_has_change_nothing() -> None:
    state = generate(Kind(6, 60, replication_factor=2), 1)
    none = frozenset[str]()
    policy = PlannerPolicy(
        broker_sets=(BrokerSet(NOWHERE, racks=frozenset({"r0"})), BrokerSet(none, brokers=frozenset({1}))),
        spread_topics=NOWHERE, leaders_min=((NOWHERE, 2), (none, 3)), leader_racks=((NOWHERE, ("r0",)),),
        replicas_max=1_000_000,
    )  # fmt: skip
    plan = propose(state)
    assert plan.movements
    assert plan_to_json(propose(state, policy)) == plan_to_json(plan)
