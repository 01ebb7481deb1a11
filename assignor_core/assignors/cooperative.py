"""Kafka's CooperativeStickyAssignor (KIP-429): the sticky assignment, less what a live member has yet to give up."""

import numpy as np

from assignor_core.assignors.contract import GroupAssignment, GroupSpec
from assignor_core.assignors.indexed import UNASSIGNED, IndexedGroup
from assignor_core.assignors.ownership import Bools, Ownership, settle_claims
from assignor_core.assignors.partition_list import Ints, PartitionList
from assignor_core.assignors.sticky import place_sticky


def assign_cooperative(spec: GroupSpec) -> GroupAssignment:
    """The sticky assignment; a partition that changes hands is withheld until its owner has revoked it.

    >>> from assignor_core.assignors.contract import MemberSpec
    >>> members = {"c-1": MemberSpec(["t"], [("t", 0), ("t", 1)], 4), "c-2": MemberSpec(["t"])}
    >>> result = assign_cooperative(GroupSpec({"t": 2}, members))
    >>> {member: list(owned) for member, owned in result.assignment.items()}, list(result.transferring)
    ({'c-1': [('t', 0)], 'c-2': []}, [('t', 1)])
    """
    group = IndexedGroup.of(spec)
    ownership = settle_claims(group)
    return withhold(group, ownership, *place_sticky(spec, group, ownership))


def withhold(group: IndexedGroup, ownership: Ownership, codes: Ints, owners: Ints) -> GroupAssignment:
    """The assignment without what is withheld, which comes apart."""
    by_code = np.empty_like(owners)
    by_code[codes] = owners
    transferring = withheld(ownership, by_code)[codes]
    given = group.lists_of(codes[~transferring], owners[~transferring])
    return GroupAssignment(given, PartitionList(group.index, np.sort(codes[transferring])))


def withheld(ownership: Ownership, owner: Ints) -> Bools:
    """By code: what another live member than the new `owner` holds, and what two members claim: neither has to be
    believed."""
    is_withheld: Bools = ((ownership.holder != UNASSIGNED) & (ownership.holder != owner)) | ownership.contested
    return is_withheld
