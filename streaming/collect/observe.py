"""Reads one observation: a request a broker and kind, whatever the number of partitions, all brokers at the same time.

Each broker is asked for what it leads, holds or coordinates: one that hangs or refuses costs only its own part, and the
sample one time limit of a request.

Each sample asks for the first offset on the leader's disk. The log start is never above it, and neither goes back. So
if both were equal in the sample before and the first local offset has not moved, both are unchanged. Brokers are asked
for the log start of the other partitions only: those that remote storage holds a part of (KIP-405), and those that have
lost their oldest segment since. The configuration of topics is not needed.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import httpx
import numpy as np
import structlog
from kafka.errors import KafkaError, for_code

from assignor_core.identity import cluster_mismatch
from assignor_core.live import PartitionKey
from streaming.cluster.answer_columns import LogDirRows, TopicRows
from streaming.cluster.broker_reads import EARLIEST, EARLIEST_LOCAL, LATEST, BrokerReads, Led
from streaming.cluster.metadata import ClusterMetadata
from streaming.collect.counters import PrometheusSource, read_counters
from streaming.collect.groups import GroupSampler, listed_groups
from streaming.collect.partition_table import UNKNOWN, Ints, PartitionNames, PartitionTable, SizeTable, column_at, ints
from streaming.collect.sample import (
    BROKERS_AT_A_TIME,
    BrokerCounters,
    Clock,
    ClusterSample,
    CounterPair,
    LogDirs,
    RefusedRequests,
    Request,
    SampleState,
    is_refused,
)
from streaming.collect.shards import WHOLE, Shard
from streaming.errors import AnotherCluster
from streaming.settings import CollectSettings

log = structlog.get_logger()

Settled = Callable[[Led, TopicRows | None], tuple[TopicRows | None, Led]]
"""Picks first offsets on a broker's disk that are log starts, too, and partitions whose log start must be requested."""
JMX = -1
"""Stands for the JMX endpoints among brokers: the endpoints are read meanwhile."""


@dataclass(frozen=True, slots=True)
class BrokerRead:
    """What one broker answered; None where it didn't."""

    ends: TopicRows | None
    starts: Sequence[TopicRows | None]
    """Log starts, in the answers that show them."""
    local_starts: TopicRows | None
    log_dirs: Sequence[LogDirRows] | None
    """Log dirs of the broker; empty where the broker refuses to show them."""
    groups: Sequence[Mapping[str, Any]] | None


def observe(
    reads: BrokerReads,
    groups: GroupSampler,
    settings: CollectSettings,
    *,
    now_ms: int,
    monotonic: Clock = time.monotonic,
    transport: httpx.AsyncBaseTransport | None = None,
    brokers_at_a_time: int = BROKERS_AT_A_TIME,
    kafka_cluster_id: str | None = None,
    shard: Shard = WHOLE,
    before: PartitionTable | None = None,
    refusals: RefusedRequests | None = None,
    prometheus: PrometheusSource | None = None,
) -> ClusterSample:
    """Read everything; a part that can't be read is left out (and logged). Raises KafkaError without any metadata, and
    AnotherCluster where the brokers name another id than `kafka_cluster_id`.

    `before` are the partitions of the sample before: brokers are asked for fewer log starts then. `now_ms` is the time
    at the start; `monotonic`, in seconds, measures how much later each part is read. `transport` is the way to the JMX
    endpoints; None is the network. Of brokers and groups that are not of the `shard` only what the others' rates need
    is read: no counters, no members. What brokers refuse for want of a right is unknown; `refusals` remembers it from
    sample to sample. `prometheus` has the counters of brokers without JMX endpoint.
    """
    refusals = RefusedRequests() if refusals is None else refusals
    began_s = monotonic()
    metadata = reads.metadata()
    other = cluster_mismatch(kafka_cluster_id, metadata.cluster_id)
    if other is not None:
        raise AnotherCluster(other)
    added = _replicas_added(reads, refusals)
    silent = reads.silent_brokers()
    sample = SampleState(
        metadata.racks, now_ms, began_s, monotonic, brokers_at_a_time, silent=silent, refusals=refusals
    )
    led = metadata.led_by_broker
    endpoints = _endpoints(settings, sample, shard)
    ids = dict(zip(metadata.topics, metadata.topic_ids, strict=True))
    scraped = [broker for broker in sample.racks if shard.takes_broker(broker) and broker not in settings.jmx_endpoints]
    counters: dict[int, BrokerCounters] = {}
    pairs: dict[int, CounterPair] = {}

    def read(broker: int) -> BrokerRead | None:
        if broker != JMX:
            settled = partial(settled_starts, before, ids, broker)
            return _read_broker(reads, sample, broker, led.get(broker, {}), settled)
        counters.update(read_counters(endpoints, sample, transport=transport))
        pairs.update(prometheus.read(scraped, now_ms=sample.now_ms()) if prometheus else {})
        return None

    asked = sorted({*sample.racks, *led, *([JMX] if endpoints or prometheus else [])})
    by_broker = {broker: row for broker, row in sample.of_each(asked, read).items() if row is not None}
    partitions = _partitions(metadata, added, by_broker, before)
    sizes, log_dirs = _log_dirs(by_broker, partitions)
    listed = {broker: row.groups for broker, row in by_broker.items() if row.groups is not None}
    of_groups = groups.read(reads, settings, sample, listed, partitions)
    return ClusterSample(
        now_ms, sample.racks, partitions, sizes, log_dirs, counters, of_groups.views, of_groups.left_out,
        sample.read_ms, frozenset(sample.silent), refusals.end_sample(),
        of_groups.partitions_left_out, of_groups.last_stable, pairs, metadata.addresses,
        of_groups.cleanup_policies,
    )  # fmt: skip


