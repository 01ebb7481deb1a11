"""The load planner: `propose(cluster, policy)` makes brokers' loads even for the least data moved.

    ClusterState, PlannerPolicy
      │  load            columns: every load of every replica as a matrix
      ▼
    Placement, Problem   what can be edited; rules, limits and the objective that judges it
      │  repair                   hard rules: brokers to empty, racks to spread; each edit goes through Search
      │  round_task               walls, targets and prices as plain arrays
      │  balance                  which rounds follow on each other, and what becomes the plan
      │    rounds, round_trials       millions of trials under one objective
      │    failover, failover_trials  room for what brokers take over from one that goes offline
      │    dual, cheapest_rows        prices that prove what must be copied, and lead the rounds
      │    frontier                   rounds at falling prices: budgets, cheaper plans
      ▼
    changed partitions
      │  waves                    what may run together, and what fits into no wave
      │  explain                  order, reason and gain of each movement
      │  bounds, heaviest, proportions, two_loads, read_levels     how even it could be
      │  diagnose, obstacles      what stands in the way
      │  least_bytes              what any plan must copy
      ▼
    Plan (assignor_core.plan)

`asked` makes a plan of replica lists that somebody asks for, without a search; `replication_factor` makes such lists.

Words. A *trial* is what the search tries: to hand a leadership over, to move a replica, to exchange two. What differs
from the first placement in the end is planned: one *movement* for each partition, however many trials led to it; until
it has its wave it is a *pending* movement.

Loads are fractions of the cluster's total, in columns by resource and window (`load.Columns`). B are brokers,
P partitions, C columns, R replicas of a partition; N, M, T and K count what a function is handed.

In worked examples `state_of((1, 2), (1, 2))` is a cluster of brokers 1 and 2, which are indices 0 and 1, with two
partitions on both, led by broker 1 (`tests/core/planner/cases.py`).

docs/planner.md has the options, the reasons in words and the measurements.
"""

from typing import TYPE_CHECKING

from assignor_core.planner.policy import PlannerPolicy

if TYPE_CHECKING:
    from assignor_core.planner.proposal import propose

__all__ = ["PlannerPolicy", "propose"]

if not TYPE_CHECKING:  # with this function in sight, mypy would take any name for exported

    def __getattr__(name: str) -> object:
        """Import `propose` with numpy when it is first asked for: settings need the policy alone."""
        if name != "propose":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from assignor_core.planner.proposal import propose

        return propose
