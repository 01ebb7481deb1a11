"""Two observations turned into rates: pure, and never zero for what is unknown.

Growth of the leader's log is exact where nothing was deleted in the interval. Where retention (of tiered logs the local
one), compaction or a new leader spoilt it, appended offsets x bytes of a record are the next best. Where neither is
known, as of brokers that refuse to show log sizes, their counters of topics are split by the records of partitions. A
replica that a reassignment is adding copies old data: its growth is no load. All rates are per second between the two
moments at which the broker itself was read: one that hangs makes those read after it late.

How many bytes a record has is learned from observations between which a log only grew. A log that has lost segments
does not show what was written, and its mean record may be of another size than those written now. Compaction leaves
gaps in the offsets besides, so the mean is too small there. What a log grew by, for each offset that was appended, is
right in both cases, so it is kept from sample to sample.

Rates stand in columns, NaN for unknown, one row for each replica; a partition's rates are in the order of its table.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assignor_core.live import NO_LEADER
from streaming.collect.bytes_out import bytes_out_per_sec, read_without_commits
from streaming.collect.partition_table import UNKNOWN, Flags, Floats, Ints, PartitionTable, column_at, ints, positions
from streaming.collect.sample import ClusterSample, Part, bytes_in_per_sec
from streaming.collect.shards import WHOLE, Shard
from streaming.contract.rates import BYTES_IN, BYTES_OUT, MESSAGES_IN, RATES, REPLICATION_BYTES_IN

WEIGHT_KEPT = 0.75
"""What was learned before counts so much less at each sample: records written now count most."""
ENOUGH_RECORDS = 100
"""Sizes are read some milliseconds after offsets: over fewer records the bytes of one are no better than the mean."""
LEAST_SHARE = 0.5
"""A log that grew by less than this share of what its records had before may have lost something meanwhile."""
DOUBTED_MAX = 3
"""A log that seems to have lost something at so many samples in a row has lost nothing: its records have become
smaller.
"""
LEADER, FOLLOWER = "leader", "follower"
BrokerRates = Mapping[str, float | None]
"""Rates of one broker by the names of `contract.rates`, all of them; None = unknown. Reassignment traffic stands apart
and is in no other figure.
"""


@dataclass(frozen=True, eq=False)
class LogGrowth:
    """How the leader's log of each partition of the later of two samples differs from the earlier one."""

    earlier: Ints
    """Row of each partition at the earlier sample; UNKNOWN where it was not there, or its topic was re-created."""
    appended: Ints
    """Records appended to each partition; UNKNOWN where the number isn't known."""
    grown_bytes: Ints
    same_log: Flags
    """Whether the log is the same with the same first offset, so that `grown_bytes` is known; 0 elsewhere."""

    @property
    def only_grew(self) -> Flags:
        """Whether nothing is seen to have been deleted."""
        return self.same_log & (self.grown_bytes >= 0)


@dataclass(frozen=True, eq=False)
class RecordBytes:
    """What is learned of the partitions of a sample, in their order; `records` is 0 where nothing is."""

    partitions: PartitionTable
    growth: LogGrowth
    """Since the sample before."""
    grown_bytes: Floats
    records: Floats
    doubted: Ints
    """Snapshots in a row whose growth may hide a loss; 0 where the newest one was taken as it is."""
    compacts: Flags
    """Whether the log has become smaller while its first offset stayed: that is compaction."""

    @property
    def grown(self) -> Flags:
        """Whether the growth since the sample before is what was written.

        Not of a compacted log, once its records are known: any sample may hide a loss. Nor of one that loses segments,
        where the growth is doubtful: its first offset is read a moment after its size.
        """
        begins_later = self.partitions.local_start > 0
        hides = (self.compacts & (self.records > 0)) | (begins_later & (self.doubted > 0))
        return self.growth.only_grew & ~hides


def learned(kept: RecordBytes | None, before: ClusterSample, after: ClusterSample) -> RecordBytes:
    """What `kept` knew of the partitions of `before`, and what the growth until `after` shows."""
    growth, partitions = _growth(before, after), after.partitions
    kept = kept or _nothing(before.partitions, growth)
    row = growth.earlier
    had_bytes, had_records = _at(kept.grown_bytes, row), _at(kept.records, row)
    grew = growth.only_grew & (growth.appended > 0)
    share = _share(growth, had_bytes, had_records)
    fell, rose = grew & (share < LEAST_SHARE), grew & (share > 1 / LEAST_SHARE)
    doubted = _at(kept.doubted, row)
    doubts = np.where(fell, doubted + 1, 0)
    accepted = grew & (~fell | (doubts >= DOUBTED_MAX))
    anew = rose | (fell & accepted)
    weight = np.where(accepted, np.where(anew, 0.0, WEIGHT_KEPT), 1.0)
    return RecordBytes(
        partitions,
        growth,
        had_bytes * weight + np.where(accepted, growth.grown_bytes, 0),
        had_records * weight + np.where(accepted, growth.appended, 0),
        np.where(accepted, 0, doubts).astype(np.int64),
        (_at(kept.compacts, row) > 0) | (growth.same_log & (growth.grown_bytes < 0) & (growth.appended >= 0)),
    )


