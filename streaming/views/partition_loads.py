"""What the rows of `partition_load` of one window add up to, read again only where that window has other rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from streaming import tables
from streaming.contract.records import OUT_OF_SYNC_REPLICAS, PARTITION_MAX, REMOTE_RECORDS, REMOTE_SIZE_BYTES
from streaming.tables import TableReader, at_most
from streaming.views.broker_windows import Bounds, bounds_of
from streaming.views.spans import of_window

TABLE = "partition_load"
FAR_OFF = 1_000
"""So many times the partitions of a topic that are shown, and so many, is a number that no partition of it has."""
_COLUMNS = (
    "broker", "topic", "partition", "role", "bytes_in_per_sec", "bytes_out_per_sec", "size_bytes",
    REMOTE_RECORDS.name, REMOTE_SIZE_BYTES.name, OUT_OF_SYNC_REPLICAS.name, "last_event_time_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HotPartition:
    """A partition among those with most bytes written."""

    broker: int
    topic: str
    partition: int
    bytes_in_per_sec: float


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """One topic, as its replicas were reported in one window; sums are None where no partition's figure is known."""

    partitions: int
    replicas: int
    replication_factor: int
    """Largest number of replicas of any partition of the topic."""
    partitions_with_fewer: int
    """Number of partitions with fewer reported replicas than `replication_factor`."""
    bytes_in_per_sec: float | None
    bytes_out_per_sec: float | None
    size_bytes: int | None
    """Size of the leaders' logs, in which each record counts once."""
    partitions_under_replicated: int | None
    """Partitions with a replica that is not in sync; None where no producer of samples shows replicas in sync."""


@dataclass(frozen=True, slots=True)
class PartitionLoads:
    """One window; everything is empty where it has no rows."""

    counts: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Leaders and replicas by broker."""
    bytes_in_per_sec: Mapping[int, float] = field(default_factory=dict)
    """Bytes/s written to the partitions that each broker leads, by broker."""
    remote_bytes: Mapping[int, int] = field(default_factory=dict)
    """What remote storage alone holds of the logs that each broker leads, where that is known of any."""
    hottest: tuple[HotPartition, ...] = ()
    leader_rates: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Bytes written per second to each partition of a topic, in partition order; None where it is unknown."""
    topics: Mapping[str, TopicLoad] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)
    """Number of led partitions by topic of which nobody knows what consumers read; topics without one are left out."""
    bytes_out_bounds: Bounds = field(default_factory=dict)
    """(Least, most) that consumers read from each broker; the most is None where it has no bound."""


class PartitionLoadReader:
    """Reads window after window of one cluster. Not for two threads."""

    def __init__(self, reader: TableReader, kafka_cluster: str, *, hottest_max: int, readers_max: int | None) -> None:
        self._reader = reader
        self._kafka_cluster = kafka_cluster
        self._hottest_max = hottest_max
        self._readers_max = readers_max
        self._version: tuple[int, int | None] | None = None
        self._files: frozenset[str] | None = None
        self._known = PartitionLoads()

    def read(self, start_ms: int) -> PartitionLoads:
        """Reads the window that starts at this time. Raises TableUnavailable."""
        version = (start_ms, self._reader.version(TABLE))
        if version == self._version:
            return self._known
        files = self._files_of(start_ms)
        # Most commits are of other windows.
        has_same_rows = files is not None and files == self._files and self._is_known(start_ms)
        if not has_same_rows:
            self._version = None
            where = of_window(self._kafka_cluster, start_ms) & at_most("partition", PARTITION_MAX)
            rows = self._reader.encoded(TABLE, columns=_COLUMNS, where=where)
            self._known = _sums(rows, self._hottest_max, self._readers_max)
        self._version, self._files = version, files
        return self._known

    def _is_known(self, start_ms: int) -> bool:
        return self._version is not None and self._version[0] == start_ms

    def _files_of(self, start_ms: int) -> frozenset[str] | None:
        """Files that may hold rows of the window; None where the table has none."""
        files = self._reader.files(TABLE, "window_start")
        if files is None:
            return None
        start = tables.utc(start_ms)
        return frozenset(
            path
            for path, (least, greatest) in files.items()
            if (least is None or least <= start) and (greatest is None or greatest >= start)
        )


def _sums(rows: pa.Table, hottest_max: int, readers_max: int | None) -> PartitionLoads:
    reported = rows.filter(pc.equal(rows["role"], "leader"))
    led = _newest_leaders(reported)
    replicas, leaders = _counts(rows["broker"]), _counts(led["broker"])
    # A broker's own load has what it led for a part of the window, too.
    sums = reported.group_by("broker").aggregate([("bytes_in_per_sec", "sum")])
    return PartitionLoads(
        counts={broker: (leaders.get(broker, 0), count) for broker, count in sorted(replicas.items())},
        bytes_in_per_sec={row["broker"]: row["bytes_in_per_sec_sum"] or 0.0 for row in sums.to_pylist()},
        remote_bytes=_remote_bytes(led),
        hottest=_hottest(led, hottest_max),
        leader_rates=_by_topic(led),
        topics=_topics(rows, led),
        unread=_counts(led.filter(pc.is_null(led["bytes_out_per_sec"]))["topic"].cast(pa.string())),
        bytes_out_bounds=bounds_of(reported, readers_max),
    )


_OF_LEADERS = ("bytes_in_per_sec", "bytes_out_per_sec", "size_bytes")


