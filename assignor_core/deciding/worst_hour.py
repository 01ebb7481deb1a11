"""A plan on several hours, judged twice: on the newest windows, which are what is measured after it, and on its worst
hour.

What a plan promises is compared with what brokers carry once it is done, so its figures are those of the load of now.
"""

from collections.abc import Mapping
from dataclasses import replace

from assignor_core.load import cluster_arrays
from assignor_core.model import ClusterState, first_window
from assignor_core.plan import Figures, Plan, apply_to
from assignor_core.planner.bounds import lower_bounds
from assignor_core.planner.placement import Placement
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.problem import fair_shares
from assignor_core.planner.proposal import figures_of_skew, loads_by_broker, with_drained
from assignor_core.skew import skew_of_arrays

WorstHour = Mapping[str, Figures]
"""Figures of the most uneven column of each resource, "before" and "after" the plan."""


def judged(plan: Plan, cluster: ClusterState, policy: PlannerPolicy) -> tuple[Plan, WorstHour | None]:
    """`plan`, made for `cluster` by `policy`, with the figures of its first window, and those of the worst one.

    The plan itself and None where `cluster` has a single window.
    """
    if cluster.windows == 1:
        return plan, None
    all_hours = with_drained(cluster, policy)
    now = first_window(all_hours)
    arrays = cluster_arrays(now)
    moved = cluster_arrays(apply_to(now, plan))
    placement, excluded = Placement(arrays), policy.excluded_brokers
    share = fair_shares(arrays, policy, placement)
    bounds = lower_bounds(arrays, placement, share, crowded=bool(plan.problems))
    on_now = replace(
        plan,
        skew_before=figures_of_skew(skew_of_arrays(arrays, excluded=excluded)),
        skew_after=figures_of_skew(skew_of_arrays(moved, excluded=excluded)),
        lower_bound=bounds,
        loads_before=loads_by_broker(arrays),
        loads_after=loads_by_broker(moved),
    )
    return on_now, {
        "before": figures_of_skew(skew_of_arrays(cluster_arrays(all_hours), excluded=excluded)),
        "after": figures_of_skew(skew_of_arrays(cluster_arrays(apply_to(all_hours, plan)), excluded=excluded)),
    }
