"""Bytes that consumers read from each replica: an estimate, as no broker counts it. Pure.

Leaders serve all consumers unless the brokers' counters show that followers serve, too (KIP-392). No broker shows whom
it serves, and only its settings name its replica selector, which a collector need not be allowed to read. A broker that
leads nothing of a topic and sends bytes of it serves as a follower. If every broker leads something, what brokers
should send if followers serve the racks of groups' members is compared with what they should send if leaders serve all.

What members read in their own rack goes to the leader if the leader is in that rack, else to all replicas there alike.
Members that name no rack, and racks without a replica, read from the leader.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from assignor_core.live import PartitionKey
from streaming.collect.partition_table import (
    BROKER_BITS,
    INTERNAL_TOPICS,
    UNKNOWN,
    Flags,
    Floats,
    Ints,
    PartitionTable,
    column_at,
    positions,
)
from streaming.collect.sample import ClusterSample, counted_by_place
from streaming.contract.rates import WHOLE_LOG_MS

SEEN = 0.01
"""A broker that leads nothing of a topic serves as a follower if it sends this part of the topic's bytes."""
DIFFERENT = 0.1
"""The two guesses must be so far apart, as a part of a topic's bytes, before its counters decide between them."""


@dataclass(frozen=True, eq=False)
class Readers:
    """What groups read: bytes/s of partitions by the rack of the member, a row for each group and partition."""

    row: Ints
    """The partition's, in the table of the later sample."""
    rack: Ints
    """Place of the rack in `racks`; UNKNOWN where the member names none."""
    rate: Floats
    racks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Replicas:
    """All replicas of a sample, in the order of its table: which place, broker and topic, each is at."""

    partitions: PartitionTable
    rack_of: dict[int, str | None]

    @cached_property
    def row(self) -> Ints:
        """Row of each replica's partition."""
        return self.partitions.replica_row

    @cached_property
    def broker(self) -> Ints:
        """Broker that holds each replica."""
        return self.partitions.replica_broker

    @cached_property
    def leads(self) -> Flags:
        """Whether each replica is the leader."""
        leads: Flags = self.partitions.leader[self.row] == self.broker
        return leads

    @cached_property
    def is_whole(self) -> Flags:
        """Whether each replica may serve consumers: one that a reassignment is adding does not yet."""
        return ~self.partitions.is_adding(self.row, self.broker)

    @cached_property
    def places(self) -> tuple[Ints, Ints]:
        """(Places, the number of its place by replica); a place is broker x topics + topic."""
        names = self.partitions.names
        key = self.broker * max(1, len(names.topics)) + names.topic[self.row]
        places, place = np.unique(key, return_inverse=True)
        return places, place

    def racks(self, names: tuple[str, ...]) -> Ints:
        """Place of each replica's rack in `names`, or UNKNOWN."""
        place = {name: index for index, name in enumerate(names)}
        brokers, at = np.unique(self.broker, return_inverse=True)
        racks = [place.get(self.rack_of.get(broker) or "", UNKNOWN) for broker in brokers.tolist()]
        return np.array(racks, dtype=np.int64)[at]

    def served(self, readers: Readers) -> Floats:
        """Bytes/s that each replica serves if consumers read in their racks."""
        count = max(1, len(readers.racks))
        racked = readers.rack != UNKNOWN
        keys, at = np.unique(readers.row[racked] * count + readers.rack[racked], return_inverse=True)
        wanted = np.bincount(at, readers.rate[racked], len(keys))
        rack = self.racks(readers.racks)
        own = np.where((rack != UNKNOWN) & self.is_whole, positions(keys, self.row * count + rack), UNKNOWN)
        here = own != UNKNOWN
        holders = np.bincount(own[here], minlength=len(keys))
        by_leader = np.bincount(own[here & self.leads], minlength=len(keys)) > 0
        rates = np.zeros(len(self.row))
        at_leader = by_leader[own[here]]
        rates[here] = wanted[own[here]] * np.where(at_leader, self.leads[here], 1 / np.maximum(holders[own[here]], 1))
        # Nobody in their rack: the leader serves them.
        absent = holders == 0
        row = np.concatenate([readers.row[~racked], keys[absent] // count])
        rate = np.concatenate([readers.rate[~racked], wanted[absent]])
        return rates + self.led(summed(row, rate, len(self.partitions)))

    def led(self, by_partition: Floats) -> Floats:
        """Returns the rate at each replica if leaders serve all: each partition's rate at its leader."""
        return np.where(self.leads, by_partition[self.row], 0.0)


def readers_of(
    after: ClusterSample, row: Ints, group: Ints, keys_of_rows: Callable[[], list[PartitionKey]], rate: Floats
) -> Readers:
    """Rows that groups read, with the racks of the members that own them; `group` is a place in groups.

    `keys_of_rows` is called only if some member names its rack.
    """
    racks: dict[str, int] = {}
    rack = np.full(len(row), UNKNOWN)
    begins = np.searchsorted(group, np.arange(len(after.groups) + 1)).tolist()
    with_racks = [
        (place, view)
        for place, view in enumerate(after.groups.values())
        if any(owner.rack_id for owner in view.owners.values())
    ]
    keys = keys_of_rows() if with_racks else []
    for place, view in with_racks:
        for index in range(begins[place], begins[place + 1]):
            owner = view.owners.get(keys[index])
            if owner is not None and owner.rack_id:
                rack[index] = racks.setdefault(owner.rack_id, len(racks))
    return Readers(row, rack, rate, tuple(racks))


def followers_serve(
    known: bool, before: PartitionTable, replicas: Replicas, readers: Readers, by_place: Floats
) -> bool:
    """Whether followers serve consumers; `known` is what the sample before has shown, and holds where this shows
    nothing.

    `by_place` are bytes/s by the counters of each place of `replicas`, NaN where they can't tell.
    """
    places, place = replicas.places
    counted = np.nan_to_num(by_place, nan=0.0)
    if _sent_without_leading(before, replicas, counted):
        return True
    if not (readers.rack != UNKNOWN).any():
        return known
    by_partition = summed(readers.row, readers.rate, len(replicas.partitions))
    topic = places % max(1, len(replicas.partitions.names.topics))
    sent = summed(topic, counted)
    guesses = []
    for rates in (replicas.led(by_partition), replicas.served(readers)):
        guess = np.where(np.isnan(by_place), 0.0, np.bincount(place, rates, len(places)))
        # Guesses are of what is committed: as much as the counters have, topic by topic.
        guesses.append(guess * _ratio(sent, summed(topic, guess))[topic])
    by_leaders, in_racks = guesses
    tells = (np.bincount(topic, np.abs(in_racks - by_leaders)) > DIFFERENT * sent)[topic]
    apart = (in_racks - by_leaders)[tells]
    if not apart.any():
        return known
    # Least squares: 0 where the counters are as leaders alone would send, 1 where they are as racks ask for.
    return float(((counted - by_leaders)[tells] * apart).sum() / (apart * apart).sum()) > 0.5


def _sent_without_leading(before: PartitionTable, replicas: Replicas, counted: Floats) -> bool:
    """Whether a broker sent much of a topic of which it led nothing, at this sample and at the one before."""
    places, place = replicas.places
    partitions = replicas.partitions
    led = np.bincount(place, replicas.leads, len(places)) > 0
    topics = max(1, len(partitions.names.topics))
    earlier = partitions.rows_of(before.names)
    known = earlier != UNKNOWN
    led_before = before.leader[known] * topics + partitions.names.topic[earlier[known]]
    led |= np.isin(places, led_before)
    topic = places % topics
    totals = np.bincount(topic, counted, topics)
    return bool((~led & (counted > 0) & (counted > SEEN * totals[topic])).any())


def summed(places: Ints, values: Floats, count: int = 0) -> Floats:
    """Sum of the values beside each place, for `count` places at least."""
    return np.bincount(places, values, count).astype(np.float64)


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), 0.0)