def _topics(rows: pa.Table, led: pa.Table) -> dict[str, TopicLoad]:
    """Returns the load of each topic by name; a topic that nobody leads in the window has no sums."""
    if not rows.num_rows:
        return {}
    topics = rows["topic"].combine_chunks().dictionary_encode()
    numbers = topics.indices.to_numpy().astype(np.int64) * (PARTITION_MAX + 1) + rows["partition"].to_numpy()
    numbers, replicas = np.unique(numbers, return_counts=True)  # a window has one row for each replica
    topic = numbers // (PARTITION_MAX + 1)
    most = np.zeros(len(topics.dictionary), dtype=np.int64)
    np.maximum.at(most, topic, replicas)
    counts = [
        np.bincount(topic, minlength=len(most)).tolist(),
        np.bincount(topic, weights=replicas, minlength=len(most)).astype(np.int64).tolist(),
        most.tolist(),
        np.bincount(topic[replicas < most[topic]], minlength=len(most)).tolist(),
    ]
    names = led.set_column(led.column_names.index("topic"), "topic", led["topic"].cast(pa.string()))
    sums = names.group_by("topic").aggregate([(name, "sum") for name in _OF_LEADERS]).to_pylist()
    known = {row["topic"]: [row[f"{name}_sum"] for name in _OF_LEADERS] for row in sums}
    lacking = _under_replicated(rows, names)
    found = zip(topics.dictionary.to_pylist(), *counts, strict=True)
    return {
        name: TopicLoad(*[*row, *known.get(name, [None] * 3), lacking.get(name)])
        for name, *row in sorted(found)
        if row[0]
    }


def _under_replicated(rows: pa.Table, led: pa.Table) -> dict[str, int]:
    """Partitions with a replica that is not in sync, of each topic of which that is known.

    Followers show it of partitions that had no leader at the newest sample.
    """
    name, columns = OUT_OF_SYNC_REPLICAS.name, ["topic", "partition", OUT_OF_SYNC_REPLICAS.name]
    leaderless = rows.filter(pc.and_(pc.equal(rows["role"], "follower"), pc.is_valid(rows[name]))).select(columns)
    leaderless = leaderless.set_column(0, "topic", leaderless["topic"].cast(pa.string()))
    known = pa.concat_tables([led.filter(pc.is_valid(led[name])).select(columns), leaderless])
    partitions = known.group_by(["topic", "partition"]).aggregate([(name, "max")])
    counted = partitions.append_column("lacks", pc.cast(pc.greater(partitions[f"{name}_max"], 0), pa.int64()))
    sums = counted.group_by("topic").aggregate([("lacks", "sum")]).to_pylist()
    return {row["topic"]: row["lacks_sum"] for row in sums}


def _newest_leaders(led: pa.Table) -> pa.Table:
    """One row for each partition: of one that moves, two brokers report it in one window, and the later one leads."""
    topics = led["topic"].combine_chunks().dictionary_encode().indices.to_numpy()
    numbers = topics.astype(np.int64) * (PARTITION_MAX + 1) + led["partition"].to_numpy()
    if len(np.unique(numbers)) == len(numbers):
        return led
    latest_first = np.lexsort((led["broker"].to_numpy(), led["last_event_time_ms"].to_numpy()))[::-1]
    _, newest = np.unique(numbers[latest_first], return_index=True)
    return led.take(pa.array(np.sort(latest_first[newest])))


def _counts(values: pa.ChunkedArray) -> dict[Any, int]:
    return {entry["values"]: entry["counts"] for entry in pc.value_counts(values).to_pylist()}


def _remote_bytes(led: pa.Table) -> dict[int, int]:
    known = led.filter(pc.is_valid(led[REMOTE_SIZE_BYTES.name]))
    sums = known.group_by("broker").aggregate([(REMOTE_SIZE_BYTES.name, "sum")])
    return {row["broker"]: row[f"{REMOTE_SIZE_BYTES.name}_sum"] for row in sums.to_pylist()}


def _hottest(led: pa.Table, count: int) -> tuple[HotPartition, ...]:
    known = led.filter(pc.is_valid(led["bytes_in_per_sec"]))
    rates = known["bytes_in_per_sec"]
    if known.num_rows > count > 0:  # only what may be among them is put in order
        known = known.filter(pc.greater_equal(rates, rates[pc.top_k_unstable(rates, count)[-1].as_py()]))
    known = known.set_column(known.column_names.index("topic"), "topic", known["topic"].cast(pa.string()))
    hottest = known.sort_by([("bytes_in_per_sec", "descending"), ("topic", "ascending"), ("partition", "ascending")])
    return tuple(
        HotPartition(row["broker"], row["topic"], row["partition"], row["bytes_in_per_sec"])
        for row in hottest.slice(0, count).to_pylist()
    )


def _by_topic(led: pa.Table) -> dict[str, tuple[float | None, ...]]:
    """Rates in partition order; partitions between others that no row shows are unknown, numbers far off left out."""
    if not led.num_rows:
        return {}
    topics = led["topic"].combine_chunks().dictionary_encode()
    topic, partition = topics.indices.to_numpy(), led["partition"].to_numpy()
    is_near = partition < FAR_OFF + FAR_OFF * np.bincount(topic)[topic]
    topic, partition, led = topic[is_near], partition[is_near], led.filter(pa.array(is_near))
    lengths = np.zeros(len(topics.dictionary), dtype=np.int64)
    np.maximum.at(lengths, topic, partition + 1)
    starts = np.cumsum(lengths) - lengths
    rates = np.full(int(lengths.sum()), np.nan)
    rates[starts[topic] + partition] = led["bytes_in_per_sec"].to_numpy()
    shown = pa.array(rates, from_pandas=True).to_pylist()
    ranges = zip(topics.dictionary.to_pylist(), starts.tolist(), lengths.tolist(), strict=True)
    return {name: tuple(shown[start : start + length]) for name, start, length in sorted(ranges) if length}