def _endpoints(settings: CollectSettings, sample: SampleState, shard: Shard) -> dict[int, str]:
    """JMX endpoints of brokers of the shard that have not failed to answer."""
    return {
        broker: url
        for broker, url in settings.jmx_endpoints.items()
        if shard.takes_broker(broker) and broker not in sample.silent
    }


def _replicas_added(reads: BrokerReads, refusals: RefusedRequests) -> Mapping[PartitionKey, frozenset[int]]:
    """Replicas that reassignments add; none are known where the brokers refuse to list reassignments."""
    try:
        added = reads.replicas_added()
    except KafkaError as error:
        if not is_refused(error):
            raise
        refusals.note(Request.REASSIGNMENTS, None, type(error).__name__)
        return {}
    refusals.note_answer(Request.REASSIGNMENTS)
    return added


def _read_broker(reads: BrokerReads, sample: SampleState, broker: int, led: Led, settled: Settled) -> BrokerRead:
    ends = _offsets(reads, sample, broker, led, LATEST)
    if led:
        sample.note("offsets", broker)
    is_alive = broker in sample.racks  # one that leads, but is not: the next metadata shows another leader
    log_dirs = _log_dirs_of(reads, sample, broker) if is_alive else None
    # After the sizes: brokers move a log's first offset before they delete, so a size without a segment shows as such.
    local = _offsets(reads, sample, broker, led, EARLIEST_LOCAL)
    known, left = settled(led, local)
    starts = (known, _offsets(reads, sample, broker, left, EARLIEST))
    return BrokerRead(ends, starts, local, log_dirs, listed_groups(reads, sample, broker) if is_alive else None)


def _offsets(reads: BrokerReads, sample: SampleState, broker: int, led: Led, timestamp: int) -> TopicRows | None:
    """Returns the offsets of those partitions of `led` that the broker still leads."""
    if not led:
        return None
    try:
        rows = sample.ask(broker, partial(reads.leader_offsets, broker, led, timestamp))
    except KafkaError as error:
        log.warning("offsets_unread", broker=broker, error=type(error).__name__)
        return None
    codes = rows.column("error")
    if codes.any():
        names = sorted({for_code(code).__name__ for code in codes[codes != 0].tolist()})
        log.warning("offsets_unread", broker=broker, partitions=int((codes != 0).sum()), error=names[0])
    return rows


def _log_dirs_of(reads: BrokerReads, sample: SampleState, broker: int) -> Sequence[LogDirRows] | None:
    try:
        rows = sample.ask(broker, partial(reads.log_dirs, broker))
    except KafkaError as error:
        if not is_refused(error):
            log.warning("log_dirs_unread", broker=broker, error=type(error).__name__)
            return None
        sample.refusals.note(Request.LOG_DIRS, broker, type(error).__name__)
        return ()
    if not rows:  # old brokers refuse without an error: a broker has one at least
        sample.refusals.note(Request.LOG_DIRS, broker, "none shown")
        return ()
    sample.refusals.note_answer(Request.LOG_DIRS)
    sample.note("sizes", broker)
    return rows


def _partitions(
    metadata: ClusterMetadata,
    added: Mapping[PartitionKey, frozenset[int]],
    by_broker: Mapping[int, BrokerRead],
    before: PartitionTable | None,
) -> PartitionTable:
    unknown = np.full(len(metadata.number), UNKNOWN)
    table = PartitionTable(
        PartitionNames(metadata.topics, metadata.topic, metadata.number), metadata.topic_ids, metadata.leader,
        metadata.replicas_begin, metadata.replica_broker, {}, unknown, unknown, unknown,
    )  # fmt: skip
    moving = sorted(key for key, brokers in added.items() if brokers)
    topics = {topic: place for place, topic in enumerate(sorted({topic for topic, _ in moving}))}
    names = PartitionNames(tuple(topics), ints(topics[topic] for topic, _ in moving), ints(row for _, row in moving))
    rows = zip(table.rows_of(names).tolist(), moving, strict=True)
    adding = {row: added[key] for row, key in rows if row != UNKNOWN}
    lacking = {row: len(set(brokers) - adding.get(row, frozenset())) for row, brokers in metadata.out_of_sync.items()}
    table = replace(
        table,
        adding=adding,
        out_of_sync={row: count for row, count in lacking.items() if count},
        start=_column(table, [answer for row in by_broker.values() for answer in row.starts]),
        end=_column(table, [row.ends for row in by_broker.values()]),
    )
    local = _column(table, [row.local_starts for row in by_broker.values()])
    return replace(table, local_start=local_starts(before, table, local))


