"""Who owns what before a sticky assignment: claims of all members, with their generations, settled.

A claim counts if the partition exists and its member reads the topic. The highest generation wins; at the same
generation nobody keeps the partition, also where one member lists it twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assignor_core.assignors.contract import NO_GENERATION, PARTITIONS_MAX, TopicPartition
from assignor_core.assignors.indexed import UNASSIGNED, IndexedGroup
from assignor_core.assignors.partition_list import Ints, PartitionList, TopicIndex

GENERATION_MAX = 2**31 - 1
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Ownership:
    """By code. `holder`: member with the winning claim, or UNASSIGNED; `contested`: claimed twice at one generation;
    `earlier_holder`: member with the newest claim of a generation below the group's newest, or UNASSIGNED.

    `unread_claims`: whether a member claimed partitions of a topic that it doesn't read.
    """

    holder: Ints
    contested: Bools
    earlier_holder: Ints
    unread_claims: bool


def settle_claims(group: IndexedGroup) -> Ownership:
    """Settle the owned partitions of all members.

    A claim on a topic that its member doesn't read is dropped, in cooperative groups too: the protocol (KIP-429) has a
    member give up such partitions before it joins. Kafka's own class withholds them, and as their member has nothing
    to revoke, nobody joins again and nobody reads them.
    """
    codes, members = _claims(group)
    claimed = len(codes)
    if len(group.class_topics) > 1:
        read = group.reads(members, group.index.topic_numbers(codes))
        codes, members = codes[read], members[read]
    holder = np.full(group.index.partitions, UNASSIGNED, dtype=np.int64)
    contested = np.zeros(group.index.partitions, dtype=np.bool_)
    holder[codes] = members
    claims = np.bincount(codes, minlength=group.index.partitions)
    generations = _generations(group)
    if len(codes) and claims.max() > 1:
        disputed = claims[codes] > 1
        _settle_disputed(codes[disputed], members[disputed], generations, holder, contested)
    earlier_holder = _earlier_holder(group.index, codes, members, generations)
    return Ownership(holder, contested, earlier_holder, unread_claims=len(codes) < claimed)


def _generations(group: IndexedGroup) -> Ints:
    """By member; a generation is an int32 in Kafka."""
    bounded = [min(max(NO_GENERATION, member.generation_id), GENERATION_MAX) for member in group.members]
    return np.array(bounded, dtype=np.int64)


def _claims(group: IndexedGroup) -> tuple[Ints, Ints]:
    """Codes of the partitions that exist and the members beside them."""
    by_member = [_codes(group.index, member.owned_partitions) for member in group.members]
    sizes = [len(codes) for codes in by_member]
    return np.concatenate([*by_member, np.empty(0, np.int64)]), np.repeat(np.arange(len(sizes)), sizes)


def _codes(index: TopicIndex, owned: Sequence[TopicPartition]) -> Ints:
    """Codes of the partitions that exist."""
    if not owned:
        return np.empty(0, np.int64)
    if isinstance(owned, PartitionList):
        number_of_theirs = np.array([index.number_of.get(topic, -1) for topic in owned.topic_index.topics])
        theirs = owned.topic_index.topic_numbers(owned.codes)
        topics, partitions = number_of_theirs[theirs], owned.codes - owned.topic_index.starts[theirs]
    else:
        number_of = index.number_of
        numbers = [number for _, number in owned]
        if min(numbers) < 0 or max(numbers) >= PARTITIONS_MAX:
            # No partition can have such a number, and it may be too large for an array.
            return _codes(index, [claim for claim in owned if 0 <= claim[1] < PARTITIONS_MAX])
        topics = np.array([number_of.get(topic, -1) for topic, _ in owned])
        partitions = np.array(numbers)
    counts = np.append(np.diff(index.starts), 0)
    exists = (partitions >= 0) & (partitions < counts[topics])
    codes: Ints = index.starts[topics[exists]] + partitions[exists]
    return codes


def _settle_disputed(codes: Ints, members: Ints, generations: Ints, holder: Ints, contested: Bools) -> None:
    order = np.lexsort((generations[members], codes))
    codes, members = codes[order], members[order]
    last = np.flatnonzero(np.append(codes[1:] != codes[:-1], True))
    tied = generations[members[last]] == generations[members[last - 1]]
    holder[codes[last]] = np.where(tied, UNASSIGNED, members[last])
    contested[codes[last]] = tied


def _earlier_holder(index: TopicIndex, codes: Ints, members: Ints, generations: Ints) -> Ints:
    """Returns earlier holders, also one that nobody outbids, as it missed a generation and should get its partition."""
    earlier_holder = np.full(index.partitions, UNASSIGNED, dtype=np.int64)
    older = generations < generations.max(initial=NO_GENERATION)
    if not older.any():
        return earlier_holder
    codes, members = codes[older[members]], members[older[members]]
    # Of members with the same generation the first by id comes last, and stays.
    order = np.lexsort((-members, generations[members]))
    earlier_holder[codes[order]] = members[order]
    return earlier_holder
