"""Rules of placement drawn at random on seeded shapes: no plan breaks a hard rule. The benchmark plans 200 shapes."""

import pytest

from assignor_core.plan import plan_to_json
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.policy import BrokerSet
from tests.benchmarks.drawn_rules import cluster_of, drawn_rules, rules_of
from tests.core.planner.invariants import check_plan

SMALL = (3, 22, 30, 75)
RULES = {
    "replicas_max", "spread_topics", "leaders_min", "broker_sets", "leader_racks", "keep_racks", "headroom",
    "failover_headroom",
}  # fmt: skip
NOWHERE = frozenset({"no such topic"})


@pytest.mark.parametrize("seed", SMALL)
def test_a_plan_under_drawn_rules_breaks_none_and_is_one_for_one_input(seed: int) -> None:
    _, cluster = cluster_of(seed)
    policy = drawn_rules(cluster, seed)
    plan = propose(cluster, policy)
    check_plan(cluster, policy, plan)
    assert plan_to_json(propose(cluster, policy)) == plan_to_json(plan)


def test_every_rule_is_drawn_for_some_shape_and_none_for_all() -> None:
    _, cluster = cluster_of(SMALL[0])
    drawn = [set(rules_of(drawn_rules(cluster, seed))) for seed in range(40)]
    assert set.union(*drawn) == RULES
    assert set.intersection(*drawn) == set()


def test_rules_that_no_topic_has_change_nothing() -> None:
    _, cluster = cluster_of(SMALL[0])
    policy = PlannerPolicy(
        broker_sets=(BrokerSet(NOWHERE, racks=frozenset({"r0"})),), spread_topics=NOWHERE,
        leaders_min=((NOWHERE, 2),), leader_racks=((NOWHERE, ("r0",)),), replicas_max=1_000_000,
    )  # fmt: skip
    assert propose(cluster, policy).movements == propose(cluster).movements
