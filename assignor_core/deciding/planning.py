"""From one look at the cluster and the load of its partitions to a plan.

Placement and sizes come from the cluster itself, so a plan never rests on a placement that is gone. A partition whose
load is unknown is named; where too many are, there is no plan.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from assignor_core.disks import LogDirs, catching_up, largest_replicas, rooms
from assignor_core.errors import NothingToPlanOn
from assignor_core.live import NO_LEADER, LiveCluster, PartitionKey
from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.proposed_plan import Observed, ProposedPlan

UNKNOWN_SHARE_MAX = 0.10
"""With more partitions than this without a known rate a plan would rest on guesses."""

NO_CAPACITY = Capacity()
NAMED_MAX = 5
"""Brokers named in one line."""

Rates = Mapping[PartitionKey, tuple[float | None, float | None]]
"""(bytes/s in, bytes/s out) of each partition's leader; None where unknown."""


@dataclass(frozen=True, slots=True)
class Model:
    """What is planned on: the state, and the partitions whose load is unknown (taken as zero)."""

    cluster: ClusterState
    unknown: frozenset[PartitionKey]
    unknown_disks: frozenset[int] = frozenset()
    """Brokers that take no replicas, as nobody knows what is free on their disks."""


def build_model(
    live: LiveCluster,
    log_dirs: LogDirs,
    rates: Rates,
    *,
    cluster_name: str,
    capacities: Mapping[int, Capacity],
    disk_reserve: float,
    drained: frozenset[int],
    now_ms: int,
) -> Model:
    """Model of `live` with the load of `rates`; replicas on brokers that are gone make those brokers dead ones.

    Partitions without a leader are left out: there is nothing to copy from, and a reassignment of them would hang.
    `disk_reserve` is the share of each volume that stays free. A broker whose log dirs do not show what is free takes
    nothing, unless `capacities` bound its disks.
    """
    sizes = largest_replicas(log_dirs)
    room = rooms(live, log_dirs, catching_up(live, live.broker_racks.keys()), reserve=disk_reserve)
    unknown_disks = frozenset(
        broker for broker, left in room.items() if left is None and not capacities.get(broker, NO_CAPACITY).disk_bytes
    )
    partitions = []
    unknown = set()
    for key, partition in sorted(live.partitions.items()):
        if partition.leader == NO_LEADER:
            continue
        bytes_in, bytes_out = rates.get(key, (None, None))
        if bytes_in is None:
            unknown.add(key)
        load = PartitionLoad(bytes_in or 0.0, bytes_out or 0.0, float(sizes.get(key, 0)))
        target = partition.target_replicas
        in_sync = sum(broker in target for broker in partition.isr)
        partitions.append(Partition(key[0], key[1], target, load, in_sync))
    hosting = {broker for partition in partitions for broker in partition.replicas}
    brokers = tuple(
        Broker(
            broker,
            live.broker_racks.get(broker),
            _state(broker, live, drained),
            capacities.get(broker, NO_CAPACITY),
            0.0 if broker in unknown_disks else room.get(broker),
        )
        for broker in sorted(hosting | set(live.broker_racks))
    )
    return Model(ClusterState(cluster_name, now_ms, brokers, tuple(partitions)), frozenset(unknown), unknown_disks)


def propose_on(
    model: Model, live: LiveCluster, policy: PlannerPolicy, *, elapsed_s: Callable[[], float], span_ms: tuple[int, int]
) -> ProposedPlan:
    """A plan for `model`, which was built of `live`; raises NothingToPlanOn.

    `elapsed_s` is the caller's stopwatch; `span_ms` the start and end of the windows that the loads come from.
    """
    share = len(model.unknown) / max(1, len(model.cluster.partitions))
    if share > UNKNOWN_SHARE_MAX:
        raise NothingToPlanOn(f"the load of {len(model.unknown)} partitions ({share:.0%}) is unknown in these windows")
    began_s = elapsed_s()
    plan = propose(model.cluster, policy)
    elapsed_ms = (elapsed_s() - began_s) * 1000
    if model.unknown_disks:
        plan = replace(plan, diagnosis=(*plan.diagnosis, _unknown_disks_line(model.unknown_disks)))
    return ProposedPlan(plan, Observed.of(plan, live), elapsed_ms, span_ms)


def _unknown_disks_line(brokers: frozenset[int]) -> str:
    names = ", ".join(map(str, sorted(brokers)[:NAMED_MAX]))
    more = f" and {len(brokers) - NAMED_MAX} more" if len(brokers) > NAMED_MAX else ""
    return (
        f"brokers that take no replicas, as their log dirs do not show what is free: {names}{more}; "
        "planner.capacities may give their disk_bytes"
    )


def _state(broker: int, live: LiveCluster, drained: frozenset[int]) -> BrokerState:
    if broker not in live.broker_racks:
        return BrokerState.DEAD
    return BrokerState.DRAINING if broker in drained else BrokerState.ALIVE
