"""Partitions and replicas as columns, one array for each field: a fleet has hundreds of thousands of rows.

An offset or a size that is unknown is UNKNOWN in its column. Pure; knows neither Kafka nor time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from assignor_core.live import PartitionKey

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

CONSUMER_OFFSETS, TRANSACTION_STATE = "__consumer_offsets", "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"})
"""Topics in which Kafka's coordinators keep their state."""
UNKNOWN = -1
NUMBER_BITS = 32
BROKER_BITS = 32


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
class PartitionTable:
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

    def is_adding(self, rows: Ints, brokers: Ints) -> Flags:
        """Whether a reassignment adds the replica of each row on the broker beside it."""
        pairs = [row << BROKER_BITS | broker for row, added in self.adding.items() for broker in added]
        return np.isin(rows << BROKER_BITS | brokers, ints(pairs))

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
class SizeTable:
    """Log sizes of replicas, bytes, as log dirs show them; they may name partitions that metadata doesn't have."""

    names: PartitionNames
    broker: Ints
    size_bytes: Ints
    _sought: dict[str, tuple[PartitionTable, Ints, Ints]] = field(default_factory=dict, init=False)

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
