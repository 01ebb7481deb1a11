"""Replica lists with another replication factor, for topics that a person names: which brokers gain or lose replicas.

More replicas: the largest partitions come first, and each new replica goes to the rack that has fewest replicas of its
partition, there to the broker whose loads are raised least by the planner's own objective, where its disks have room.
Fewer: first goes what is on brokers that are dead or draining, then followers that are out of sync, then those in the
rack that has most of them, then the one whose broker is the fullest by the same objective. The preferred leader stays.

No replica moves besides: that copies the least bytes that the factor asks for. What results is a `ReplicaLists`, which
`asked` turns into a plan. Cost: one pass over the brokers for each replica that is added.
"""

from collections.abc import Collection, Mapping

import numpy as np

from assignor_core.errors import InputError
from assignor_core.live import PartitionKey, partition_name
from assignor_core.load import NO_BROKER, Floats, cluster_arrays
from assignor_core.model import ClusterState
from assignor_core.planner.placement import Flags, Placement
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.problem import Problem, problem_of
from assignor_core.planner.proposal import with_drained
from assignor_core.reassignment_file import ReplicaLists
from assignor_core.wording import bytes_text, many

FACTOR_MAX = 2**15 - 1
"""Kafka's largest replication factor."""


def lists_with_factor(
    cluster: ClusterState,
    policy: PlannerPolicy,
    factors: Mapping[str, int],
    in_sync: Mapping[PartitionKey, Collection[int]],
) -> ReplicaLists:
    """Replica lists by which each topic of `factors` has its factor; partitions that have it already are left out.

    `in_sync` are the brokers whose replicas are in sync. Raises InputError where too few brokers may take a replica,
    or where none of them has room on its disks.
    """
    placement = Placement(cluster_arrays(with_drained(cluster, policy)))
    problem = problem_of(placement.arrays, policy, placement)
    chosen, partitions = _Chosen(problem, placement), placement.arrays.partitions
    index = {broker: place for place, broker in enumerate(placement.arrays.broker_ids)}
    concerned = [row for row, partition in enumerate(partitions) if partition.topic in factors]
    lists = {}
    for row in sorted(concerned, key=lambda row: (-float(placement.disk_bytes[row]), row)):
        partition = partitions[row]
        key, factor = partition.key, factors[partition.topic]
        replicas = [int(broker) for broker in placement.original[row] if broker != NO_BROKER]
        if len(replicas) == factor:
            continue
        synced = [index[broker] for broker in in_sync.get(key, ()) if broker in index]
        leader = replicas[0]
        while len(replicas) > factor:
            chosen.drop(row, replicas, leader, synced)
        while len(replicas) < factor:
            chosen.add(row, replicas, factor)
        lists[key] = tuple(placement.arrays.broker_ids[broker] for broker in replicas)
    return dict(sorted(lists.items()))


class _Chosen:
    """Loads and room on disks as replicas come and go; mutable. Replicas are broker indices, the leader first."""

    def __init__(self, problem: Problem, placement: Placement) -> None:
        self._problem = problem
        self._placement = placement
        self._racks = problem.arrays.racks
        self._loads = placement.loads.copy()
        self._room = problem.arrays.disk_room_bytes.copy()

    def add(self, row: int, replicas: list[int], factor: int) -> None:
        """One more replica of a partition, at the end of `replicas`."""
        size, following = float(self._placement.disk_bytes[row]), self._placement.following[row]
        partition = self._problem.arrays.partitions[row]
        name = partition_name(partition.key)
        sets = self._problem.arrays.sets
        able = self._problem.may_lead if sets is None else self._problem.may_lead & sets.members[sets.set_of[row]]
        may = able & ~np.isin(np.arange(len(self._room)), replicas)
        if not may.any():
            where = f"{int(able.sum())} {'' if sets is None else 'of its set '}may take replicas: add brokers"
            raise InputError(f"{name}: replication factor {factor} needs {many(factor, 'broker')}, {where}")
        fits = may & (self._room >= size) & self._within_capacity(following)
        if not fits.any():
            brokers = many(int(may.sum()), "broker")
            raise InputError(f"{name}: none of {brokers} has room for a replica of {bytes_text(size)}")
        in_rack = np.bincount(self._racks[replicas], minlength=int(self._racks.max()) + 1)[self._racks]
        fewest = fits & (in_rack == in_rack[fits].min())
        candidates = np.flatnonzero(fewest)
        rise = self._problem.cost(self._loads[candidates] + following, candidates) - self._problem.cost(
            self._loads[candidates], candidates
        )
        broker = int(candidates[np.argmin(rise)])
        self._loads[broker] += following
        self._room[broker] -= size
        replicas.append(broker)

    def drop(self, row: int, replicas: list[int], leader: int, synced: Collection[int]) -> None:
        """One replica of a partition less; never that of its `leader`, unless the broker is dead or draining."""
        alive = self._problem.arrays.alive
        able = [broker for broker in replicas if broker != leader or not alive[leader]]
        following = self._placement.following[row]

        def turn(broker: int) -> tuple[bool, bool, int, float]:
            in_rack = sum(self._racks[other] == self._racks[broker] for other in replicas)
            return bool(alive[broker]), broker in synced, -in_rack, -self._relief(broker, following)

        gone = min(able, key=turn)
        self._loads[gone] -= following
        replicas.remove(gone)

    def _within_capacity(self, following: Floats) -> Flags:
        within: Flags = np.all(self._loads + following <= self._problem.ceiling, axis=1)
        return within

    def _relief(self, broker: int, following: Floats) -> float:
        """By how much the objective falls if the broker loses this load; 0 for one that must end empty."""
        if not self._problem.share[broker].any():
            return 0.0
        before, after = self._loads[broker], self._loads[broker] - following
        return float(self._problem.cost(before, broker) - self._problem.cost(after, broker))