@dataclass(frozen=True, eq=False)
class BytesOut:
    """Bytes/s by replica, NaN for unknown."""

    replicas: Replicas
    rates: Floats
    """Bytes/s in the order of `replicas`."""
    followers_serve: bool
    """Whether followers serve consumers; else nothing is known of them."""
    unread: Floats
    """Records that each row of the groups' commits may still count as read (see `_counted_records`)."""

    def of(self, rows: Ints, brokers: Ints) -> Floats:
        """Returns the bytes/s of the replica of each partition on the broker beside it, NaN for unknown."""
        replicas, leads = self.replicas, self.replicas.leads
        if not self.followers_serve:
            led = np.full(len(replicas.partitions), np.nan)
            led[replicas.row[leads]] = self.rates[leads]
            return np.where(replicas.partitions.leader[rows] == brokers, led[rows], np.nan)
        keys = replicas.row << BROKER_BITS | replicas.broker
        order = np.argsort(keys, kind="stable")
        place = positions(keys[order], rows << BROKER_BITS | brokers)
        return (
            np.where(place >= 0, self.rates[order][np.maximum(place, 0)], np.nan)
            if len(keys)
            else np.full(len(rows), np.nan)
        )


def bytes_out_per_sec(
    before: ClusterSample,
    after: ClusterSample,
    written: Floats,
    record_bytes: Floats,
    *,
    without_commits: Floats,
    unread: Floats | None = None,
    followers_known: bool = False,
) -> BytesOut:
    """Bytes/s of each replica of `after`; `written` is what clients write to each partition, `record_bytes` the mean
    bytes of a record in its log.

    Progress of committed offsets x mean record size; scaled to the topic's own byte counter of the replica's broker
    where there is one. A topic that is read without commits is split in proportion to what is written. Leaders serve
    all, unless the counters show that followers serve, too, or samples before have shown it (`followers_known`).
    `unread` is that of the samples up to `before`; None: these two samples are all there is.
    `without_commits` is what is known of each partition without a commit of a group, NaN where nothing is.
    """
    readers, committed, unread = _readers(before, after, record_bytes, unread)
    replicas = Replicas(after.partitions, dict(after.racks))
    places, place = replicas.places
    totals = counted_by_place(before, after, places, lambda counters: counters.topic_bytes_out)
    serve = followers_serve(followers_known, before.partitions, replicas, readers, totals)
    if serve:
        weights = replicas.served(readers)
    else:
        weights = replicas.led(summed(readers.row, readers.rate, len(after.partitions)))
    rates = _split(replicas, totals, weights, written, serve=serve)
    # Without a counter what is committed is all that is known, but of few partitions.
    of_leaders = np.where(replicas.leads, without_commits[replicas.row], np.nan)
    uncounted = np.where(committed[replicas.row], weights, of_leaders)
    rates = np.where(np.isnan(totals[place]), uncounted, rates)
    return BytesOut(replicas, rates, serve, unread)