def record_bytes(known: RecordBytes, before: ClusterSample, after: ClusterSample) -> Floats:
    """Bytes of a record written now, by partition of `after`; NaN where neither growth nor a log shows them."""
    rows = np.arange(len(after.partitions))
    mean_after = mean_record_bytes_of(after, rows)
    mean_before = mean_record_bytes_of(before, before.partitions.rows_of(after.partitions.names))
    mean = np.where(np.isnan(mean_after), mean_before, mean_after)
    return np.where(known.records >= ENOUGH_RECORDS, _learned_bytes(known), _else_learned(known, mean))


def stored_record_bytes(known: RecordBytes, after: ClusterSample) -> Floats:
    """Mean bytes of a record in the leader's log, NaN where unknown; of a compacted one, which has gaps, as written."""
    return _else_learned(known, mean_record_bytes_of(after, np.arange(len(after.partitions))))


def mean_record_bytes_of(observation: ClusterSample, rows: Ints) -> Floats:
    """Mean bytes of a record in the leader's log of these rows of its partitions; NaN for an empty or unknown log.

    Compaction leaves gaps in the offsets, so there the figure is too small.
    """
    partitions = observation.partitions
    if not len(partitions):
        return np.full(len(rows), np.nan)
    known = np.maximum(rows, 0)
    start, end = partitions.local_start[known], partitions.end[known]
    size = observation.sizes.on(partitions, known, partitions.leader[known])
    records = end - start
    is_known = (rows >= 0) & (start >= 0) & (end >= 0) & (size > 0) & (records > 0)
    return np.where(is_known, size / np.where(is_known, records, 1), np.nan)


def _nothing(partitions: PartitionTable, growth: LogGrowth) -> RecordBytes:
    """What is known of these partitions before anything was learned."""
    zeros = np.zeros(len(partitions))
    return RecordBytes(partitions, growth, zeros, zeros, zeros.astype(np.int64), zeros.astype(bool))


def _growth(before: ClusterSample, after: ClusterSample) -> LogGrowth:
    """Returns the growth of each partition of `after`, in the order of its table."""
    earlier, later = before.partitions.rows_of_same_topics(after.partitions), after.partitions
    first_end = column_at(before.partitions.end, earlier)
    known = (first_end >= 0) & (later.end >= first_end)
    first = before.sizes.on(before.partitions, earlier, later.leader)
    last = after.sizes.on(later, np.arange(len(later)), later.leader)
    same_log = (earlier >= 0) & (column_at(before.partitions.leader, earlier) == later.leader)
    same_log &= (later.local_start >= 0) & (column_at(before.partitions.local_start, earlier) == later.local_start)
    same_log &= (first >= 0) & (last >= 0)
    appended = np.where(known, later.end - first_end, UNKNOWN)
    return LogGrowth(earlier, appended, np.where(same_log, last - first, 0), same_log)


def _else_learned(known: RecordBytes, mean: Floats) -> Floats:
    """The mean, but where a log is compacted and something was learned."""
    return np.where(known.compacts & (known.records > 0), _learned_bytes(known), mean)


def _learned_bytes(known: RecordBytes) -> Floats:
    return np.where(known.records > 0, known.grown_bytes / np.where(known.records > 0, known.records, 1), np.nan)


def _share(growth: LogGrowth, had_bytes: Floats, had_records: Floats) -> Floats:
    """Bytes of a record in this growth by those learned before; 1 where either rests on too few records."""
    enough = (growth.appended >= ENOUGH_RECORDS) & (had_records >= ENOUGH_RECORDS) & (had_bytes > 0)
    expected = np.where(enough, had_bytes * growth.appended / np.where(enough, had_records, 1), 1)
    return np.where(enough, growth.grown_bytes / expected, 1.0)


def _at(column: npt.NDArray[np.generic], rows: Ints) -> Floats:
    """The column's value of each row; 0 where there is none."""
    values = column.astype(np.float64)
    return np.where(rows >= 0, values[np.maximum(rows, 0)], 0.0) if len(values) else np.zeros(len(rows))


