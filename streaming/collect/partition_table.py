"""Partitions and replicas as columns, one array for each field: a fleet has hundreds of thousands of rows.

Both tables are mappings too, row by row, for whoever looks at a few of them. An offset or a size that is unknown is
UNKNOWN in its column, and None in a row. Pure; knows neither Kafka nor time.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
PartitionKey = tuple[str, int]
ReplicaKey = tuple[int, PartitionKey]
"""(broker, (topic, partition))."""

UNKNOWN = -1
NO_LEADER = -1
NUMBER_BITS = 32
BROKER_BITS = 32


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Metadata and offsets of one partition; `topic_id` changes when a topic is deleted and made again.

    `local_log_start_offset` is the first offset on the leader's disk (KIP-405); None in a new row is the log start.
    """

    topic_id: str
    leader: int
    replicas: tuple[int, ...]
    adding_replicas: frozenset[int] = frozenset()
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    local_log_start_offset: int | None = None
    out_of_sync: int = 0


@dataclass(frozen=True, eq=False)
class PartitionNames:
    """Some partitions: `topic` is the place of its name in `topics`, `number` the partition's number."""

    topics: tuple[str, ...]
    topic: Ints
    number: Ints

    def keys_of_rows(self, rows: Iterable[int] | None = None) -> list[PartitionKey]:
        """Returns the (topic, partition) of `rows`, or of all rows."""
        chosen = slice(None) if rows is None else np.fromiter(rows, np.int64)
        names = self.topics
        return [
            (names[topic], number)
            for topic, number in zip(self.topic[chosen].tolist(), self.number[chosen].tolist(), strict=True)
        ]


@dataclass(frozen=True, eq=False)
class PartitionTable(Mapping[PartitionKey, PartitionView]):
    """Partitions in order of topic and number; `topics` are in order, too, each with its id.

    The replicas of row i are `replica_broker[replicas_begin[i] : replicas_begin[i + 1]]`, the preferred leader first.
    """

    names: PartitionNames
    topic_ids: tuple[str, ...]
    leader: Ints
    replicas_begin: Ints
    replica_broker: Ints
    adding: Mapping[int, frozenset[int]]
    """Replicas that a reassignment adds, by row."""
    start: Ints
    end: Ints
    local_start: Ints
    """First offset on the leader's disk. What is between `start` and it is in remote storage alone (KIP-405)."""
    out_of_sync: Mapping[int, int] = field(default_factory=dict)
    """How many replicas are not in sync by row, where there are any, without those that a reassignment adds."""

    @classmethod
    def of(cls, partitions: Mapping[PartitionKey, PartitionView]) -> Self:
        """From rows in any order."""
        rows = sorted(partitions.items())
        topics = tuple(sorted({key[0] for key in partitions}))
        place = {name: index for index, name in enumerate(topics)}
        ids = {key[0]: row.topic_id for key, row in rows}
        return cls(
            PartitionNames(topics, ints(place[key[0]] for key, _ in rows), ints(key[1] for key, _ in rows)),
            tuple(ids[name] for name in topics),
            ints(row.leader for _, row in rows),
            np.cumsum([0, *(len(row.replicas) for _, row in rows)], dtype=np.int64),
            ints(broker for _, row in rows for broker in row.replicas),
            {index: row.adding_replicas for index, (_, row) in enumerate(rows) if row.adding_replicas},
            ints(_or_unknown(row.log_start_offset) for _, row in rows),
            ints(_or_unknown(row.log_end_offset) for _, row in rows),
            ints(_or_unknown(_local_start_of(row)) for _, row in rows),
            {index: row.out_of_sync for index, (_, row) in enumerate(rows) if row.out_of_sync},
        )

    def rows_of(self, names: PartitionNames) -> Ints:
        """The row of each of these partitions; UNKNOWN where it is not in this table."""
        own = self.names
        if names is own or (
            names.topics == own.topics
            and np.array_equal(names.topic, own.topic)
            and np.array_equal(names.number, own.number)
        ):
            return np.arange(len(self))
        places = ints(self._place.get(name, UNKNOWN) for name in names.topics)
        topic = places[names.topic] if len(places) else names.topic
        return np.where(topic >= 0, positions(self._keys, topic << NUMBER_BITS | names.number), UNKNOWN)

    def rows_of_same_topics(self, later: "PartitionTable") -> Ints:
        """The row of each partition of `later`; UNKNOWN where it is not in this table, or of a topic made again."""
        return self.rows_with_ids(later.names, later.topic_ids)

    def rows_with_ids(self, names: PartitionNames, topic_ids: Iterable[str | None]) -> Ints:
        """The row of each of these partitions; UNKNOWN where it is not in this table, or its topic has another id.

        `topic_ids` are in the order of `names.topics`.
        """
        rows = self.rows_of(names)
        topics = zip(names.topics, topic_ids, strict=True)
        is_same = np.array([self._id_by_topic.get(name) == topic_id for name, topic_id in topics], dtype=bool)
        return np.where(is_same[names.topic], rows, UNKNOWN) if len(is_same) else rows

    def replicas_of(self, row: int) -> tuple[int, ...]:
        """Brokers that hold one partition."""
        return tuple(self.replica_broker[self.replicas_begin[row] : self.replicas_begin[row + 1]].tolist())

    def log_end_of(self, key: PartitionKey) -> int | None:
        """Returns the log end of one partition; None where it is unknown."""
        row = self._row_by_key.get(key)
        return None if row is None else known_or_none(self.end[row])

    @cached_property
    def count_by_topic(self) -> dict[str, int]:
        """How many partitions each topic has, by the highest of their numbers: they are numbered from 0 on."""
        topics, last = np.unique(self.names.topic[::-1], return_index=True)
        highest = self.names.number[::-1][last]
        return {
            self.names.topics[topic]: number + 1
            for topic, number in zip(topics.tolist(), highest.tolist(), strict=True)
        }

    @cached_property
    def replica_row(self) -> Ints:
        """The row of each entry of `replica_broker`."""
        return np.repeat(np.arange(len(self)), np.diff(self.replicas_begin))

    def is_adding(self, rows: Ints, brokers: Ints) -> npt.NDArray[np.bool_]:
        """Whether a reassignment adds the replica of each row on the broker beside it."""
        pairs = [row << BROKER_BITS | broker for row, added in self.adding.items() for broker in added]
        return np.isin(rows << BROKER_BITS | brokers, ints(pairs))

    def __getitem__(self, key: PartitionKey) -> PartitionView:
        row = self._row_by_key[key]
        return PartitionView(
            self.topic_ids[int(self.names.topic[row])],
            int(self.leader[row]),
            self.replicas_of(row),
            self.adding.get(row, frozenset()),
            known_or_none(self.start[row]),
            known_or_none(self.end[row]),
            known_or_none(self.local_start[row]),
            self.out_of_sync.get(row, 0),
        )

    def __contains__(self, key: object) -> bool:
        return key in self._row_by_key

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self.names.keys_of_rows())

    def __len__(self) -> int:
        return len(self.leader)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names.topics)}

    @cached_property
    def _id_by_topic(self) -> dict[str, str]:
        return dict(zip(self.names.topics, self.topic_ids, strict=True))

    @cached_property
    def _keys(self) -> Ints:
        return self.names.topic << NUMBER_BITS | self.names.number

    @cached_property
    def _row_by_key(self) -> dict[PartitionKey, int]:
        return {key: row for row, key in enumerate(self.names.keys_of_rows())}


