"""The load planner: `propose(cluster, policy)` finds a plan that makes brokers' loads even for the least data moved.

Same input, same plan, on any machine; no clock is looked at.
"""

from types import MappingProxyType

from assignor_core.load import NO_BROKER, cluster_arrays
from assignor_core.model import ClusterState
from assignor_core.plan import Movement, Plan
from assignor_core.planner.bounds import lower_bounds
from assignor_core.planner.finish import finish
from assignor_core.planner.kicks import kick
from assignor_core.planner.placement import Placement
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.problem import problem_of
from assignor_core.planner.repair import repair
from assignor_core.planner.search import Search
from assignor_core.skew import Skew, skew_of_arrays

__all__ = ["PlannerPolicy", "propose"]


def propose(cluster: ClusterState, policy: PlannerPolicy | None = None) -> Plan:
    """The best plan found for `cluster` under `policy` (the default one where None)."""
    policy = policy or PlannerPolicy()
    arrays = cluster_arrays(cluster)
    placement = Placement(arrays)
    problem = problem_of(arrays, policy, placement)
    search = Search(problem, placement)
    problems = repair(search)
    search.relieve()
    kick(search)
    finish(search)
    before, after = skew_of_arrays(arrays), skew_of_arrays(arrays, placement.replicas)
    return Plan(
        cluster.cluster_id,
        _movements(placement),
        _figures(before),
        _figures(after),
        MappingProxyType(lower_bounds(arrays, placement, problem.share)),
        problems=problems,
    )


def _movements(placement: Placement) -> tuple[Movement, ...]:
    ids = placement.arrays.broker_ids
    movements = []
    for index in placement.changed():
        partition = placement.arrays.partitions[index]
        new = tuple(ids[broker] for broker in placement.replicas[index] if broker != NO_BROKER)
        copied = len(set(new) - set(partition.replicas)) * float(placement.disk_bytes[index])
        movements.append(Movement(partition.topic, partition.partition, partition.replicas, new, copied))
    return tuple(movements)


def _figures(skews: dict[str, Skew]) -> MappingProxyType[str, dict[str, float]]:
    figures = {
        name: {"max_over_mean": skew.max_over_mean, "coefficient_of_variation": skew.coefficient_of_variation}
        for name, skew in skews.items()
    }
    return MappingProxyType(figures)
