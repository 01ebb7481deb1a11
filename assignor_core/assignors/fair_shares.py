"""What each member should carry: weights of partitions, and who shares them with whom. Judges and assigns nothing.

Members that read no topic in common, not even over others, have nothing to give each other. So fair shares are taken
within such circles: one share for all would ask members for what nobody else can take.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assignor_core.assignors.contract import GroupSpec
from assignor_core.assignors.indexed import IndexedGroup
from assignor_core.assignors.partition_list import Ints

Floats = npt.NDArray[np.float64]

LEAST_WEIGHT_OF_MEAN = 0.001
"""No partition is free: each counts at least this part of the mean, so that silent ones are spread too."""
SILENT = 1e-100
"""A mean below this is none: parts of it, as fair shares are, would be 0 in floats."""


@dataclass(frozen=True, slots=True)
class FairShares:
    """`of_member`: fair weight of each, 0 for one that reads nothing. Those that read nothing are the last circle."""

    of_member: Floats
    circle_of_member: Ints
    circle_of_code: Ints

    def used(self, loads: Floats) -> Floats:
        """Load of each member per fair share."""
        return np.divide(loads, self.of_member, out=np.zeros(len(loads)), where=self.of_member > 0)

    def highest(self, values: Floats) -> Floats:
        """Highest of the members' values (0 or more) in each circle."""
        highest = np.zeros(int(self.circle_of_member.max(initial=0)) + 1)
        np.maximum.at(highest, self.circle_of_member, values)
        return highest


def fair_shares(group: IndexedGroup, weights: Floats) -> FairShares:
    """The weight of all that a circle reads, in proportion to capacity.

    >>> from assignor_core.assignors.contract import MemberSpec
    >>> members = {"a": MemberSpec(["t"]), "b": MemberSpec(["t"]), "idle": MemberSpec([]), "other": MemberSpec(["u"])}
    >>> group = IndexedGroup.of(GroupSpec({"t": 2, "u": 1}, members))
    >>> fair_shares(group, np.array([3.0, 1.0, 9.0])).of_member.tolist()
    [2.0, 2.0, 0.0, 9.0]
    """
    circle_of_topic, circles = _circles(group)
    of_class = [int(circle_of_topic[topics[0]]) if len(topics) else circles for topics in group.class_topics]
    circle_of_member = np.array(of_class, dtype=np.int64)[group.class_of_member]
    circle_of_code = np.repeat(circle_of_topic, np.diff(group.index.starts))
    capacities = np.array([member.capacity for member in group.members])
    weight = np.bincount(circle_of_code, weights=weights, minlength=circles + 1)
    capacity = np.bincount(circle_of_member, weights=capacities, minlength=circles + 1)
    per_capacity = np.divide(weight, capacity, out=np.zeros(circles + 1), where=capacity > 0)
    return FairShares(capacities * per_capacity[circle_of_member], circle_of_member, circle_of_code)


def effective_weights(spec: GroupSpec, group: IndexedGroup) -> Floats:
    """Weight of every code: a missing one counts as the mean of those known, all missing as 1 each."""
    weights = group.weights(spec.partition_weights)
    known = weights[~np.isnan(weights)]
    mean = float(known.mean()) if len(known) else 0.0
    mean = mean if mean > SILENT else 1.0
    return np.maximum(np.where(np.isnan(weights), mean, weights), mean * LEAST_WEIGHT_OF_MEAN)


def _circles(group: IndexedGroup) -> tuple[Ints, int]:
    """Circle of each topic, and how many there are: topics are in one circle if a member reads both."""
    circle = np.arange(len(group.index.topics))
    for topics in group.class_topics:
        joined = np.unique(circle[topics])
        if len(joined) > 1:
            circle[np.isin(circle, joined)] = joined[0]
    circles, numbered = np.unique(circle, return_inverse=True)
    return numbered.astype(np.int64), len(circles)
