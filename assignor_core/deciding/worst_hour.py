"""A plan on several hours, judged twice: on the newest windows, which are what is measured after it, and on its worst
hour.

What a plan promises is compared with what brokers carry once it is done, so its figures are those of the load of now.
"""

from collections.abc import Mapping
from dataclasses import replace

from assignor_core.load import cluster_arrays, shares
from assignor_core.model import ClusterState
from assignor_core.plan import Figures, Plan, apply_to
from assignor_core.planner.bounds import lower_bounds
from assignor_core.planner.placement import Placement
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.proposal import figures_of_skew, loads_by_broker, with_drained
from assignor_core.planner.statistic import first_window
from assignor_core.skew import measure_skew, skew_of_arrays

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
    bounds = lower_bounds(arrays, Placement(arrays), shares(arrays), crowded=bool(plan.problems))
    on_now = replace(
        plan,
        skew_before=figures_of_skew(skew_of_arrays(arrays)),
        skew_after=figures_of_skew(skew_of_arrays(moved)),
        lower_bound=bounds,
        loads_before=loads_by_broker(arrays),
        loads_after=loads_by_broker(moved),
    )
    return on_now, {
        "before": figures_of_skew(measure_skew(all_hours)),
        "after": figures_of_skew(measure_skew(apply_to(all_hours, plan))),
    }
