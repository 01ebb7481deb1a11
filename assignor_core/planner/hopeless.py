"""Whether a search is worth its time: where the lower bound shows that no plan gains what is needed, none is made."""

from dataclasses import replace

from assignor_core.load import cluster_arrays
from assignor_core.model import ClusterState, first_window
from assignor_core.planner.bounds import lower_bounds
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Problem, fair_shares
from assignor_core.skew import skew_of_arrays

ROUNDING = 1e-9


def gains_too_little(cluster: ClusterState, problem: Problem, *, breaks_rules: bool) -> bool:
    """Whether no plan for `cluster` lowers max over mean as far as `gain_needed` of its policy asks for.

    It is judged by the first window of loads, as the plan will be (`deciding.worst_hour`). Brokers that must end empty,
    racks that must be spread and replicas outside their set of brokers are a need of their own: a placement that
    `breaks_rules` and leaving brokers are always planned for.
    """
    if problem.policy.gain_needed is None or breaks_rules or len(problem.leaving):
        return False
    resource, gain = problem.policy.gain_needed
    arrays = (
        problem.arrays
        if cluster.windows == 1
        else replace(cluster_arrays(first_window(cluster)), sets=problem.arrays.sets)
    )
    before = skew_of_arrays(arrays, excluded=problem.policy.excluded_brokers)
    if resource not in before:
        return False
    placement = Placement(arrays)
    bounds = lower_bounds(arrays, placement, fair_shares(arrays, problem.policy, placement), crowded=False)
    return before[resource].max_over_mean - bounds[resource] < gain - ROUNDING
