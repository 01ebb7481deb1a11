"""Kafka's StickyAssignor: balance first, then keep what members own.

Chooses the algorithm: `sticky_constrained` where all members read the same topics, `sticky_general` otherwise.
"""

from assignor_core.assignors.contract import GroupAssignment, GroupSpec
from assignor_core.assignors.indexed import IndexedGroup
from assignor_core.assignors.ownership import Ownership, settle_claims
from assignor_core.assignors.partition_list import Ints
from assignor_core.assignors.sticky_constrained import assign_constrained
from assignor_core.assignors.sticky_general import assign_general


def assign_sticky(spec: GroupSpec) -> GroupAssignment:
    """Each partition to a member that reads it, as evenly as subscriptions allow, moving as little as that needs.

    >>> from assignor_core.assignors.contract import MemberSpec
    >>> members = {"c-1": MemberSpec(["t"], [("t", 2), ("t", 3), ("t", 4)]), "c-2": MemberSpec(["t"])}
    >>> {member: list(owned) for member, owned in assign_sticky(GroupSpec({"t": 5}, members)).assignment.items()}
    {'c-1': [('t', 2), ('t', 3), ('t', 4)], 'c-2': [('t', 0), ('t', 1)]}
    """
    group = IndexedGroup.of(spec)
    codes, owners = place_sticky(spec, group, settle_claims(group))
    return GroupAssignment(group.lists_of(codes, owners))


def place_sticky(spec: GroupSpec, group: IndexedGroup, ownership: Ownership) -> tuple[Ints, Ints]:
    """Every code once and the member beside it that gets it; the members' lists have this order."""
    if not group.index.partitions:
        return group.index.starts[:0], group.index.starts[:0]
    if subscriptions_equal(group):
        return assign_constrained(group, spec.partition_racks, ownership)
    return assign_general(group, spec.partition_racks, ownership)


def subscriptions_equal(group: IndexedGroup) -> bool:
    """Whether all lists hold the same topics, each once; unknown topics count, and an empty list differs."""
    if len(group.class_topics) == 1:
        return True
    lists = {
        number: member.topics for number, member in zip(group.class_of_member.tolist(), group.members, strict=True)
    }
    first = set(next(topics for topics in lists.values() if topics))
    return all(len(topics) == len(first) and first == set(topics) for topics in lists.values())
