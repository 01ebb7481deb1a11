"""What brokers carry if a replica that serves its rack goes to another one, as repair may have to move it.

In the new rack it serves other consumers. Those that it leaves read from the replicas that stay: from one in their
rack, else from the leader. So each target takes a load of its own, and brokers of other replicas carry more or less.

Fractions of the total, as in `placement`. Nothing moves here.
"""

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.placement import Flags, Indices, Placement
from assignor_core.planner.problem import Problem


class ToAnyRack:
    """One replica of a partition that followers serve, and each broker that it could go to."""

    def __init__(self, problem: Problem, placement: Placement, partition: int, slot: int) -> None:
        self._problem, self._placement = problem, placement
        replicas = placement.replicas[partition]
        self._replicas = replicas[replicas != NO_BROKER].tolist()
        self._source = self._replicas[slot]
        now = self._served(partition, self._replicas)
        # Brokers of one rack differ in nothing here, so one of each stands for all.
        _, first, rack_of = np.unique(problem.arrays.racks, return_index=True, return_inverse=True)
        there = [[*self._replicas[:slot], int(broker), *self._replicas[slot + 1 :]] for broker in first]
        then = np.stack([self._served(partition, row) for row in there])
        role = placement.leading if slot == 0 else placement.following
        self.taken: Floats = (role[partition] + then[:, slot])[rack_of]
        """B x C load that each broker would take."""
        stay = [place for place in range(len(self._replicas)) if place != slot]
        self._others = np.array(self._replicas)[stay]
        self._change: Floats = (then - now)[rack_of][:, stay]
        """B x R x C by which the broker of each other replica would carry more."""

    def with_room(self) -> Flags:
        """B: targets where neither they nor the brokers of other replicas get more than their capacity."""
        ceiling, loads = self._problem.ceiling, self._placement.loads
        fits: Flags = np.all(loads + self.taken <= ceiling, axis=1)
        if self._problem.arrays.dead[self._source]:
            return fits  # it serves nobody: the others carry already what is read in its rack
        others = (self._change <= 0) | (loads[self._others] + self._change <= ceiling[self._others])
        room: Flags = fits & np.all(others, axis=(1, 2))
        return room

    def harm_to_others(self, targets: Indices) -> Floats:
        """By how much each of `targets` raises the objective of the brokers of other replicas."""
        harm = np.zeros(len(targets))
        for place, broker in enumerate(self._others.tolist()):
            if self._problem.share[broker].any():  # one that must end empty has no objective
                here = self._placement.loads[broker]
                then = here + self._change[targets, place]
                harm += self._problem.cost(then, broker) - self._problem.cost(here, broker)
        return harm

    def _served(self, partition: int, replicas: list[int]) -> Floats:
        """R x C: what each of these replicas of the partition would serve to the consumers of racks."""
        served = np.zeros((len(replicas), self._placement.loads.shape[1]))
        if self._placement.in_racks is not None:
            self._placement.in_racks.add_to_brokers(served, list(range(len(replicas))), partition, replicas, 1.0)
        return served
