"""Kafka's RangeAssignor: each topic in ranges, so that joined topics give one member the same partition numbers.

Where racks can be matched `match_racks` goes first (KIP-881): it places partitions where reader and replica share
a rack. The plain rule fills what it left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assignor_core.assignors.contract import GroupAssignment, GroupSpec
from assignor_core.assignors.indexed import UNASSIGNED, IndexedGroup, static_members_first
from assignor_core.assignors.partition_list import Ints
from assignor_core.assignors.racks import PartitionRacks, Racks, matches, member_racks, racks_matter, topic_racks


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


@dataclass(slots=True)
class _Topic:
    """A topic being filled: quota of each reader, and how many readers may still hold one more."""

    owner: Ints
    readers: list[int]
    racks: list[Racks]
    matter: bool
    quota: int
    extra: int
    held: dict[int, int]

    def room(self, reader: int) -> int:
        return max(0, self.quota + (self.extra > 0) - self.held[reader])

    def give(self, reader: int, partitions: Sequence[int]) -> None:
        self.owner[list(partitions)] = reader
        self.held[reader] += len(partitions)
        self.extra -= self.held[reader] > self.quota


def match_racks(group: IndexedGroup, partition_racks: PartitionRacks, owner: Ints) -> None:
    """Assign what can be matched, in `owner`; nothing where racks don't matter for any topic."""
    reader_racks = member_racks(group)
    if not any(reader_racks) or not partition_racks:
        return
    topics = [_topic(group, partition_racks, reader_racks, owner, number) for number in range(len(group.index.topics))]
    if not any(topic.matter for topic in topics):
        return
    joined: dict[tuple[tuple[int, ...], int], list[_Topic]] = {}
    for topic in topics:
        joined.setdefault((tuple(topic.readers), len(topic.racks)), []).append(topic)
    for alike in joined.values():
        if len(alike) > 1:
            _match_together(alike, reader_racks)
        elif alike[0].matter:
            _match_alone(alike[0], reader_racks)


def _topic(
    group: IndexedGroup, partition_racks: PartitionRacks, reader_racks: list[str | None], owner: Ints, number: int
) -> _Topic:
    readers = group.readers_by_topic[number].tolist()
    with_racks = any(reader_racks[reader] for reader in readers)
    # A topic whose readers have no rack has no racks in Kafka either; it is joined with none.
    racks = topic_racks(group, partition_racks, number) if with_racks else []
    start, end = group.index.starts[number : number + 2]
    quota, extra = divmod(int(end - start), len(readers))
    matter = racks_matter([reader_racks[reader] for reader in readers], racks)
    return _Topic(owner[start:end], readers, racks, matter, quota, extra, dict.fromkeys(readers, 0))


def _match_together(topics: list[_Topic], reader_racks: list[str | None]) -> None:
    """Co-partitioned topics: partition i of all of them at once, to the first reader that matches in every topic."""
    remaining = list(topics[0].readers)
    for partition in range(len(topics[0].racks)):
        reader = next((reader for reader in remaining if _fits(reader, partition, topics, reader_racks)), None)
        if reader is None:
            continue
        for topic in topics:
            topic.give(reader, [partition])
        if not any(topic.room(reader) for topic in topics):
            remaining.remove(reader)


def _fits(reader: int, partition: int, topics: list[_Topic], reader_racks: list[str | None]) -> bool:
    return all(matches(reader_racks[reader], topic.racks[partition]) and topic.room(reader) > 0 for topic in topics)


def _match_alone(topic: _Topic, reader_racks: list[str | None]) -> None:
    """Each reader in turn takes the first free partitions of its rack."""
    for reader in topic.readers:
        free = np.flatnonzero(topic.owner == UNASSIGNED).tolist()
        matching = [partition for partition in free if matches(reader_racks[reader], topic.racks[partition])]
        if matching and topic.room(reader):
            topic.give(reader, matching[: topic.room(reader)])
