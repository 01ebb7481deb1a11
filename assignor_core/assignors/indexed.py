"""A group turned into arrays: members and topics as numbers, partitions as codes. What every strategy computes on.

Topics nobody reads, unknown topics and empty ones are left out here, once for all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from assignor_core.assignors.contract import GroupSpec, MemberSpec, TopicPartition
from assignor_core.assignors.partition_list import Ints, PartitionList, TopicIndex
from assignor_core.ordering import utf16_order

MemberOrder = Callable[[tuple[str, MemberSpec]], tuple[int, bytes]]
UNASSIGNED = -1


def by_member_id(member: tuple[str, MemberSpec]) -> tuple[int, bytes]:
    """Sort key of members in the sticky strategies."""
    return 0, utf16_order(member[0])


def static_members_first(member: tuple[str, MemberSpec]) -> tuple[int, bytes]:
    """Order of range and round robin: by group instance id where there is one, then the rest by member id."""
    instance_id = member[1].group_instance_id
    return (1, utf16_order(member[0])) if instance_id is None else (0, utf16_order(instance_id))


@dataclass(frozen=True, slots=True)
class IndexedGroup:
    """Members with the same topics share a class (`class_of_member`), whose sorted topic numbers are `class_topics`."""

    member_ids: tuple[str, ...]
    members: tuple[MemberSpec, ...]
    index: TopicIndex
    class_of_member: Ints
    class_topics: tuple[Ints, ...]
    readers_by_topic: tuple[Ints, ...]

    @classmethod
    def of(cls, spec: GroupSpec, order: MemberOrder = by_member_id) -> "IndexedGroup":
        """Index a group with its members in `order`."""
        ordered = sorted(spec.members.items(), key=order)
        classes: dict[tuple[str, ...], int] = {}
        class_of_member = np.array(
            [classes.setdefault(tuple(member.topics), len(classes)) for _, member in ordered], dtype=np.int64
        )
        read = {topic for topics in classes for topic in topics if spec.partitions_per_topic.get(topic, 0) > 0}
        topics = sorted(read, key=utf16_order)
        index = TopicIndex.of(topics, [spec.partitions_per_topic[topic] for topic in topics])
        class_topics = tuple(_topic_numbers(index, topics) for topics in classes)
        return cls(
            member_ids=tuple(member_id for member_id, _ in ordered),
            members=tuple(member for _, member in ordered),
            index=index,
            class_of_member=class_of_member,
            class_topics=class_topics,
            readers_by_topic=_readers_by_topic(len(topics), class_of_member, class_topics),
        )

    def lists_of(self, codes: Ints, members: Ints) -> dict[str, Sequence[TopicPartition]]:
        """Partitions by member id from two parallel arrays; each member's keep their order. UNASSIGNED is left out."""
        if (members == UNASSIGNED).any():
            codes, members = codes[members != UNASSIGNED], members[members != UNASSIGNED]
        count = len(self.member_ids)
        grouped = codes[stable_order(members, count)]
        bounds = _bounds(members, count)
        return {
            member_id: PartitionList(self.index, grouped[start:end])
            for member_id, start, end in zip(self.member_ids, bounds[:-1], bounds[1:], strict=True)
        }

    def reads(self, members: Ints, topics: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether each member reads the topic beside it."""
        width = max(1, len(self.index.topics))
        known = np.concatenate(
            [number * width + topics for number, topics in enumerate(self.class_topics)] or [np.empty(0, np.int64)]
        )
        if len(known) == 0:
            return np.zeros(len(members), dtype=np.bool_)
        wanted = self.class_of_member[members] * width + topics
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        reads: np.ndarray[tuple[int], np.dtype[np.bool_]] = known[place] == wanted
        return reads

    def weights(self, spec_weights: Mapping[str, Sequence[float]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Weight of every code; NaN where none is given."""
        weights = np.full(self.index.partitions, np.nan)
        for number, topic in enumerate(self.index.topics):
            start, end = self.index.starts[number : number + 2]
            given = np.asarray(spec_weights.get(topic, ())[: end - start], dtype=np.float64)
            weights[start : start + len(given)] = given
        return weights


def stable_order(numbers: Ints, limit: int) -> Ints:
    """Stable argsort of numbers from 0 up to `limit`; 16-bit numbers are sorted by radix, ten times as fast."""
    return np.argsort(numbers.astype(np.uint16) if limit <= 1 << 16 else numbers, kind="stable")


def _topic_numbers(index: TopicIndex, topics: Iterable[str]) -> Ints:
    return np.array(sorted({index.number_of[topic] for topic in topics if topic in index.number_of}), dtype=np.int64)


def _readers_by_topic(topics: int, class_of_member: Ints, class_topics: tuple[Ints, ...]) -> tuple[Ints, ...]:
    if len(class_topics) == 1:
        everybody = np.arange(len(class_of_member))
        return (everybody,) * topics
    topics_of_member = [class_topics[number] for number in class_of_member]
    sizes = np.array([len(numbers) for numbers in topics_of_member], dtype=np.int64)
    pair_topics = np.concatenate([*topics_of_member, np.empty(0, np.int64)])
    pair_members = np.repeat(np.arange(len(sizes)), sizes)[stable_order(pair_topics, topics)]
    bounds = _bounds(pair_topics, topics)
    return tuple(pair_members[start:end] for start, end in pairwise(bounds))


def _bounds(numbers: Ints, limit: int) -> list[int]:
    """Returns the index at which each number starts among the sorted numbers, and the end index."""
    return [0, *np.cumsum(np.bincount(numbers, minlength=limit)).tolist()]
