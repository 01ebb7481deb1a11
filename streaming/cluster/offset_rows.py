"""Committed offsets of one group in columns, as they were decoded: most groups are only ever added up.

A mapping for whoever looks at single partitions; the dictionary behind it is made when that happens for the first time.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from functools import cached_property

import numpy as np
import numpy.typing as npt

from assignor_core.live import PartitionKey
from streaming.cluster.answer_columns import TopicRows

Ints = npt.NDArray[np.int64]


class OffsetRows(Mapping[PartitionKey, int]):
    """Offset by partition that has one; `topic` is the place of each row's topic in `topics`."""

    def __init__(self, rows: TopicRows) -> None:
        offset = rows.column("offset")
        has_one = offset >= 0
        self.topics = rows.topics
        self.topic: Ints = rows.topic[has_one]
        self.number: Ints = rows.column("index")[has_one]
        self.offset: Ints = offset[has_one]

    def among(self, partitions: Mapping[str, int]) -> "OffsetRows":
        """The offsets of partitions that exist; `partitions` has the number of partitions of each topic."""
        counts = np.array([partitions.get(topic, 0) for topic in self.topics], dtype=np.int64)
        if not len(counts):
            return self
        exists = (self.number >= 0) & (self.number < counts[self.topic])
        if exists.all():
            return self
        kept = copy(self)
        kept.__dict__.pop("_by_key", None)
        kept.topic, kept.number, kept.offset = self.topic[exists], self.number[exists], self.offset[exists]
        return kept

    def __getitem__(self, key: PartitionKey) -> int:
        return self._by_key[key]

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self.offset)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, OffsetRows) and self.topics == other.topics:
            same = (np.array_equal(getattr(self, name), getattr(other, name)) for name in ("topic", "number", "offset"))
            if all(same):
                return True
        return isinstance(other, Mapping) and self._by_key == dict(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._by_key})"

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def _by_key(self) -> dict[PartitionKey, int]:
        columns = zip(self.topic.tolist(), self.number.tolist(), self.offset.tolist(), strict=True)
        return {(self.topics[topic], number): offset for topic, number, offset in columns}
