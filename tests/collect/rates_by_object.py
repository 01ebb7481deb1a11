"""What `streaming.collect.rates` makes in columns, made with one object for each partition: slow, and easy to check."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from assignor_core.live import NO_LEADER, PartitionKey, ReplicaKey
from streaming.collect.rates import BrokerRates
from streaming.collect.sample import BrokerCounters, ClusterSample
from streaming.contract.rates import BYTES_IN, BYTES_OUT, MESSAGES_IN, RATES, REPLICATION_BYTES_IN
from tests.collect.by_row import PartitionView, ReplicaRates, partition_views, sizes_of


def replica_rates(before: ClusterSample, after: ClusterSample) -> dict[ReplicaKey, ReplicaRates]:
    """Rates of every replica that `after` shows."""
    if after.time_ms <= before.time_ms:
        return {}
    written = {key: _written(key, before, after) for key in partition_views(after.partitions)}
    read = _bytes_out(before, after, written)
    rates = {}
    for (broker, key), size in sizes_of(after.sizes).items():
        partition = partition_views(after.partitions).get(key)
        if partition is None:
            continue
        leads = partition.leader == broker
        adding = broker in partition.adding_replicas
        rates[(broker, key)] = ReplicaRates(
            role="leader" if leads else "follower",
            # In sync, a follower takes in what its leader is given.
            bytes_in=None if adding else written[key],
            bytes_out=read.get(key) if leads else None,
            messages_in=_messages(key, before, after) if leads else None,
            size_bytes=size,
            remote_records=_remote_records(partition) if leads else None,
            remote_size_bytes=_remote_bytes(key, after) if leads else None,
            out_of_sync=partition.out_of_sync if leads or partition.leader == NO_LEADER else None,
        )
    return rates


def broker_rates(
    before: ClusterSample, after: ClusterSample, replicas: Mapping[ReplicaKey, ReplicaRates]
) -> dict[int, BrokerRates]:
    """Totals of every broker alive: from its own counters where both looks have them, else summed from its replicas."""
    led: dict[int, list[ReplicaRates | None]] = defaultdict(list)
    followed: dict[int, list[ReplicaRates | None]] = defaultdict(list)
    copying: dict[int, list[ReplicaRates | None]] = defaultdict(list)
    for key, partition in partition_views(after.partitions).items():
        led[partition.leader].append(replicas.get((partition.leader, key)))
        for broker in partition.replicas:
            # Without a leader there is nobody to follow.
            if partition.leader not in (broker, NO_LEADER):
                side = copying if broker in partition.adding_replicas else followed
                side[broker].append(replicas.get((broker, key)))
    return {
        broker: _counted(broker, before, after) or _summed(led[broker], followed[broker], copying[broker])
        for broker in after.racks
    }


def _remote_records(partition: PartitionView) -> int | None:
    start, local = partition.log_start_offset, partition.local_log_start_offset
    return local - start if start is not None and local is not None and local > start else None


def _remote_bytes(key: PartitionKey, after: ClusterSample) -> int | None:
    records, size = _remote_records(partition_views(after.partitions)[key]), mean_record_bytes(key, after)
    return None if records is None or size is None else round(records * size)


def mean_record_bytes(key: PartitionKey, observation: ClusterSample) -> float | None:
    """Mean bytes of a record in the leader's log; None for an empty log.

    Compaction leaves gaps in the offsets, so there the figure is too small; it is only used where growth can't be.
    """
    partition = partition_views(observation.partitions).get(key)
    if partition is None or partition.log_end_offset is None or partition.local_log_start_offset is None:
        return None
    size = sizes_of(observation.sizes).get((partition.leader, key))
    records = partition.log_end_offset - partition.local_log_start_offset
    return size / records if size and records > 0 else None


def _written(key: PartitionKey, before: ClusterSample, after: ClusterSample) -> float | None:
    """Bytes/s that clients wrote to one partition."""
    earlier, later = partition_views(before.partitions).get(key), partition_views(after.partitions)[key]
    if earlier is None or earlier.topic_id != later.topic_id:
        return None
    grown = _growth(key, earlier, later, before, after)
    if grown is not None:
        return _per_second(grown, before.when_ms("sizes", later.leader), after.when_ms("sizes", later.leader))
    messages, size = _messages(key, before, after), mean_record_bytes(key, after) or mean_record_bytes(key, before)
    if messages == 0:
        return 0.0
    return messages * size if messages is not None and size is not None else None


def _growth(
    key: PartitionKey, earlier: PartitionView, later: PartitionView, before: ClusterSample, after: ClusterSample
) -> int | None:
    """Growth of the leader's log, bytes; None where it isn't what was written."""
    same_log = earlier.leader == later.leader and earlier.local_log_start_offset == later.local_log_start_offset
    first, last = sizes_of(before.sizes).get((later.leader, key)), sizes_of(after.sizes).get((later.leader, key))
    if not same_log or first is None or last is None or last < first or later.local_log_start_offset is None:
        return None
    # Log sizes and offsets are read a moment apart; nothing appended but bytes grown is still growth.
    return last - first


def _appended(earlier: PartitionView, later: PartitionView) -> int | None:
    if earlier.log_end_offset is None or later.log_end_offset is None:
        return None
    appended = later.log_end_offset - earlier.log_end_offset
    return appended if appended >= 0 else None


def _messages(key: PartitionKey, before: ClusterSample, after: ClusterSample) -> float | None:
    earlier, later = partition_views(before.partitions).get(key), partition_views(after.partitions)[key]
    if earlier is None or earlier.topic_id != later.topic_id:
        return None
    appended = _appended(earlier, later)
    if appended is None:
        return None
    return _per_second(appended, before.when_ms("offsets", earlier.leader), after.when_ms("offsets", later.leader))


def _bytes_out(
    before: ClusterSample, after: ClusterSample, written: Mapping[PartitionKey, float | None]
) -> dict[PartitionKey, float | None]:
    """Bytes/s that consumers read, by partition: an estimate, as no broker counts it.

    Progress of committed offsets x mean record size; scaled to the topic's own byte counter of the leader's broker
    where there is one. A topic that is read without commits is split in proportion to what is written.
    """
    consumed = _consumed(before, after)
    by_place: dict[tuple[int, str], list[PartitionKey]] = defaultdict(list)
    for key, partition in partition_views(after.partitions).items():
        by_place[(partition.leader, key[0])].append(key)
    rates: dict[PartitionKey, float | None] = {}
    for (broker, topic), keys in by_place.items():
        total = _topic_bytes_out(broker, topic, before, after)
        weights = {key: consumed.get(key) or 0.0 for key in keys}
        if not any(weights.values()):
            weights = {key: written[key] or 0.0 for key in keys}
        shared = sum(weights.values())
        for key in keys:
            if total is None:
                rates[key] = consumed.get(key, 0.0 if _nothing_to_read(key, before, after) else None)
            else:
                rates[key] = total * weights[key] / shared if shared else total / len(keys)
    return rates


def _nothing_to_read(key: PartitionKey, before: ClusterSample, after: ClusterSample) -> bool:
    """Whether the log was empty at both looks."""
    earlier, later = partition_views(before.partitions).get(key), partition_views(after.partitions)[key]
    if earlier is None or earlier.topic_id != later.topic_id or later.log_end_offset is None:
        return False
    return earlier.log_end_offset == later.log_end_offset == later.log_start_offset


def _most_read(key: PartitionKey, before: ClusterSample, after: ClusterSample, passed_ms: int) -> float:
    """Records that a group can have read: what the log held, what was written since, and a part of the log again."""
    earlier, later = partition_views(before.partitions).get(key), partition_views(after.partitions).get(key)
    if earlier is None or later is None:
        return math.inf
    end_before, end = earlier.log_end_offset, later.log_end_offset
    start_before, start = earlier.log_start_offset, later.log_start_offset
    if end_before is None or end is None or start_before is None or start is None:
        return math.inf
    again = max(0, end - start) * passed_ms / 3_600_000
    return (end_before - start_before) + max(0, end - end_before) + again


def _consumed(before: ClusterSample, after: ClusterSample) -> dict[PartitionKey, float]:
    """Bytes/s by the progress of committed offsets, summed over groups; partitions without any commit are left out."""
    rates: dict[PartitionKey, float] = defaultdict(float)
    for name, group in after.groups.items():
        earlier = before.groups.get(name)
        if earlier is None:
            continue
        first_ms, last_ms = earlier.read_ms or before.time_ms, group.read_ms or after.time_ms
        for key, offset in group.committed.items():
            size, first = mean_record_bytes(key, after), earlier.committed.get(key)
            if first is None or size is None:
                continue
            rate: float | None = 0.0
            if offset != first:  # an idle group's offsets may be the same fetch in both looks
                first, offset = _within_log(
                    first, offset, before.partitions.log_end_of(key), after.partitions.log_end_of(key)
                )
                progress = min(float(offset - first), _most_read(key, before, after, max(0, last_ms - first_ms)))
                rate = _per_second(progress * size, first_ms, last_ms) if offset >= first else None
            if rate is not None:
                rates[key] += rate
    return dict(rates)


def _within_log(first: int, last: int, end_before: int | None, end_after: int | None) -> tuple[int, int]:
    if end_before is None or end_after is None:
        return first, last
    return min(first, end_before), min(last, end_after)


def _topic_bytes_out(broker: int, topic: str, before: ClusterSample, after: ClusterSample) -> float | None:
    """Bytes/s by a broker's counter of one topic, which it has none of until that is read; None as in `_counted`."""
    earlier, later = before.counters.get(broker), after.counters.get(broker)
    if earlier is None or later is None or _restarted(earlier, later):
        return None
    grown = later.topic_bytes_out.get(topic, 0.0) - earlier.topic_bytes_out.get(topic, 0.0)
    first_ms, last_ms = before.when_ms("counters", broker), after.when_ms("counters", broker)
    return _per_second(grown, first_ms, last_ms) if grown >= 0 else None


