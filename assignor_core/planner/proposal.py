"""Runs the phases of a plan in order; what each decides stands in its own module.

Invariants: the same model and policy give the same bytes, since nothing depends on a clock, on hashes or on the order
of the model. Every loop is limited by number. No phase breaks a hard rule, except that repair may crowd a rack to empty
a broker.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from assignor_core.errors import InputError
from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints, broker_loads, cluster_arrays
from assignor_core.model import BrokerState, ClusterState
from assignor_core.plan import BrokerLoads, CheaperPlan, Plan
from assignor_core.planner.annealing import BETTER, BYTES_MORE, NOTICEABLE, anneal
from assignor_core.planner.attainable import attainable
from assignor_core.planner.band_lines import above_lines, band_lines
from assignor_core.planner.bounds import leaves_replicas_behind, lower_bounds
from assignor_core.planner.diagnose import diagnose
from assignor_core.planner.effort import Effort
from assignor_core.planner.explain import ordered_movements
from assignor_core.planner.finish import finish
from assignor_core.planner.frontier import FEW_REPLICAS, Way, as_made, cheaper_plans
from assignor_core.planner.guided import guide, have_unequal_proportions, may_guide
from assignor_core.planner.hopeless import gains_too_little
from assignor_core.planner.kicks import kick
from assignor_core.planner.placement import Placement
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.problem import Problem, problem_of
from assignor_core.planner.proportions import TOGETHER
from assignor_core.planner.prune import prune
from assignor_core.planner.repair import repair, unmet_rules
from assignor_core.planner.search import Search
from assignor_core.planner.seating import is_within_capacities, seat_heavy
from assignor_core.planner.statistic import by_statistic
from assignor_core.planner.two_loads import levels_together
from assignor_core.planner.wide_exchanges import exchange_widely
from assignor_core.resources import Resource
from assignor_core.skew import Skew, skew_of_arrays

ROUNDING = 1e-9
ROUNDS = 8
"""Most rounds of relief, kicks and repair: what moved may have changed what is attainable, and made room."""

IDLE = 0.98
"""A round that leaves so much of the violation is the last: those after it gain next to nothing."""
NOWHERE = Way((), 0)
SEATINGS = 3
"""Times that heavy partitions get other seats."""
SEATED = 0.9
"""Other seats are kept if they leave this part of the distance to band and bound: the last try at random may mend a
tenth as well, and moves less.
"""
WORTH = 1e-3
"""Squared fair shares, over all brokers and loads: where all are within band or bound, a plan that gains less is not
worth its movements. Mostly it is a plan on another one's result.
"""
BOUNDS_REPLICAS_MAX = 20_000
"""With more replicas bounds take long: the search does without them."""
KICKED_FROM = 0.5
"""A way on is tried only where a round of relief leaves this part of the violation: while rounds get on, they go on."""


def propose(cluster: ClusterState, policy: PlannerPolicy | None = None) -> Plan:
    """The best plan for `cluster` that the search reaches under `policy` (the default one where None).

    Raises InputError if the policy names a broker that the model does not have.
    """
    return propose_counted(cluster, policy)[0]


def propose_counted(cluster: ClusterState, policy: PlannerPolicy | None = None) -> tuple[Plan, Effort]:
    """The same, with what the search has tried for it."""
    policy = policy or PlannerPolicy()
    cluster = with_drained(cluster, policy)
    plan, search, way, still_crowded = _planned(cluster, policy)
    if way is not None:  # last, as it needs the placement for itself
        plan = replace(plan, cheaper=_cheaper(cluster, plan, search, way, still_crowded))
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


def _planned(cluster: ClusterState, policy: PlannerPolicy) -> _Planned:
    arrays = cluster_arrays(by_statistic(cluster, policy.statistic))
    placement = Placement(arrays)
    problem = problem_of(arrays, policy, placement)
    crowded = problem.crowded(placement)
    search = Search(problem, placement)
    way = NOWHERE if gains_too_little(cluster, problem, crowded=bool(crowded.any())) else balance(search)
    still_crowded = int(problem.crowded(placement).sum())
    movements, waves, left_out = ordered_movements(problem, placement, crowded)
    after = skew_of_arrays(arrays, placement.replicas)
    plan = Plan(
        cluster_id=cluster.cluster_id,
        movements=movements,
        skew_before=figures_of_skew(skew_of_arrays(arrays)),
        skew_after=figures_of_skew(after),
        lower_bound=MappingProxyType(bounds_of(problem, placement)),
        diagnosis=(*left_out, *diagnose(problem, placement, search.effort)),
        problems=unmet_rules(problem, placement),
        waves=waves,
        loads_before=loads_by_broker(arrays),
        loads_after=loads_by_broker(arrays, placement.replicas),
    )
    return _Planned(plan, search, None if len(problem.leaving) or left_out else way, still_crowded)


def _cheaper(
    cluster: ClusterState, plan: Plan, search: Search, way: Way, still_crowded: int
) -> tuple[CheaperPlan, ...]:
    """Cheaper plans; of few replicas each is made, with its bytes as the budget."""
    cheaper, policy = cheaper_plans(search, way, plan.movements, still_crowded), search.problem.policy
    if (search.placement.original != NO_BROKER).sum() > FEW_REPLICAS:
        return cheaper
    return as_made(cheaper, plan, lambda bytes_max: _planned(cluster, replace(policy, bytes_max=bytes_max)).plan)


def bounds_of(problem: Problem, placement: Placement) -> dict[str, float]:
    """Resource: what no placement goes below; where proportions force a level, not in two loads at once."""
    after = skew_of_arrays(problem.arrays, placement.replicas)
    crowded = bool(problem.crowded(placement).any())
    bounds = lower_bounds(problem.arrays, placement, problem.share, crowded=crowded)
    if crowded or leaves_replicas_behind(problem.arrays, placement):
        return bounds
    levels = np.maximum(problem.level, problem.read_level)
    for resource in (*TOGETHER, Resource.DISK):
        level = float(levels[:, problem.arrays.columns.of(resource)].max())
        bounds[resource] = max(bounds[resource], min(level, after[resource].max_over_mean))
    together = levels_together(problem.arrays, placement, problem.share, bounds)
    alone = dict(bounds)
    for both, level in together.items():
        for resource in both:
            bounds[resource] = max(bounds[resource], min(level * alone[resource], after[resource].max_over_mean))
    return bounds


def balance(search: Search) -> Way:
    """Hard rules, relief of the overloaded, a way on where that is stuck, and exact evenness where it is near.

    Returns the edits that led there, but for those from pruning on: they correct what is there.
    The objective weighs all loads together; what buys the rest by making the worst broker worse is dropped.
    """
    problem, placement = search.problem, search.placement
    repair(search)
    if problem.policy.rules_only:
        return Way((), 0)
    # What repair had to do stays, whatever it costs: only balance is judged, and dropped from here on.
    before, mark = placement.loads.copy(), len(search.journal)
    excess_before = problem.worst_excess(before)
    violation_before = _attainable_violation(search)
    marks = _relieve(search)
    seated = _seat(search, excess_before + ROUNDING)
    marks += seated
    while problem.worst_excess(placement.loads) > excess_before + ROUNDING or _is_further_above(search, before):
        search.undo_to(marks.pop())
    if _gains_nothing(search, before, violation_before):
        search.undo_to(mark)
        seated = []
    way = Way(tuple(applied.edit for applied in search.journal), mark)
    prune(search)
    is_annealed = _anneal(search, excess_before + ROUNDING, search.spending.bytes_copied)
    if is_annealed:
        prune(search)
    if is_annealed or seated:
        _settle(search)
    finish(search)
    return way


def _attainable_violation(search: Search) -> float:
    return float(search.under(attainable(search.problem, search.placement)).violation().sum())


def _gains_nothing(search: Search, before: Floats, violation_before: float) -> bool:
    """Whether what is left gains next to nothing, and with the loads `before` all were within band or bound already."""
    if violation_before - _attainable_violation(search) >= WORTH:
        return False
    return above_lines(search.problem, before, _lines(search)) <= NOTICEABLE


def _settle(search: Search) -> None:
    """Relief once more, where annealing and pruning have made room: else a plan on the plan's own result would begin
    with it. What takes the worst load further above is undone, as it would be there.
    """
    problem, placement = search.problem, search.placement
    for _ in range(ROUNDS):
        mark, excess_before, above = len(search.journal), problem.worst_excess(placement.loads), _above(search)
        search.under(attainable(problem, placement)).relieve()
        if problem.worst_excess(placement.loads) > excess_before + ROUNDING or _above(search) > above + ROUNDING:
            search.undo_to(mark)
        if len(search.journal) == mark:
            return
        prune(search)


def _is_further_above(search: Search, before: Floats) -> bool:
    """Whether the worst load is further above band and bound than it was with the loads `before`.

    Limits of brokers are lower than lines where a heavy partition raises these. So the search may still try to relieve
    a placement that is at its bound, and leave it. Of large clusters nobody asks: there bounds take long.
    """
    problem, placement = search.problem, search.placement
    if (placement.original != NO_BROKER).sum() > BOUNDS_REPLICAS_MAX or (placement.loads == before).all():
        return False
    lines = band_lines(problem, bounds_of(problem, placement))
    return above_lines(problem, placement.loads, lines) > above_lines(problem, before, lines) + ROUNDING


def _relieve(search: Search) -> list[int]:
    """Relief of the overloaded, in one of two ways: it begins with what a linear program would move, or without.

    The first is tried first where brokers are of unequal proportions. Where a way ends above band and bound, as a heavy
    replica is in the way, the other is tried, too. Returns how long the journal was at the start and after each step.
    """
    mark = len(search.journal)
    limited = search.under(attainable(search.problem, search.placement))
    if not may_guide(limited):
        return [mark, *_relieve_in_rounds(search)]
    is_guided = have_unequal_proportions(search.problem)
    if is_guided:
        guide(limited)
    marks = [mark, *_relieve_in_rounds(search)]
    above, copied = _above(search), search.spending.bytes_copied
    if above <= NOTICEABLE or search.effort.is_spent:
        return marks
    edits = [applied.edit for applied in search.journal[mark:]]
    search.undo_to(mark)
    if not is_guided:
        guide(limited)
    others = [mark, *_relieve_in_rounds(search)]
    if _above(search) < above - BETTER and search.spending.bytes_copied <= BYTES_MORE * copied:
        return others
    search.undo_to(mark)
    for edit in edits:
        search.apply_edit(edit)
    return marks


def _seat(search: Search, excess_max: float) -> list[int]:
    """Other seats for heavy partitions, as long as the worst load comes much nearer to band and bound; returns as
    `_relieve` does.
    """
    marks: list[int] = []
    if search.problem.policy.has_budget:
        return marks
    above, copied = _above(search), search.spending.bytes_copied
    for _ in range(SEATINGS):
        mark = len(search.journal)
        if above <= NOTICEABLE or not seat_heavy(search, _lines(search)):
            break
        seated, steps = _above(search), [mark, len(search.journal)]
        steps += _relieve_in_rounds(search)
        if _above(search) > seated:
            search.undo_to(steps[1])
            steps = steps[:2]
        if _anneal(search, excess_max, copied):
            steps.append(len(search.journal))
        nearer = _above(search)
        is_sound = is_within_capacities(search.problem, search.placement)
        if not is_sound or nearer > SEATED * above or search.spending.bytes_copied > BYTES_MORE * copied:
            search.undo_to(mark)
            break
        marks, above = [*marks, *steps], nearer
    return marks


def _anneal(search: Search, excess_max: float, bytes_copied: float) -> bool:
    return anneal(search, lambda: bounds_of(search.problem, search.placement), excess_max, bytes_copied)


def _above(search: Search) -> float:
    """Fair shares by which the worst load is above its line."""
    return above_lines(search.problem, search.placement.loads, _lines(search))


def _lines(search: Search) -> Floats:
    """B x C load at the band of the proven bounds; of large clusters, where these take long, limits that can be met."""
    problem, placement = search.problem, search.placement
    if (placement.original != NO_BROKER).sum() > BOUNDS_REPLICAS_MAX:
        return attainable(problem, placement, everywhere=True).limit
    return band_lines(problem, bounds_of(problem, placement))


def _relieve_in_rounds(search: Search) -> list[int]:
    """Relief, exchanges and kicks, until nothing changes or a round gains next to nothing; returns how long the journal
    was after each of them.
    """
    exchanges_pay, marks = True, list[int]()
    for number in range(ROUNDS):
        edits_before = len(search.journal)
        # At first heavy partitions are driven to brokers that can hold them.
        limits = partial(attainable, search.problem, search.placement, everywhere=number > 0)
        within = search.under(limits())
        violation = float(within.violation().sum())
        within.relieve()
        marks.append(len(search.journal))
        exchanges_pay = exchanges_pay and exchange_widely(within)
        marks.append(len(search.journal))
        if float(within.violation().sum()) > KICKED_FROM * violation:
            within = kick(within, limits)
        left = float(within.violation().sum())
        repair(search)
        marks.append(len(search.journal))
        if number > 0 and (len(search.journal) == edits_before or left > IDLE * violation):
            break
    return marks


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
