"""Tables of partitions, log sizes and rates, written and read row by row: None stands for what is unknown."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from assignor_core.live import PartitionKey, ReplicaKey
from streaming.cluster.answer_columns import OffsetRows, TopicRows
from streaming.collect.partition_table import UNKNOWN, PartitionNames, PartitionTable, SizeTable, ints, known_or_none
from streaming.collect.rates import FOLLOWER, LEADER, ReplicaRateTable


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One row; the first local offset of a new row is the log start."""

    topic_id: str
    leader: int
    replicas: tuple[int, ...]
    adding_replicas: frozenset[int] = frozenset()
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    local_log_start_offset: int | None = None
    out_of_sync: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaRates:
    """One row of rates."""

    role: str
    bytes_in: float | None
    bytes_out: float | None
    messages_in: float | None
    size_bytes: int | None
    remote_records: int | None = None
    remote_size_bytes: int | None = None
    out_of_sync: int | None = None


def partition_table(views: Mapping[PartitionKey, PartitionView]) -> PartitionTable:
    """The table of rows in any order."""
    rows = sorted(views.items())
    ids = {key[0]: row.topic_id for key, row in rows}
    local = (
        row.log_start_offset if row.local_log_start_offset is None else row.local_log_start_offset for _, row in rows
    )
    return PartitionTable(
        _names([key for key, _ in rows]),
        tuple(ids[name] for name in sorted(ids)),
        ints(row.leader for _, row in rows),
        np.cumsum([0, *(len(row.replicas) for _, row in rows)], dtype=np.int64),
        ints(broker for _, row in rows for broker in row.replicas),
        {index: row.adding_replicas for index, (_, row) in enumerate(rows) if row.adding_replicas},
        ints(_or_unknown(row.log_start_offset) for _, row in rows),
        ints(_or_unknown(row.log_end_offset) for _, row in rows),
        ints(map(_or_unknown, local)),
        {index: row.out_of_sync for index, (_, row) in enumerate(rows) if row.out_of_sync},
    )


def partition_views(table: PartitionTable) -> dict[PartitionKey, PartitionView]:
    """All rows of a table."""
    begin = table.replicas_begin.tolist()
    return {
        key: PartitionView(
            table.topic_ids[int(table.names.topic[row])],
            int(table.leader[row]),
            tuple(table.replica_broker[begin[row] : begin[row + 1]].tolist()),
            table.adding.get(row, frozenset()),
            known_or_none(table.start[row]),
            known_or_none(table.end[row]),
            known_or_none(table.local_start[row]),
            table.out_of_sync.get(row, 0),
        )
        for row, key in enumerate(table.names.keys_of_rows())
    }


def size_table(sizes: Mapping[ReplicaKey, int]) -> SizeTable:
    """The table of rows in any order."""
    rows = sorted(sizes.items())
    names = _names([key for (_, key), _ in rows])
    return SizeTable(names, ints(broker for (broker, _), _ in rows), ints(size for _, size in rows))


def sizes_of(table: SizeTable) -> dict[ReplicaKey, int]:
    """All rows of a table."""
    keys = zip(table.broker.tolist(), table.names.keys_of_rows(), strict=True)
    return dict(zip(keys, table.size_bytes.tolist(), strict=True))


def offset_rows(offsets: Mapping[PartitionKey, int]) -> OffsetRows:
    """Committed offsets as an answer of OffsetFetch is decoded."""
    names = _names(list(offsets))
    rows = [(number, offset) for (_, number), offset in offsets.items()]
    return OffsetRows(TopicRows(names.topics, names.topic, np.array(rows, dtype=[("index", ">i4"), ("offset", ">i8")])))


def rates_of(table: ReplicaRateTable) -> dict[ReplicaKey, ReplicaRates]:
    """All rows of a table."""
    keys = zip(table.broker.tolist(), table.partitions.names.keys_of_rows(table.row.tolist()), strict=True)
    return {
        key: ReplicaRates(
            LEADER if table.leads[place] else FOLLOWER,
            _or_none(table.bytes_in[place]),
            _or_none(table.bytes_out[place]),
            _or_none(table.messages_in[place]),
            known_or_none(table.size_bytes[place]),
            known_or_none(table.remote_records[place]),
            known_or_none(table.remote_size_bytes[place]),
            known_or_none(table.out_of_sync[place]),
        )
        for place, key in enumerate(keys)
    }


def _names(keys: list[PartitionKey]) -> PartitionNames:
    topics = tuple(sorted({topic for topic, _ in keys}))
    place = {name: index for index, name in enumerate(topics)}
    return PartitionNames(topics, ints(place[topic] for topic, _ in keys), ints(number for _, number in keys))


def _or_unknown(value: int | None) -> int:
    return UNKNOWN if value is None else value


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
