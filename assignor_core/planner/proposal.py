"""Runs the phases of a plan in order; what each decides stands in its own module.

Invariants: the same model and policy give the same bytes, since nothing depends on a clock, on hashes or on the order
of the model. Every loop is limited by number. No phase breaks a hard rule, except that repair may crowd a rack to empty
a broker.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from assignor_core.errors import InputError
from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints, broker_loads, cluster_arrays
from assignor_core.model import BrokerState, ClusterState
from assignor_core.plan import BrokerLoads, CheaperPlan, Plan
from assignor_core.planner.annealing import BETTER, NOTICEABLE, anneal
from assignor_core.planner.attainable import attainable
from assignor_core.planner.band_lines import above_lines
from assignor_core.planner.bound_lines import above, bounds_of, lines_of
from assignor_core.planner.destinations import keep_rules
from assignor_core.planner.diagnose import diagnose
from assignor_core.planner.effort import Effort
from assignor_core.planner.explain import ordered_movements
from assignor_core.planner.finish import finish
from assignor_core.planner.frontier import FEW_REPLICAS, Way, as_made, cheaper_plans
from assignor_core.planner.hopeless import gains_too_little
from assignor_core.planner.obstacles import unmet_rules
from assignor_core.planner.placement import Placement
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.problem import Problem, problem_of
from assignor_core.planner.prune import prune
from assignor_core.planner.relief import asked, relieve, seat
from assignor_core.planner.search import Search
from assignor_core.skew import Skew, skew_of_arrays

Balance = Callable[[Search], Way]
"""A search: changes a placement for balance, and returns the edits that led there."""
ROUNDING = 1e-9
NOWHERE = Way((), 0)
SETTLED_MAX = 8
"""Most times that relief and pruning follow on each other in the end."""
SETTLED_PART = 16
"""Each time the search may score this part of its most candidates once more."""
WORTH = 2e-3
"""Squared fair shares, over all brokers and loads: where all are within band or bound, a plan that gains less is not
worth its movements. Mostly it is a plan on another one's result.
"""
WORTH_ABOVE = 1e-4
"""The same where a load is above both, and comes no nearer: a hundredth of a fair share on one broker. Budgets may
leave less.
"""
WORTH_PART = 0.1
"""The same as a part of what is there to gain: turns at random always find a little more."""
WORTH_COPIED = 1.0
"""Then each fair share that is copied must bring down by so many what brokers carry above limits that can be met.