def read_without_commits(
    partitions: PartitionTable, written: Floats, nothing_written: Flags, own_topics: Collection[str]
) -> Floats:
    """Bytes/s that are read of each partition if no group commits for it; NaN where they are unknown.

    Nothing can be read of an empty log. Topics of Kafka's own are read by brokers alone, which is no traffic of
    consumers. The pipeline reads each of `own_topics` once, and its offsets are in its checkpoints.
    """
    names = partitions.names
    is_empty = nothing_written & (partitions.end >= 0) & (partitions.start == partitions.end)
    rates = np.where(is_empty, 0.0, np.nan)
    if len(names.topics):
        internal = np.array([name in INTERNAL_TOPICS for name in names.topics], dtype=bool)[names.topic]
        own = np.array([name in own_topics for name in names.topics], dtype=bool)[names.topic]
        rates = np.where(internal, 0.0, np.where(own, written, rates))
    return rates


def _split(replicas: Replicas, totals: Floats, weights: Floats, written: Floats, *, serve: bool) -> Floats:
    """The counter of each place, split among its replicas by `weights`; where these are none, by what is written.

    Leaders share the counter then; followers where the place leads nothing.
    """
    places, place = replicas.places
    count = len(places)
    leads_any = np.bincount(place, replicas.leads, count) > 0
    sharing = replicas.leads | (serve & replicas.is_whole & ~leads_any[place])
    by_writes = np.where(sharing, np.nan_to_num(written, nan=0.0)[replicas.row], 0.0)
    shared = np.bincount(place, weights, count)
    weights = np.where(shared[place] != 0, weights, by_writes)
    shared = np.where(shared != 0, shared, np.bincount(place, by_writes, count))[place]
    alike = np.where(sharing, totals[place] / np.maximum(np.bincount(place, sharing, count), 1)[place], 0.0)
    return np.where(shared != 0, totals[place] * weights / np.where(shared != 0, shared, 1), alike)


