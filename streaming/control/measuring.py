"""What a plan brought: how uneven the brokers are once it has settled, or how full their log dirs are.

Loads are what the brokers measured, counts what the cluster's metadata shows; nothing here is computed from the plan.
"""

from collections import Counter
from collections.abc import Mapping

from assignor_core.deciding.observation import brokers_counted
from assignor_core.execution.within_brokers import levels_text
from assignor_core.live import LiveCluster
from assignor_core.load_history.windows import ClosedWindow, resource_capacities
from assignor_core.model import Capacity
from assignor_core.plan import Plan
from assignor_core.resources import MEASURED, Resource
from assignor_core.skew import skew_of
from streaming.cluster.ports import ClusterReader


def measured_skew(
    windows: tuple[ClosedWindow, ...], live: LiveCluster, capacities: Mapping[int, Capacity], left_out: frozenset[int]
) -> dict[Resource, float]:
    """max/mean by resource over the mean of `windows`, and of leaders and replicas now; those not known are absent.

    Brokers that are gone or must end empty don't count, as in the plan.
    """
    counted = brokers_counted(live, left_out)
    loads = {resource: _means(windows, resource, counted) for resource in MEASURED}
    leading = Counter(partition.leader for partition in live.partitions.values())
    holding = Counter(broker for partition in live.partitions.values() for broker in partition.replicas)
    loads[Resource.LEADERS] = {broker: float(leading[broker]) for broker in counted}
    loads[Resource.REPLICAS] = {broker: float(holding[broker]) for broker in counted}
    return {
        resource: skew_of(values, resource_capacities(capacities, resource, values)).max_over_mean
        for resource, values in loads.items()
        if values
    }


def measured_levels(cluster: ClusterReader, plan: Plan) -> str:
    """How full the log dirs of a plan within brokers are, and what it promised, in words."""
    planned = f" (planned: {'; '.join(plan.diagnosis)})" if plan.diagnosis else ""
    return levels_text(cluster.log_dirs(plan.brokers, ())) + planned


def _means(windows: tuple[ClosedWindow, ...], resource: Resource, brokers: frozenset[int]) -> dict[int, float]:
    known = [window.values(resource) for window in windows]
    values = {broker: [row[broker] for row in known if broker in row] for broker in sorted(brokers)}
    return {broker: sum(rates) / len(rates) for broker, rates in values.items() if rates}