@dataclass(frozen=True, eq=False)
class ReplicaRateTable:
    """Rates of replicas in order of broker, topic and number; `row` is the partition's in `partitions`."""

    partitions: PartitionTable
    broker: Ints
    row: Ints
    leads: Flags
    bytes_in: Floats
    bytes_out: Floats
    messages_in: Floats
    size_bytes: Ints
    remote_records: Ints
    remote_size_bytes: Ints
    out_of_sync: Ints
    """Replicas of the partition that are not in sync; UNKNOWN of followers of a leader."""
    followers_serve: bool = False
    """Whether followers serve consumers; their `bytes_out` are unknown else."""
    unread: Floats | None = None
    """Records that each row of the groups' commits may still count as read."""

    def place_of(self, rows: Ints, brokers: Ints) -> Ints:
        """Returns the place of each partition's replica on the broker beside it; UNKNOWN if it was not read."""
        keys = self.broker * (len(self.partitions) + 1) + self.row
        return np.where(brokers >= 0, positions(keys, brokers * (len(self.partitions) + 1) + rows), UNKNOWN)

    def __len__(self) -> int:
        return len(self.row)


def replica_rates(
    before: ClusterSample,
    after: ClusterSample,
    shard: Shard = WHOLE,
    *,
    known: RecordBytes | None = None,
    followers_known: bool = False,
    own_topics: Collection[str] = (),
    unread: Floats | None = None,
) -> ReplicaRateTable:
    """Rates of every replica of a known partition that `after` shows on brokers of the shard; none without time between
    the samples.

    `known` is what was learned of records up to `after`; None: these two samples are all there is. `followers_known`:
    samples before have shown that followers serve consumers. `own_topics` are the topics that the pipeline reads.
    `unread` is that of the table of the sample before.
    """
    partitions, sizes = after.partitions, after.sizes
    row = partitions.rows_of(sizes.names)
    shown = np.flatnonzero((row >= 0) & (after.time_ms > before.time_ms) & shard.takes_brokers(sizes.broker))
    shown = shown[np.lexsort((row[shown], sizes.broker[shown]))]
    row, broker = row[shown], sizes.broker[shown]
    of_records = learned(None, before, after) if known is None else known
    stored_bytes = stored_record_bytes(of_records, after)
    messages = _messages(before, after, of_records.growth)
    written = _written(before, after, messages, of_records)
    nothing_written = of_records.growth.appended == 0
    read = bytes_out_per_sec(
        before, after, written, stored_bytes, followers_known=followers_known, unread=unread,
        without_commits=read_without_commits(partitions, written, nothing_written, own_topics),
    )  # fmt: skip
    leads = partitions.leader[row] == broker
    remote = _remote_records(partitions)
    remote_bytes = np.where((remote >= 0) & ~np.isnan(stored_bytes), np.rint(remote * stored_bytes), UNKNOWN)
    return ReplicaRateTable(
        partitions,
        broker,
        row,
        leads,
        # In sync, a follower takes in what its leader is given.
        bytes_in=np.where(partitions.is_adding(row, broker), np.nan, written[row]),
        bytes_out=read.of(row, broker),
        messages_in=np.where(leads, messages[row], np.nan),
        size_bytes=sizes.size_bytes[shown],
        remote_records=np.where(leads, remote[row], UNKNOWN),
        remote_size_bytes=np.where(leads, remote_bytes[row], UNKNOWN).astype(np.int64),
        out_of_sync=np.where(leads | (partitions.leader[row] == NO_LEADER), _out_of_sync(partitions)[row], UNKNOWN),
        followers_serve=read.followers_serve,
        unread=read.unread,
    )


def _out_of_sync(partitions: PartitionTable) -> Ints:
    """Replicas that are not in sync, by row."""
    counts = np.zeros(len(partitions), dtype=np.int64)
    counts[ints(partitions.out_of_sync)] = ints(partitions.out_of_sync.values())
    return counts


def broker_rates(
    before: ClusterSample, after: ClusterSample, replicas: ReplicaRateTable, shard: Shard = WHOLE
) -> dict[int, BrokerRates]:
    """Totals of brokers of the shard that are alive: by their counters if both samples have them, else summed up."""
    counted = {broker: _counted(broker, before, after) for broker in after.racks if shard.takes_broker(broker)}
    summed = _summed(after, replicas) if None in counted.values() else {}
    return {broker: rates or summed[broker] for broker, rates in counted.items()}


def _messages(before: ClusterSample, after: ClusterSample, growth: LogGrowth) -> Floats:
    """Records/s of each partition of `after`."""
    later, appended = after.partitions, growth.appended
    leader_before = column_at(before.partitions.leader, growth.earlier)
    counted = np.where(appended >= 0, appended, np.nan)
    return per_second(counted, _when(before, "offsets", leader_before), _when(after, "offsets", later.leader))