def _counted(broker: int, before: ClusterSample, after: ClusterSample) -> BrokerRates | None:
    """Rates from a broker's own counters; None without them or after a restart, which resets them."""
    earlier, later = before.counters.get(broker), after.counters.get(broker)
    first_ms, last_ms = before.when_ms("counters", broker), after.when_ms("counters", broker)
    if earlier is None or later is None or last_ms <= first_ms or _restarted(earlier, later):
        return None
    seconds = (last_ms - first_ms) / 1000
    grown = {rate.name: (later.totals[rate.stem] - earlier.totals[rate.stem]) / seconds for rate in RATES}
    # Kafka counts reassignment traffic among replication too; here it stands apart.
    return {
        rate.name: max(0.0, grown[rate.name] - grown[rate.meter_includes]) if rate.meter_includes else grown[rate.name]
        for rate in RATES
    }


def _restarted(earlier: BrokerCounters, later: BrokerCounters) -> bool:
    return any(count < earlier.totals[stem] for stem, count in later.totals.items())


def _summed(
    led: Sequence[ReplicaRates | None], followed: Sequence[ReplicaRates | None], copying: Sequence[ReplicaRates | None]
) -> BrokerRates:
    """Rates from what a broker leads and follows, None for a replica that was not read: its sum is unknown then.

    If no replica was read, the broker has not reported: its load is unknown, even if it leads nothing. Bytes that a
    reassignment copies can't be measured this way and are in no sum.
    """
    hosted = (*led, *followed, *copying)
    silent = bool(hosted) and all(rates is None for rates in hosted)
    sums = {
        BYTES_IN: None if silent else _sum(rates.bytes_in if rates else None for rates in led),
        BYTES_OUT: None if silent else _sum(rates.bytes_out if rates else None for rates in led),
        MESSAGES_IN: None if silent else _sum(rates.messages_in if rates else None for rates in led),
        REPLICATION_BYTES_IN: _sum(rates.bytes_in if rates else None for rates in followed),
    }
    return {rate.name: sums.get(rate) for rate in RATES}


def _per_second(amount: float, first_ms: int, last_ms: int) -> float | None:
    return amount * 1000 / (last_ms - first_ms) if last_ms > first_ms else None


def _sum(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
