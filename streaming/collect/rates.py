"""Two observations turned into rates: pure, and never zero for what is unknown.

Growth of the leader's log is exact where nothing was deleted in the interval. Where retention, compaction, a new leader
or a re-created topic spoilt it, offsets x mean record size is the next best. A replica that a reassignment is adding
copies old data: its growth is no load. All rates are per second over the interval between the two observations.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from streaming.collect.observation import BrokerCounters, Observation, PartitionKey, PartitionView, ReplicaKey


@dataclass(frozen=True, slots=True)
class ReplicaRates:
    """Rates of one replica; None = unknown. `bytes_in` of a follower is what it replicates."""

    role: str
    bytes_in: float | None
    bytes_out: float | None
    messages_in: float | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BrokerRates:
    """Rates of one broker; None = unknown. Reassignment traffic stands apart and is in no other figure."""

    bytes_in: float | None
    bytes_out: float | None
    messages_in: float | None
    replication_bytes_in: float | None
    replication_bytes_out: float | None
    reassignment_bytes_in: float | None
    reassignment_bytes_out: float | None


def replica_rates(before: Observation, after: Observation) -> dict[ReplicaKey, ReplicaRates]:
    """Rates of every replica that `after` shows."""
    seconds = (after.time_ms - before.time_ms) / 1000
    if seconds <= 0:
        return {}
    written = {key: _written(key, before, after, seconds) for key in after.partitions}
    read = _bytes_out(before, after, seconds, written)
    rates = {}
    for (broker, key), size in after.sizes.items():
        partition = after.partitions.get(key)
        if partition is None:
            continue
        leads = partition.leader == broker
        adding = broker in partition.adding_replicas
        rates[(broker, key)] = ReplicaRates(
            role="leader" if leads else "follower",
            # In sync, a follower takes in what its leader is given.
            bytes_in=None if adding else written[key],
            bytes_out=read.get(key) if leads else None,
            messages_in=_messages(key, before, after, seconds) if leads else None,
            size_bytes=size,
        )
    return rates


def broker_rates(
    before: Observation, after: Observation, replicas: Mapping[ReplicaKey, ReplicaRates]
) -> dict[int, BrokerRates]:
    """Totals of every broker alive: from its own counters where both looks have them, else summed from its replicas."""
    seconds = (after.time_ms - before.time_ms) / 1000
    totals = {}
    for broker in after.racks:
        counted = _counted(before.counters.get(broker), after.counters.get(broker), seconds)
        totals[broker] = counted or _summed(broker, replicas)
    return totals


def mean_record_bytes(key: PartitionKey, observation: Observation) -> float | None:
    """Mean bytes of a record in the leader's log; None for an empty log.

    Compaction leaves gaps in the offsets, so there the figure is too small; it is only used where growth can't be.
    """
    partition = observation.partitions.get(key)
    if partition is None or partition.log_end_offset is None or partition.log_start_offset is None:
        return None
    size = observation.sizes.get((partition.leader, key))
    records = partition.log_end_offset - partition.log_start_offset
    return size / records if size and records > 0 else None


def _written(key: PartitionKey, before: Observation, after: Observation, seconds: float) -> float | None:
    """Bytes/s that clients wrote to one partition."""
    earlier, later = before.partitions.get(key), after.partitions[key]
    if earlier is None or earlier.topic_id != later.topic_id:
        return None
    grown = _growth(key, earlier, later, before, after)
    if grown is not None:
        return grown / seconds
    appended = _appended(earlier, later)
    size = mean_record_bytes(key, after) or mean_record_bytes(key, before)
    if appended == 0:
        return 0.0
    return appended * size / seconds if appended is not None and size is not None else None


def _growth(
    key: PartitionKey, earlier: PartitionView, later: PartitionView, before: Observation, after: Observation
) -> int | None:
    """Growth of the leader's log, bytes; None where it isn't what was written."""
    same_log = earlier.leader == later.leader and earlier.log_start_offset == later.log_start_offset
    first, last = before.sizes.get((later.leader, key)), after.sizes.get((later.leader, key))
    if not same_log or first is None or last is None or last < first or later.log_start_offset is None:
        return None
    # Log sizes and offsets are read a moment apart; nothing appended but bytes grown is still growth.
    return last - first


def _appended(earlier: PartitionView, later: PartitionView) -> int | None:
    if earlier.log_end_offset is None or later.log_end_offset is None:
        return None
    appended = later.log_end_offset - earlier.log_end_offset
    return appended if appended >= 0 else None


def _messages(key: PartitionKey, before: Observation, after: Observation, seconds: float) -> float | None:
    earlier, later = before.partitions.get(key), after.partitions[key]
    if earlier is None or earlier.topic_id != later.topic_id:
        return None
    appended = _appended(earlier, later)
    return None if appended is None else appended / seconds


def _bytes_out(
    before: Observation, after: Observation, seconds: float, written: Mapping[PartitionKey, float | None]
) -> dict[PartitionKey, float | None]:
    """Bytes/s that consumers read, by partition: an estimate, as no broker counts it.

    Progress of committed offsets x mean record size; scaled to the topic's own byte counter of the leader's broker
    where there is one. A topic that is read without commits is split in proportion to what is written.
    """
    consumed = _consumed(before, after, seconds)
    measured = _topic_bytes_out(before, after, seconds)
    by_place: dict[tuple[int, str], list[PartitionKey]] = defaultdict(list)
    for key, partition in after.partitions.items():
        by_place[(partition.leader, key[0])].append(key)
    rates: dict[PartitionKey, float | None] = {}
    for (broker, topic), keys in by_place.items():
        total = measured.get((broker, topic))
        if broker in after.counters and broker in before.counters and total is None:
            total = 0.0  # a topic without a series was never read on that broker
        weights = {key: consumed.get(key) or 0.0 for key in keys}
        if not any(weights.values()):
            weights = {key: written[key] or 0.0 for key in keys}
        shared = sum(weights.values())
        for key in keys:
            if total is None:
                rates[key] = consumed.get(key)
            else:
                rates[key] = total * weights[key] / shared if shared else total / len(keys)
    return rates


def _consumed(before: Observation, after: Observation, seconds: float) -> dict[PartitionKey, float]:
    """Bytes/s by the progress of committed offsets, summed over groups; partitions without any commit are left out."""
    rates: dict[PartitionKey, float] = defaultdict(float)
    for name, group in after.groups.items():
        earlier = before.groups.get(name)
        for key, offset in group.committed.items():
            size = mean_record_bytes(key, after)
            first = earlier.committed.get(key) if earlier else None
            if first is not None and size is not None and offset >= first:
                rates[key] += (offset - first) * size / seconds
    return dict(rates)


def _topic_bytes_out(before: Observation, after: Observation, seconds: float) -> dict[tuple[int, str], float]:
    rates = {}
    for broker, counters in after.counters.items():
        earlier = before.counters.get(broker)
        for topic, count in counters.topic_bytes_out.items():
            first = earlier.topic_bytes_out.get(topic, 0.0) if earlier else None
            if first is not None and count >= first:
                rates[(broker, topic)] = (count - first) / seconds
    return rates


def _counted(before: BrokerCounters | None, after: BrokerCounters | None, seconds: float) -> BrokerRates | None:
    """Rates from a broker's own counters; None without them or after a restart, which resets them."""
    if before is None or after is None or seconds <= 0:
        return None
    names = [field.name for field in fields(BrokerRates)]
    grown = {name: getattr(after, name) - getattr(before, name) for name in names}
    if any(value < 0 for value in grown.values()):
        return None
    rates = {name: value / seconds for name, value in grown.items()}
    # Kafka counts reassignment traffic among replication too; here it stands apart.
    for side in ("in", "out"):
        apart = rates[f"replication_bytes_{side}"] - rates[f"reassignment_bytes_{side}"]
        rates[f"replication_bytes_{side}"] = max(0.0, apart)
    return BrokerRates(**rates)


def _summed(broker: int, replicas: Mapping[ReplicaKey, ReplicaRates]) -> BrokerRates:
    """Rates from the replicas; one unknown leader makes the sum unknown. Reassignment can't be told this way."""
    own = [rates for (host, _), rates in replicas.items() if host == broker]
    led = [rates for rates in own if rates.role == "leader"]
    followed = [rates for rates in own if rates.role == "follower"]
    return BrokerRates(
        bytes_in=_sum(rates.bytes_in for rates in led),
        bytes_out=_sum(rates.bytes_out for rates in led),
        messages_in=_sum(rates.messages_in for rates in led),
        replication_bytes_in=_sum(rates.bytes_in for rates in followed),
        replication_bytes_out=None,
        reassignment_bytes_in=None,
        reassignment_bytes_out=None,
    )


def _sum(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