First plans of seven shapes bring down 1.8 to 4.8, second plans on their results 0.15 to 0.95 (2026-11-28).
"""


def propose(cluster: ClusterState, policy: PlannerPolicy | None = None, *, proves_least: bool = False) -> Plan:
    """The best plan for `cluster` that the search reaches under `policy` (the default one where None).

    With `proves_least` its `least_bytes` are known, which takes up to as long as the plan itself. Raises InputError if
    the policy names a broker that the model does not have.
    """
    return propose_counted(cluster, policy, proves_least=proves_least)[0]


def propose_counted(
    cluster: ClusterState,
    policy: PlannerPolicy | None = None,
    *,
    proves_least: bool = False,
    balances: Balance | None = None,
) -> tuple[Plan, Effort]:
    """The plan of `propose`, and what the search has tried for it. Tests and benchmarks choose another search by
    `balances`.
    """
    policy, balances = policy or PlannerPolicy(), balances or balance
    cluster = with_drained(cluster, policy)
    plan, search, way, still_crowded = _planned(cluster, policy, balances)
    if proves_least:
        from assignor_core.planner.least_bytes import least_bytes  # machine code

        plan = replace(plan, least_bytes=least_bytes(search))
    if way is not None:  # last, as it needs the placement for itself
        plan = replace(plan, cheaper=_cheaper(cluster, plan, search, way, still_crowded, balances))
    return plan, search.effort


class _Planned(NamedTuple):
    """A plan without cheaper ones, and what they are made of."""

    plan: Plan
    search: Search
    way: Way | None
    """None where there are no cheaper ones. What brokers must give away has no cheaper part. Where waves leave
    movements out, the way leads to another placement than the plan, and its gain is no measure of the plan's.
    """
    still_crowded: int
    """Partitions whose racks the plan leaves crowded."""


def _planned(cluster: ClusterState, policy: PlannerPolicy, balances: Balance) -> _Planned:
    """The plan without budgets if it keeps them, so that a budget which does not bind changes nothing; else a plan that
    was made within them.
    """
    if policy.has_budget:
        free = _searched(cluster, replace(policy, movements_max=None, bytes_max=None, inflow_max=None), balances)
        if _keeps_budgets(free, policy):
            return free
    return _searched(cluster, policy, balances)


def _keeps_budgets(planned: _Planned, policy: PlannerPolicy) -> bool:
    """Whether the movements of a plan, the bytes that it copies and those to each broker are within the budgets."""
    plan, inflow = planned.plan, planned.search.placement.inflow()
    spent = (len(plan.movements), plan.bytes_to_move, float(inflow.max(initial=0.0)))
    budgets = (policy.movements_max, policy.bytes_max, policy.inflow_max)
    return all(budget is None or part <= budget for part, budget in zip(spent, budgets, strict=True))


def _searched(cluster: ClusterState, policy: PlannerPolicy, balances: Balance) -> _Planned:
    arrays = cluster_arrays(cluster)
    placement = Placement(arrays)
    problem = problem_of(arrays, policy, placement)
    crowded = problem.crowded(placement)
    search = Search(problem, placement)
    way = NOWHERE if gains_too_little(cluster, problem, crowded=bool(crowded.any())) else balances(search)
    still_crowded = int(problem.crowded(placement).sum())
    movements, waves, left_out = ordered_movements(problem, placement, crowded)
    after = skew_of_arrays(arrays, placement.replicas, policy.excluded_brokers)
    bounds = bounds_of(problem, placement)
    plan = Plan(
        cluster_id=cluster.cluster_id,
        movements=movements,
        skew_before=figures_of_skew(skew_of_arrays(arrays, excluded=policy.excluded_brokers)),
        skew_after=figures_of_skew(after),
        lower_bound=MappingProxyType(bounds),
        diagnosis=(*left_out, *diagnose(problem, placement, search.effort, bounds)),
        problems=unmet_rules(problem, placement),
        waves=waves,
        loads_before=loads_by_broker(arrays),
        loads_after=loads_by_broker(arrays, placement.replicas),
    )
    return _Planned(plan, search, None if len(problem.leaving) or left_out else way, still_crowded)


def _cheaper(
    cluster: ClusterState, plan: Plan, search: Search, way: Way, still_crowded: int, balances: Balance
) -> tuple[CheaperPlan, ...]:
    """Cheaper plans; of few replicas each is made, with its bytes as the budget."""
    cheaper, policy = cheaper_plans(search, way, plan.movements, still_crowded), search.problem.policy
    if (search.placement.original != NO_BROKER).sum() > FEW_REPLICAS:
        return cheaper
    return as_made(
        cheaper, plan, lambda bytes_max: _planned(cluster, replace(policy, bytes_max=bytes_max), balances).plan
    )


def balance(search: Search) -> Way:
    """Hard rules, relief of the overloaded, a way on where that is stuck, and exact evenness where it is near.

    Returns the edits that led there, but for those from pruning on: they correct what is there.
    The objective weighs all loads together; what buys the rest by making the worst broker worse is dropped.
    """
    problem, placement = search.problem, search.placement
    keep_rules(search)
    if problem.policy.rules_only:
        return Way((), 0)
    # What repair had to do stays, whatever it costs: only balance is judged, and dropped from here on.
    before, mark, copied_before = placement.loads.copy(), len(search.journal), search.spending.bytes_copied
    excess_before = problem.worst_excess(before)
    violation_before = _violation(search, attainable(problem, placement))
    relief = relieve(search, excess_before + ROUNDING)
    seated = seat(search, excess_before + ROUNDING)
    marks, is_annealed = [*relief.marks, *seated.marks], seated.is_annealed
    while problem.worst_excess(placement.loads) > excess_before + ROUNDING or _is_further_above(search, before):
        search.undo_to(marks.pop())
    if _gains_nothing(search, before, violation_before, copied_before):
        search.undo_to(mark)
        is_annealed = False
    way, edits = Way(tuple(applied.edit for applied in search.journal), mark), placement.edits
    prune(search)
    is_annealed |= relief.is_annealed and placement.edits > edits
    if anneal(search, excess_before + ROUNDING, search.spending.bytes_copied):
        prune(search)
        is_annealed = True
    if is_annealed:
        _settle(search)
    finish(search)
    return way


def _violation(search: Search, problem: Problem) -> float:
    return float(search.under(problem).violation().sum())


def _gains_nothing(search: Search, before: Floats, violation_before: float, copied_before: float) -> bool:
    """Whether what is left gains next to nothing and brings the worst load no nearer to band and bound. With the loads
    `before` within these already, it must also mend a part of what is there, and gain for its bytes.
    """
    problem, loads, spending = search.problem, search.placement.loads, search.spending
    limited = attainable(problem, search.placement)
    gain = violation_before - _violation(search, limited)
    brought_down = limited.excess(before) - limited.excess(loads)
    copied = float(spending.in_fair_shares(np.array(spending.bytes_copied - copied_before)))
    is_worth_it = gain >= max(WORTH, WORTH_PART * violation_before) and brought_down >= WORTH_COPIED * copied
    if is_worth_it and problem.total_cost(loads) < problem.total_cost(before):
        return False
    lines = lines_of(search)
    above_before = above_lines(problem, before, lines)
    if above_before <= NOTICEABLE:
        return True
    is_nearer = above_lines(problem, loads, lines) < above_before - BETTER
    return gain < WORTH_ABOVE and not is_nearer and not problem.policy.has_budget


def _settle(search: Search) -> None:
    """Relief once more, where annealing and pruning have made room: else a plan on the plan's own result would begin
    with it. What takes the worst load further above is undone, as it would be there.
    """
    problem, placement = search.problem, search.placement
    for _ in range(SETTLED_MAX):
        mark, excess_before, above_before = len(search.journal), problem.worst_excess(placement.loads), above(search)
        effort = Effort(search.effort.candidates_max // SETTLED_PART)
        search.under(asked(search), effort).relieve()
        search.effort.add(effort)
        above_most = max(above_before, NOTICEABLE) + ROUNDING
        if problem.worst_excess(placement.loads) > excess_before + ROUNDING or above(search) > above_most:
            search.undo_to(mark)
        if len(search.journal) == mark:
            return
        prune(search)


def _is_further_above(search: Search, before: Floats) -> bool:
    """Whether the worst load is further above band and bound than it was with the loads `before`.

    Limits of brokers are lower than lines where a heavy partition raises these. So the search may still try to relieve
    a placement that is at its bound, and leave it.
    """
    problem, placement = search.problem, search.placement
    if (placement.loads == before).all():
        return False
    lines = lines_of(search)
    return above_lines(problem, placement.loads, lines) > above_lines(problem, before, lines) + ROUNDING


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