@dataclass(frozen=True, eq=False)
class SizeTable(Mapping[ReplicaKey, int]):
    """Log sizes of replicas, bytes, as log dirs show them; they may name partitions that metadata doesn't have."""

    names: PartitionNames
    broker: Ints
    size_bytes: Ints
    _sought: dict[str, tuple[PartitionTable, Ints, Ints]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, sizes: Mapping[ReplicaKey, int]) -> Self:
        """From rows in any order."""
        rows = sorted(sizes.items())
        topics = tuple(sorted({key[0] for (_, key), _ in rows}))
        place = {name: index for index, name in enumerate(topics)}
        names = PartitionNames(
            topics, ints(place[key[0]] for (_, key), _ in rows), ints(key[1] for (_, key), _ in rows)
        )
        return cls(names, ints(broker for (broker, _), _ in rows), ints(size for _, size in rows))

    def on(self, partitions: PartitionTable, rows: Ints, brokers: Ints) -> Ints:
        """Size of the replica of each of these partitions on the broker beside it; UNKNOWN where it isn't shown."""
        keys, sizes = self._in_order_of(partitions)
        place = positions(keys, rows << BROKER_BITS | brokers)
        return column_at(sizes, np.where((rows >= 0) & (brokers >= 0), place, UNKNOWN))

    def _in_order_of(self, partitions: PartitionTable) -> tuple[Ints, Ints]:
        """(Keys of row and broker in order, sizes beside them), kept for the table that was asked about last."""
        kept = self._sought.get("")
        if kept is None or kept[0] is not partitions:
            keys = partitions.rows_of(self.names) << BROKER_BITS | self.broker
            order = np.argsort(keys, kind="stable")
            kept = self._sought[""] = (partitions, keys[order], self.size_bytes[order])
        return kept[1:]

    def __getitem__(self, key: ReplicaKey) -> int:
        return self._by_key[key]

    def __iter__(self) -> Iterator[ReplicaKey]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self.broker)

    @cached_property
    def _by_key(self) -> dict[ReplicaKey, int]:
        keys = zip(self.broker.tolist(), self.names.keys_of_rows(), strict=True)
        return dict(zip(keys, self.size_bytes.tolist(), strict=True))


def ints(values: Iterable[int]) -> Ints:
    """A column of whole numbers."""
    return np.array(list(values), dtype=np.int64)


def known_or_none(value: int | np.int64) -> int | None:
    """A figure of a column as a row shows it."""
    return None if value == UNKNOWN else int(value)


def column_at(column: Ints, rows: Ints) -> Ints:
    """The column's value of each row; UNKNOWN where there is none."""
    return np.where(rows >= 0, column[np.maximum(rows, 0)], UNKNOWN) if len(column) else np.full(len(rows), UNKNOWN)


def positions(keys: Ints, wanted: Ints) -> Ints:
    """Returns the index of each of `wanted` in `keys`, which are in order; UNKNOWN where `keys` doesn't have it.

    >>> positions(np.array([2, 4, 6]), np.array([4, 5, 6]))
    array([ 1, -1,  2])
    """
    if not len(keys):
        return np.full(len(wanted), UNKNOWN)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, place, UNKNOWN)


def _or_unknown(value: int | None) -> int:
    return UNKNOWN if value is None else value


def _local_start_of(row: PartitionView) -> int | None:
    return row.log_start_offset if row.local_log_start_offset is None else row.local_log_start_offset
