"""Makes a plan: what the steps decide stands in modules of their own.

1. `problem` turns a model and a policy into rules and aims.
2. `repair` keeps hard rules: brokers that must end empty, sets of brokers, racks that are crowded.
3. `balance` searches a placement whose loads are below their targets for the least bytes.
4. `explain` and `waves` turn that into movements in order, each with its reason; `bounds` and `diagnose` say what no
   plan could help.
5. `frontier` names cheaper plans, and `least_bytes` proves what any plan has to copy.

Invariants: the same model and policy give the same bytes, since nothing depends on a clock, on hashes or on the order
of the model. Every loop is limited by number. No step breaks a hard rule, except that repair may crowd a rack to empty
a broker.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from assignor_core.errors import InputError
from assignor_core.load import ClusterArrays, Ints, broker_loads, cluster_arrays
from assignor_core.model import BrokerState, ClusterState
from assignor_core.plan import BrokerLoads, Plan
from assignor_core.planner.diagnose import diagnose
from assignor_core.planner.explain import ordered_movements
from assignor_core.planner.failover import zones_of
from assignor_core.planner.hopeless import gains_too_little
from assignor_core.planner.obstacles import unmet_rules
from assignor_core.planner.placement import Placement
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.problem import Search, problem_of
from assignor_core.planner.targets import bounds_of, reported_bounds
from assignor_core.skew import Skew, skew_of_arrays

if TYPE_CHECKING:
    from assignor_core.planner.rounds import Case


def propose(cluster: ClusterState, policy: PlannerPolicy | None = None, *, proves_least: bool = False) -> Plan:
    """The best plan for `cluster` that the search reaches under `policy` (the default one where None).

    With `proves_least` its `least_bytes` are known, which takes up to as long as the plan itself. Raises InputError if
    the policy names a broker that the model does not have.
    """
    # Machine code, which takes a while to load: who only reads plans needs none of it.
    from assignor_core.planner.frontier import cheaper_plans
    from assignor_core.planner.least_bytes import least_bytes

    policy = policy or PlannerPolicy()
    plan, search, case = _planned(with_drained(cluster, policy), policy)
    if case is not None:
        plan = replace(plan, cheaper=cheaper_plans(case, plan))
    return replace(plan, least_bytes=least_bytes(search)) if proves_least else plan


class _Planned(NamedTuple):
    """A plan without cheaper ones, and what it was made by."""

    plan: Plan
    search: Search
    case: "Case | None"
    """Case that cheaper plans are made from; None where there are none. What brokers must give away has no cheaper
    part. Where waves leave movements out, the search leads to another placement than the plan, and its gain is no
    measure of the plan's.
    """


def _planned(cluster: ClusterState, policy: PlannerPolicy) -> _Planned:
    """The plan without budgets if it keeps them, so that a budget which does not bind changes nothing; else a plan that
    was made within them.
    """
    if policy.has_budget:
        free = _searched(cluster, replace(policy, movements_max=None, bytes_max=None, inflow_max=None))
        if _keeps_budgets(free, policy):
            return free
    return _searched(cluster, policy)


def _keeps_budgets(planned: _Planned, policy: PlannerPolicy) -> bool:
    """Whether the movements of a plan, the bytes that it copies and those to each broker are within the budgets."""
    plan, inflow = planned.plan, planned.search.placement.inflow()
    spent = (len(plan.movements), plan.bytes_to_move, float(inflow.max(initial=0.0)))
    budgets = (policy.movements_max, policy.bytes_max, policy.inflow_max)
    return all(budget is None or part <= budget for part, budget in zip(spent, budgets, strict=True))


def _searched(cluster: ClusterState, policy: PlannerPolicy) -> _Planned:
    from assignor_core.planner.balance import balance  # machine code

    arrays = cluster_arrays(cluster)
    placement = Placement(arrays, zones_of(arrays, policy))
    problem = problem_of(arrays, policy, placement)
    crowded, misplaced = problem.crowded(placement.replicas), problem.misplaced(placement.replicas)
    search, breaks_rules = Search(problem, placement), bool(crowded.any() or misplaced.any())
    case = None if gains_too_little(cluster, problem, breaks_rules=breaks_rules) else balance(search)
    movements, waves, left_out = ordered_movements(problem, placement, crowded)
    before = skew_of_arrays(arrays, excluded=policy.excluded_brokers)
    after = skew_of_arrays(arrays, placement.replicas, policy.excluded_brokers)
    bounds = bounds_of(problem, placement)
    reported = bounds if problem.arrays.sets is None else reported_bounds(problem, placement)
    if not breaks_rules and not len(problem.leaving):
        # The placement that is there keeps the rules, and may be below what two loads force together in one of them.
        reported = {name: max(1.0, min(bound, before[name].max_over_mean)) for name, bound in reported.items()}
    plan = Plan(
        cluster_id=cluster.cluster_id,
        movements=movements,
        skew_before=figures_of_skew(before),
        skew_after=figures_of_skew(after),
        lower_bound=MappingProxyType(reported),
        diagnosis=(*left_out, *diagnose(problem, placement, bounds)),
        problems=unmet_rules(problem, placement),
        waves=waves,
        loads_before=loads_by_broker(arrays),
        loads_after=loads_by_broker(arrays, placement.replicas),
    )
    return _Planned(plan, search, None if len(problem.leaving) or left_out else case)


def with_drained(cluster: ClusterState, policy: PlannerPolicy) -> ClusterState:
    """Brokers that the policy drains are draining; raises InputError if the policy names a broker that is not there."""
    known = {broker.broker_id for broker in cluster.brokers}
    for name in ("drain", "add", "only_brokers", "excluded_brokers"):
        unknown = sorted(getattr(policy, name) - known)
        if unknown:
            raise InputError(f"planner policy {name}: found broker {unknown[0]}, allowed are brokers of the model")
    if not policy.drain:
        return cluster
    brokers = tuple(
        replace(broker, state=BrokerState.DRAINING)
        if broker.broker_id in policy.drain and broker.state is BrokerState.ALIVE
        else broker
        for broker in cluster.brokers
    )
    return replace(cluster, brokers=brokers)


def figures_of_skew(skews: Mapping[str, Skew]) -> MappingProxyType[str, dict[str, float]]:
    """The figures of a plan, by resource."""
    figures = {
        name: {"max_over_mean": skew.max_over_mean, "coefficient_of_variation": skew.coefficient_of_variation}
        for name, skew in skews.items()
    }
    return MappingProxyType(figures)


def loads_by_broker(arrays: ClusterArrays, replicas: Ints | None = None) -> BrokerLoads:
    """Loads in the first window by resource and broker, under `replicas` (the arrays' own where None).

    Rounded to six digits: people look at them.
    """
    columns = {resource: int(arrays.columns.of(resource)[0]) for resource in dict.fromkeys(arrays.columns.resources)}
    chosen = list(columns.values())
    if arrays.rack_reads is None:
        first = replace(
            arrays, leader_load=arrays.leader_load[:, chosen], follower_load=arrays.follower_load[:, chosen]
        )
        loads = broker_loads(first, replicas).T.tolist()
    else:
        loads = broker_loads(arrays, replicas)[:, chosen].T.tolist()
    return MappingProxyType(
        {
            str(resource): {broker: float(f"{load:.6g}") for broker, load in zip(arrays.broker_ids, row, strict=True)}
            for resource, row in zip(columns, loads, strict=True)
        }
    )