def _column(table: PartitionTable, answers: Iterable[TopicRows | None]) -> Ints:
    """Offsets in the order of the table; UNKNOWN where no broker has sent one."""
    column = np.full(len(table), UNKNOWN)
    for answer in answers:
        if answer is not None and len(answer.rows):
            rows = table.rows_of(PartitionNames(answer.topics, answer.topic, answer.column("index")))
            sent = (rows >= 0) & (answer.rows["error"] == 0)
            column[rows[sent]] = answer.column("offset")[sent]
    return column


def _log_dirs(by_broker: Mapping[int, BrokerRead], partitions: PartitionTable) -> tuple[SizeTable, dict[int, LogDirs]]:
    """Sizes of the replicas in use; a future replica (a move between disks) is not one yet.

    A broker that refuses to show its log dirs holds the replicas that metadata shows, of unknown size.
    """
    place: dict[str, int] = {}
    topics, numbers, sizes, brokers = [ints(())], [ints(())], [ints(())], [ints(())]
    disks: dict[int, LogDirs] = {}
    for broker, answer in sorted(by_broker.items()):
        used_bytes = 0
        for log_dir in answer.log_dirs or ():
            rows = log_dir.replicas
            own = ints(place.setdefault(topic, len(place)) for topic in rows.topics)
            in_use = np.flatnonzero(rows.rows["is_future"] == 0)
            topics.append(own[rows.topic[in_use]] if len(own) else ints(()))
            numbers.append(rows.column("index")[in_use])
            sizes.append(rows.column("size")[in_use])
            brokers.append(np.full(len(in_use), broker))
            used_bytes += int(sizes[-1].sum())
        if answer.log_dirs is not None and not answer.log_dirs:
            held = partitions.replica_row[partitions.replica_broker == broker]
            own = ints(place.setdefault(topic, len(place)) for topic in partitions.names.topics)
            topics.append(own[partitions.names.topic[held]])
            numbers.append(partitions.names.number[held])
            sizes.append(np.full(len(held), UNKNOWN))
            brokers.append(np.full(len(held), broker))
        if answer.log_dirs:
            usable = [row.usable_bytes for row in answer.log_dirs if row.usable_bytes is not None]
            disks[broker] = LogDirs(used_bytes, sum(usable) if usable else None)
    names = PartitionNames(tuple(place), np.concatenate(topics), np.concatenate(numbers))
    return SizeTable(names, np.concatenate(brokers), np.concatenate(sizes)), disks


def settled_starts(
    before: PartitionTable | None, topic_ids: Mapping[str, str], broker: int, led: Led, local: TopicRows | None
) -> tuple[TopicRows | None, Led]:
    """(Rows of `local` that are log starts, too; what the broker is still to be asked about).

    `local` are the first offsets on the disk of `broker`, which leads `led`; None where it has not answered.
    """
    if before is None or local is None:
        return None, led
    names = PartitionNames(local.topics, local.topic, local.column("index"))
    row = before.rows_with_ids(names, map(topic_ids.get, local.topics))
    offset = local.column("offset")
    settled = (row >= 0) & (local.rows["error"] == 0) & (column_at(before.leader, row) == broker)
    settled &= (column_at(before.local_start, row) == offset) & (column_at(before.start, row) == offset)
    left: dict[str, list[int]] = defaultdict(list)
    for topic, number in zip(local.topic[~settled].tolist(), local.rows["index"][~settled].tolist(), strict=True):
        left[local.topics[topic]].append(number)
    return TopicRows(local.topics, local.topic[settled], local.rows[settled]), left


def local_starts(before: PartitionTable | None, after: PartitionTable, local: Ints) -> Ints:
    """`local` in the order of `after`; where a broker doesn't answer that question, the log start.

    A part of a log that is known to lie in remote storage is not taken back so: there it stays unknown.
    """
    if before is None:
        return np.where(local == UNKNOWN, after.start, local)
    row = before.rows_of_same_topics(after)
    was_tiered = column_at(before.start, row) < column_at(before.local_start, row)
    return np.where((local == UNKNOWN) & ~was_tiered, after.start, local)