def _readers(
    before: ClusterSample, after: ClusterSample, record_bytes: Floats, unread: Floats | None
) -> tuple[Readers, Flags, Floats]:
    """(Bytes/s by the progress of committed offsets, whether each partition has any commit, what is left unread)."""
    partitions = after.partitions
    (rows_before, committed_before), (rows, committed) = before.groups.committing, after.groups.committing
    earlier = rows.rows_in(rows_before)
    row = partitions.rows_of(rows.names)
    chosen = np.flatnonzero((earlier >= 0) & (row >= 0) & (committed >= 0))
    first, last = committed_before[earlier[chosen]], committed[chosen]
    is_idle = last == first
    row_before = before.partitions.rows_of(rows_before.names)[earlier[chosen]]
    ends, starts = column_at(before.partitions.end, row_before), column_at(before.partitions.start, row_before)
    first, last = _within_log(first, last, ends, partitions.end[row[chosen]])
    size = record_bytes[row[chosen]]
    began_ms = _read_ms(before)[rows_before.group[earlier[chosen]]]
    ended_ms = _read_ms(after)[rows.group[chosen]]
    passed_ms = np.where(ended_ms > began_ms, ended_ms - began_ms, np.nan)
    # An idle group's offsets may be the same fetch in both samples.
    had = (ends - starts).astype(np.float64) if unread is None else np.nan_to_num(unread[earlier[chosen]])
    logs = _Logs(ends, partitions.end[row[chosen]], partitions.start[row[chosen]], np.minimum(starts, ends) >= 0)
    counted, left = _counted_records((last - first).astype(np.float64), had, logs, np.nan_to_num(passed_ms))
    still_unread = np.full(len(rows.group), np.nan)
    still_unread[chosen] = left
    rates = np.where(is_idle, 0.0, counted * size * 1000 / passed_ms)
    counts = (first >= 0) & (last >= first) & ~np.isnan(size) & ~np.isnan(rates)
    of_row, group = row[chosen][counts], rows.group[chosen][counts]
    committing = np.bincount(of_row, minlength=len(partitions)) > 0
    readers = readers_of(after, of_row, group, lambda: rows.names.keys_of_rows(chosen[counts].tolist()), rates[counts])
    return readers, committing, still_unread


@dataclass(frozen=True, eq=False)
class _Logs:
    """Ends of logs at two samples and starts at the later one; `known`: both are known of the earlier sample."""

    end_before: Ints
    end: Ints
    start: Ints
    known: Flags


def _counted_records(progress: Floats, had: Floats, logs: _Logs, passed_ms: Floats) -> tuple[Floats, Floats]:
    """(How many records of the progress of each group and partition count as read, how many more may count later).

    Any client that may commit can commit 0, the end and 0 again, and read nothing. So a group counts as having read
    what was written since it was first seen, and besides the whole log once in `WHOLE_LOG_MS`. `had` is what was left
    before. Nothing bounds the progress where an end or a start of the log is unknown.
    """
    held = np.maximum(0, logs.end - logs.start)
    available = had + np.maximum(0, logs.end - logs.end_before) + held * passed_ms / WHOLE_LOG_MS
    known = logs.known & (logs.end >= 0) & (logs.start >= 0)
    counted = np.where(known, np.minimum(progress, available), progress)
    left = np.where(known, np.minimum(available - np.maximum(0, counted), held), np.nan)
    return counted, left


def _within_log(first: Ints, last: Ints, end_before: Ints, end_after: Ints) -> tuple[Ints, Ints]:
    """Committed offsets of two samples, cut to the ends of the logs where both are known: any client may commit an
    offset that its log will never reach, and nobody reads records that are not there.
    """
    known = (end_before >= 0) & (end_after >= 0)
    return np.where(known, np.minimum(first, end_before), first), np.where(known, np.minimum(last, end_after), last)


def _read_ms(observation: ClusterSample) -> Ints:
    """When the offsets of each group were fetched; when the sample began, where that isn't known."""
    return np.array([read_ms or observation.time_ms for read_ms in observation.groups.read_ms], dtype=np.int64)
