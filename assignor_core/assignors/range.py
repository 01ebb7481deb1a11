"""Kafka's RangeAssignor: each topic in ranges, so that joined topics give one member the same partition numbers.

Owns the plain rule; `range_racks` goes first where racks can be matched, and the plain rule fills what it left.
"""

import numpy as np

from assignor_core.assignors.contract import GroupAssignment, GroupSpec
from assignor_core.assignors.indexed import UNASSIGNED, IndexedGroup, static_members_first
from assignor_core.assignors.range_racks import match_racks


def assign_range(spec: GroupSpec) -> GroupAssignment:
    """Per topic n div k partitions each, the first n mod k readers one more.

    >>> from assignor_core.assignors.contract import MemberSpec
    >>> members = {"c-1": MemberSpec(["t", "u"]), "c-2": MemberSpec(["t", "u"])}
    >>> result = assign_range(GroupSpec({"t": 3, "u": 3}, members))
    >>> {member: list(owned) for member, owned in result.assignment.items()}
    {'c-1': [('t', 0), ('t', 1), ('u', 0), ('u', 1)], 'c-2': [('t', 2), ('u', 2)]}
    """
    group = IndexedGroup.of(spec, static_members_first)
    owner = np.full(group.index.partitions, UNASSIGNED, dtype=np.int64)
    match_racks(group, spec.partition_racks, owner)
    for number, readers in enumerate(group.readers_by_topic):
        start, end = group.index.starts[number : number + 2]
        _fill_in_ranges(owner[start:end], readers)
    return GroupAssignment(group.lists_of(np.arange(group.index.partitions), owner))


def _fill_in_ranges(
    owner: np.ndarray[tuple[int], np.dtype[np.int64]], readers: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> None:
    """Give each reader in turn the first partitions that are free, up to its quota. `owner` is changed."""
    quota, extra = divmod(len(owner), len(readers))
    free = np.flatnonzero(owner == UNASSIGNED)
    if len(free) == len(owner):
        owner[:] = np.repeat(readers, quota + (np.arange(len(readers)) < extra))
        return
    place = np.searchsorted(readers, owner[owner != UNASSIGNED])
    held = np.bincount(place, minlength=len(readers))
    extra -= int((held > quota).sum())
    missing = np.empty(len(readers), dtype=np.int64)
    for position, count in enumerate(held.tolist()):
        takes_extra = count <= quota and extra > 0
        missing[position] = max(0, quota + takes_extra - count)
        extra -= takes_extra
    owner[free] = np.repeat(readers, missing)[: len(free)]
