"""What must hold of every assignment, whatever the strategy: the one checker that all tests use."""

from collections.abc import Mapping, Sequence

import numpy as np

from assignor_core.assignors.contract import GroupAssignment, GroupSpec, TopicPartition
from assignor_core.assignors.indexed import IndexedGroup
from assignor_core.assignors.ownership import settle_claims
from assignor_core.assignors.partition_list import PartitionList


def violations(spec: GroupSpec, result: GroupAssignment, *, cooperative: bool = False) -> list[str]:
    """What is wrong with an assignment, one sentence each; empty if it is valid and, if cooperative, safe."""
    return [
        *_members_wrong(spec, result),
        *_partitions_wrong(spec, result),
        *_readers_wrong(spec, result),
        *([*_given_too_early(spec, result), *_withheld_for_ever(spec, result)] if cooperative else []),
    ]


def unbalanced(spec: GroupSpec, assignment: Mapping[str, Sequence[TopicPartition]]) -> list[str]:
    """Partitions that could go to a member that holds two fewer and reads them."""
    sizes = {member_id: len(partitions) for member_id, partitions in assignment.items()}
    return [
        f"{topic}-{partition} of {member_id} ({size}) could go to {other} ({sizes[other]})"
        for member_id, size in sizes.items()
        for topic, partition in assignment[member_id]
        for other, member in spec.members.items()
        if sizes[other] + 1 < size and topic in member.topics
    ]


def kept(spec: GroupSpec, assignment: Mapping[str, Sequence[TopicPartition]]) -> int:
    """Stickiness: partitions that stay with a member that claimed to own them."""
    return sum(
        len(set(spec.members[member_id].owned_partitions) & set(partitions))
        for member_id, partitions in assignment.items()
    )


def holders(spec: GroupSpec) -> dict[TopicPartition, str]:
    """Who holds each partition now, by the highest generation; contested ones are left out."""
    group = IndexedGroup.of(spec)
    holder = settle_claims(group).holder
    partitions = PartitionList(group.index, np.arange(len(holder)))
    return {tp: group.member_ids[member] for tp, member in zip(partitions, holder, strict=True) if member >= 0}


def _members_wrong(spec: GroupSpec, result: GroupAssignment) -> list[str]:
    return [f"member {member} is in one only" for member in set(spec.members) ^ set(result.assignment)]


def _partitions_wrong(spec: GroupSpec, result: GroupAssignment) -> list[str]:
    read = {topic for member in spec.members.values() for topic in member.topics}
    expected = {
        (topic, partition)
        for topic, count in spec.partitions_per_topic.items()
        if topic in read
        for partition in range(count)
    }
    given = [tp for partitions in (*result.assignment.values(), result.transferring) for tp in partitions]
    twice = len(given) - len(set(given))
    wrong = [f"{tp} is missing or does not exist" for tp in expected ^ set(given)]
    return [*wrong, *([f"{twice} partitions are given twice"] if twice else [])]


def _readers_wrong(spec: GroupSpec, result: GroupAssignment) -> list[str]:
    return [
        f"{member_id} gets {topic}-{partition} and does not read it"
        for member_id, partitions in result.assignment.items()
        for topic, partition in partitions
        if member_id in spec.members and topic not in spec.members[member_id].topics
    ]


def _given_too_early(spec: GroupSpec, result: GroupAssignment) -> list[str]:
    """Cooperative safety."""
    held = holders(spec)
    return [
        f"{tp} goes to {member_id} while {held[tp]} holds it"
        for member_id, partitions in result.assignment.items()
        for tp in partitions
        if held.get(tp, member_id) != member_id
    ]


def _withheld_for_ever(spec: GroupSpec, result: GroupAssignment) -> list[str]:
    """What is withheld must have somebody who revokes it and joins again: who claims a topic and reads it."""
    revoked = {tp for member in spec.members.values() for tp in member.owned_partitions if tp[0] in member.topics}
    return [f"{tp} is withheld and nobody has it" for tp in result.transferring if tp not in revoked]
