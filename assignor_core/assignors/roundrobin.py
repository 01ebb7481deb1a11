"""Kafka's RoundRobinAssignor: all partitions in order, dealt round the members that read them. Racks play no part."""

from bisect import bisect_left

import numpy as np

from assignor_core.assignors.contract import GroupAssignment, GroupSpec
from assignor_core.assignors.indexed import IndexedGroup, static_members_first


def assign_round_robin(spec: GroupSpec) -> GroupAssignment:
    """One pointer goes round the members, over all topics, and passes over members that don't read the topic.

    >>> from assignor_core.assignors.contract import MemberSpec
    >>> members = {"c-1": MemberSpec(["t"]), "c-2": MemberSpec(["t", "u"])}
    >>> result = assign_round_robin(GroupSpec({"t": 3, "u": 2}, members))
    >>> {member: list(owned) for member, owned in result.assignment.items()}
    {'c-1': [('t', 0), ('t', 2)], 'c-2': [('t', 1), ('u', 0), ('u', 1)]}
    """
    group = IndexedGroup.of(spec, static_members_first)
    owner = np.empty(group.index.partitions, dtype=np.int64)
    pointer = 0
    for number, readers in enumerate(group.readers_by_topic):
        start, end = group.index.starts[number : number + 2].tolist()
        first = bisect_left(readers, pointer) % len(readers)
        owner[start:end] = np.resize(np.roll(readers, -first), end - start)
        pointer = (int(owner[end - 1]) + 1) % len(group.members)
    return GroupAssignment(group.lists_of(np.arange(group.index.partitions), owner))