def _written(before: ClusterSample, after: ClusterSample, messages: Floats, known: RecordBytes) -> Floats:
    """Bytes/s that clients wrote to each partition of `after`."""
    leader, growth = after.partitions.leader, known.growth
    # Log sizes and offsets are read a moment apart; nothing appended but bytes grown is still growth.
    by_growth = per_second(
        growth.grown_bytes.astype(np.float64), _when(before, "sizes", leader), _when(after, "sizes", leader)
    )
    by_offsets = np.where(messages == 0, 0.0, messages * record_bytes(known, before, after))
    written = np.where(known.grown, by_growth, by_offsets)
    is_unknown = np.isnan(written)
    return np.where(is_unknown, bytes_in_per_sec(before, after, messages), written) if is_unknown.any() else written


def _remote_records(partitions: PartitionTable) -> Ints:
    """Records of each partition that remote storage alone holds; UNKNOWN where none are known to be."""
    is_tiered = (partitions.start >= 0) & (partitions.local_start > partitions.start)
    return np.where(is_tiered, partitions.local_start - partitions.start, UNKNOWN)


def _when(observation: ClusterSample, part: Part, brokers: Ints) -> Ints:
    """When this part was read from each broker, ms."""
    ids, places = np.unique(brokers, return_inverse=True)
    return np.array([observation.when_ms(part, broker) for broker in ids.tolist()], dtype=np.int64)[places]


def per_second(amount: Floats, first_ms: Ints, last_ms: Ints) -> Floats:
    """NaN where no time has passed."""
    passed_ms = np.where(last_ms > first_ms, last_ms - first_ms, np.nan)
    return amount * 1000 / passed_ms


def _counted(broker: int, before: ClusterSample, after: ClusterSample) -> BrokerRates | None:
    """Rates from a broker's own counters; None without them or after a restart, which resets them."""
    pair = after.counters_since(before, broker)
    if pair is None:
        return None
    seconds = pair.passed_ms / 1000
    grown = {rate.name: (pair.later.totals[rate.stem] - pair.earlier.totals[rate.stem]) / seconds for rate in RATES}
    # Kafka counts reassignment traffic among replication too; here it stands apart.
    return {
        rate.name: max(0.0, grown[rate.name] - grown[rate.meter_includes]) if rate.meter_includes else grown[rate.name]
        for rate in RATES
    }


def _summed(after: ClusterSample, replicas: ReplicaRateTable) -> dict[int, BrokerRates]:
    """Rates from what each broker leads and follows. One that was not read makes its sum unknown.

    If no replica was read, the broker has not reported: its load is unknown, even if it leads nothing. Bytes that a
    reassignment copies can't be measured this way and are in no sum.
    """
    partitions = after.partitions
    led_row = np.flatnonzero(partitions.leader != NO_LEADER)
    led_by = partitions.leader[led_row]
    row, holder = partitions.replica_row, partitions.replica_broker
    # Without a leader there is nobody to follow.
    follows = (partitions.leader[row] != holder) & (partitions.leader[row] != NO_LEADER)
    is_copy = partitions.is_adding(row, holder)
    row_, holder_ = row[follows & ~is_copy], holder[follows & ~is_copy]
    led, followed = replicas.place_of(led_row, led_by), replicas.place_of(row_, holder_)
    copied = replicas.place_of(row[follows & is_copy], holder[follows & is_copy])
    places = np.concatenate([led, followed, copied])
    hosts = np.concatenate([led_by, holder_, holder[follows & is_copy]])
    heard = _by_broker(hosts, (places >= 0).astype(np.float64))
    read = _rate_at(replicas.bytes_out, led), np.nan_to_num(_rate_at(replicas.bytes_out, followed), nan=0.0)
    sums = {
        BYTES_IN: _by_broker(led_by, _rate_at(replicas.bytes_in, led)),
        BYTES_OUT: _by_broker(np.concatenate([led_by, holder_]), np.concatenate(read)),
        MESSAGES_IN: _by_broker(led_by, _rate_at(replicas.messages_in, led)),
        REPLICATION_BYTES_IN: _by_broker(holder_, _rate_at(replicas.bytes_in, followed)),
    }
    silent = {broker for broker, count in heard.items() if not count}
    return {
        broker: {
            rate.name: _or_none(sums[rate].get(broker, 0.0))
            if rate in sums and (broker not in silent or rate is REPLICATION_BYTES_IN)
            else None
            for rate in RATES
        }
        for broker in after.racks
    }


def _by_broker(brokers: Ints, values: Floats) -> dict[int, float]:
    """Sum of what stands beside each broker, NaN where a part of it is."""
    ids, places = np.unique(brokers, return_inverse=True)
    return dict(zip(ids.tolist(), np.bincount(places, values, len(ids)).tolist(), strict=True))


def _rate_at(column: Floats, places: Ints) -> Floats:
    if not len(column):
        return np.full(len(places), np.nan)
    return np.where(places >= 0, column[np.maximum(places, 0)], np.nan)


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
