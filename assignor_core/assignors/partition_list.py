"""Partitions as one integer each, and lists of them that turn into (topic, partition) pairs only when read.

A million pairs cost a Python object each; an assignor that computes in arrays would spend most of its time on making
them. `PartitionList` is a sequence of pairs like any other; `len` is free, the first reading of pairs pays for them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from assignor_core.assignors.contract import TopicPartition

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TopicIndex:
    """Topics in Java's string order; partition `p` of topic number `t` has code `starts[t] + p`."""

    topics: tuple[str, ...]
    starts: Ints
    number_of: Mapping[str, int]

    @classmethod
    def of(cls, topics: Sequence[str], counts: Sequence[int]) -> "TopicIndex":
        """Index topics that are in order already; `counts` are their partitions, each 1 or more."""
        starts = np.zeros(len(topics) + 1, dtype=np.int64)
        np.cumsum(counts, out=starts[1:])
        return cls(tuple(topics), starts, {topic: number for number, topic in enumerate(topics)})

    @property
    def partitions(self) -> int:
        """Returns the number of all partitions."""
        return int(self.starts[-1])

    def topic_numbers(self, codes: Ints) -> Ints:
        """Topic number of each code."""
        return np.searchsorted(self.starts, codes, side="right") - 1

    def partition_of_every_code(self) -> Ints:
        """Partition number of the codes 0, 1, 2, ..."""
        return np.arange(self.partitions) - np.repeat(self.starts[:-1], np.diff(self.starts))


class PartitionList(Sequence[TopicPartition]):
    """An unchangeable sequence of (topic, partition) pairs, kept as codes.

    >>> index = TopicIndex.of(["a", "b"], [2, 3])
    >>> listed = PartitionList(index, np.array([1, 4]))
    >>> listed, len(listed), listed == (("a", 1), ("b", 2))
    (PartitionList([('a', 1), ('b', 2)]), 2, True)
    """

    __slots__ = ("codes", "topic_index")

    def __init__(self, topic_index: TopicIndex, codes: Ints) -> None:
        self.topic_index = topic_index
        self.codes = codes

    def pairs(self) -> list[TopicPartition]:
        """Returns all pairs as new tuples."""
        numbers = self.topic_index.topic_numbers(self.codes)
        partitions = (self.codes - self.topic_index.starts[numbers]).tolist()
        return list(zip(map(self.topic_index.topics.__getitem__, numbers.tolist()), partitions, strict=True))

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.pairs())

    @overload
    def __getitem__(self, position: int) -> TopicPartition: ...

    @overload
    def __getitem__(self, position: slice) -> "PartitionList": ...

    def __getitem__(self, position: int | slice) -> "TopicPartition | PartitionList":
        if isinstance(position, slice):
            return PartitionList(self.topic_index, self.codes[position])
        return PartitionList(self.topic_index, self.codes[[position]]).pairs()[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(other) == len(self) and all(map(_same, self, other))

    __hash__ = None  # type: ignore[assignment]  # compares by content with lists and tuples alike

    def __repr__(self) -> str:
        return f"PartitionList({self.pairs()!r})"


def _same(one: TopicPartition, other: object) -> bool:
    return one == other
