"""The load planner: `propose(cluster, policy)` makes brokers' loads even for the least data moved.

    ClusterState, PlannerPolicy
      │  load, columns every load of every replica as a matrix
      ▼
    Placement, Problem          what can be edited; rules, limits and the objective that judges it
      │  1 repair      brokers that must end empty are emptied, racks are spread
      │    destinations     of what repair moved, where a plan may move nothing else
      │    relief      one of two ways, or both where the first ends above band and bound (bound_lines):
      │    guided      what a linear program would move (relaxation, split_replicas), and annealing by price
      │  2 attainable  limits that can be met  ┐
      │  3 search      relieve the worst       │ up to 8 rounds,
      │    wide_exchanges    of any replicas   │ until nothing changes
      │  4 kicks       a way on where stuck    │
      │    repair      what there is room for  ┘
      │    seating     heavy partitions alone, then 2 to 4 again, if both ways end above
      │    (undo 2 to 4 if the worst broker or load ended worse)
      │  5 prune       take back what is no longer needed
      │  6 annealing   a last try at random, above band and bound (band_lines; turns, draft, trials)
      │  7 finish      exactly even, if that is a few movements away
      ▼
    changed partitions
      │  8 waves       what may run together, and what fits into no wave
      │  9 explain     order, reason and gain of each movement
      │  10 bounds, heaviest, proportions, two_loads, read_levels   how even it could be
      │     diagnose, unmet_rules                                   what stands in the way
      │  11 frontier   cheaper plans with most of the gain
      ▼
    Plan (assignor_core.plan)

Words. A *candidate* is what the search tries: one or two *edits* of replica lists (hand a leadership over, move a
replica, exchange two replicas), with its gain and score (`handovers`, `moves`, `exchanges`). Applied candidates change
the placement, and `spending` counts what that costs. What differs from the first placement in the end is planned: one
*movement* for each partition, however many edits led to it; until it has its wave it is a *pending* movement.

Loads are fractions of the cluster's total, in columns by resource and window (`assignor_core.columns`). B are brokers,
P partitions, C columns, R replicas of a partition; N, M, T and K count what a function is handed.

In worked examples `state_of((1, 2), (1, 2))` is a cluster of brokers 1 and 2, which are indices 0 and 1, with two
partitions on both, led by broker 1 (`tests/core/planner/cases.py`).

Beside these phases stands a second search, in rounds of random trials under one objective (`rounds`; `round_task`,
`round_trials`, `dual`, `tuning`). It is to take the place of phases 1 to 6. Until then `propose` does not use it: tests
and benchmarks choose it by an argument of `proposal.propose_counted`.

docs/planner.md has the options, the reasons in words and the measurements.
"""

from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.proposal import propose

__all__ = ["PlannerPolicy", "propose"]
