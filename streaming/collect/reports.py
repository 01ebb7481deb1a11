"""The records of the two topics, and which of them are made of a sample: those of one shard that are due. Pure.

Records are version 1 of the contract: JSON objects, unknown rates null. A large fleet has 800,000 records a sample, so
the text of each is put together from its parts: what many records share is made once. A test compares the texts with
those of `json.dumps`.

A replica that shows the figures of the sample before is held back. Its next record covers the whole time, so each
window has the rates, the time covered and the newest figures that it would have if every sample had been reported
(`tests/collect/test_due.py` compares them). What was held back is reported before figures change and before a window
ends, at the time of the sample that showed it.

A window keeps the first and the last sample of groups, so these two are reported of all groups. In between, a group of
which nothing has changed, neither in itself nor in the logs that it reads, is held back whole.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from assignor_core.live import PartitionKey
from streaming.collect.group_table import GroupTable, GroupView, Owner
from streaming.collect.partition_table import UNKNOWN, Floats, Ints, PartitionTable, column_at, known_or_none
from streaming.collect.rates import (
    FOLLOWER,
    LEADER,
    BrokerRates,
    RecordBytes,
    ReplicaRateTable,
    broker_rates,
    learned,
    replica_rates,
)
from streaming.collect.sample import ClusterSample
from streaming.collect.shards import WHOLE, Shard
from streaming.contract import RECORD_VERSION
from streaming.contract.rates import BYTES_IN, BYTES_OUT, MESSAGES_IN
from streaming.contract.records import OUT_OF_SYNC_REPLICAS, RATE_MAX, REMOTE_RECORDS, REMOTE_SIZE_BYTES
from streaming.settings import TopicSettings

AT_A_TIME = 10_000
"""Rows whose figures are put into words together: so many are in memory as text."""
NULL = "null"
Records = Iterable[tuple[bytes, bytes]]
"""(Key, value) of each."""


@dataclass(frozen=True, slots=True)
class DueRates:
    """Rows of a table that are reported: their places, and the time before `time_ms` that each covers."""

    rates: ReplicaRateTable
    places: Ints
    time_ms: int
    interval_ms: Ints


@dataclass(frozen=True, slots=True)
class HeldRates:
    """Rates of a sample, and how much time of each row is not reported yet; 0 where all is."""

    rates: ReplicaRateTable
    time_ms: int
    held_ms: Ints


@dataclass(frozen=True, slots=True)
class SomeGroups:
    """A sample, and those of its groups that are reported, or held back."""

    seen: ClusterSample
    names: Collection[str]


def all_of(rates: ReplicaRateTable, time_ms: int, interval_ms: int) -> DueRates:
    """Every row of a sample."""
    return DueRates(rates, np.arange(len(rates)), time_ms, np.full(len(rates), interval_ms))


def due_rates(
    held: HeldRates | None, rates: ReplicaRateTable, time_ms: int, interval_ms: int, *, window_ms: int, next_ms: int
) -> tuple[list[DueRates], HeldRates]:
    """(What is reported at the sample of `time_ms`, in this order; what is held back after it).

    `interval_ms` is the time since the sample of `held`; `next_ms` is when the next sample is expected.
    """
    if held is None:
        return [all_of(rates, time_ms, interval_ms)], HeldRates(rates, time_ms, np.zeros(len(rates), np.int64))
    before = _places_before(held.rates, rates)
    same = _same_figures(held.rates, rates, before)
    if held.time_ms // window_ms != time_ms // window_ms:
        late = held.held_ms > 0  # the sample came later than expected
        carried = np.zeros(len(rates), np.int64)
    else:
        late = held.held_ms > 0
        late[before[same]] = False
        carried = np.where(same, held.held_ms[np.maximum(before, 0)] if len(held.held_ms) else 0, 0)
    covered_ms = carried + interval_ms
    # A record weighs by two windows at most: a sample that alone covers more than one is not added to others.
    is_last = time_ms // window_ms != next_ms // window_ms or interval_ms > window_ms
    reported = np.flatnonzero(~same | is_last)
    due = [DueRates(rates, reported, time_ms, covered_ms[reported])]
    if late.any():
        rows = np.flatnonzero(late)
        due.insert(0, DueRates(held.rates, rows, held.time_ms, held.held_ms[rows]))
    left = covered_ms.copy()
    left[reported] = 0
    return due, HeldRates(rates, time_ms, left)


def due_groups(
    held: SomeGroups | None, seen: ClusterSample, *, window_ms: int, next_ms: int
) -> tuple[list[SomeGroups], SomeGroups]:
    """(What is reported of groups at this sample, in this order; what is held back after it)."""
    everything = SomeGroups(seen, seen.groups)
    if held is None:
        return [everything], SomeGroups(seen, ())
    is_first = held.seen.time_ms // window_ms != seen.time_ms // window_ms
    is_last = seen.time_ms // window_ms != next_ms // window_ms
    still = _unchanged_groups(held.seen, seen)
    # The last sample that showed what a group no longer has; at the first of a window, as the last came late.
    late = set(held.names) if is_first else set(held.names) - still
    due = [SomeGroups(held.seen, late)] if late else []
    if is_first or is_last:
        return [*due, everything], SomeGroups(seen, ())
    return [*due, SomeGroups(seen, seen.groups.keys() - still)], SomeGroups(seen, still)


def _unchanged_groups(before: ClusterSample, after: ClusterSample) -> frozenset[str]:
    """Groups whose records would be the same but for the time."""
    groups = after.groups
    earlier = groups.rows.rows_in(before.groups.rows)
    row, row_before = after.partitions.rows_of(groups.names), before.partitions.rows_of(groups.names)
    changed = earlier < 0
    for name in ("start", "end"):
        changed |= column_at(getattr(after.partitions, name), row) != column_at(
            getattr(before.partitions, name), row_before
        )
    held_back = before.last_stable.items() ^ after.last_stable.items()
    if held_back:
        keys = {key for key, _ in held_back}
        changed |= np.fromiter((key in keys for key in groups.names.keys_of_rows()), bool, len(changed))
    policies = before.cleanup_policies.items() ^ after.cleanup_policies.items()
    if policies:
        is_of_them = np.isin(np.array(groups.names.topics), [topic for topic, _ in policies])
        changed |= is_of_them[groups.names.topic]
    moved = set(groups.group[changed].tolist())
    return frozenset(
        name
        for place, (name, view) in enumerate(groups.items())
        if place not in moved and before.groups.get(name) == view
    )


def _places_before(held: ReplicaRateTable, rates: ReplicaRateTable) -> Ints:
    """Returns the place of each replica in the rates of the sample before; UNKNOWN where the replica is new."""
    rows = held.partitions.rows_of(rates.partitions.names)[rates.row] if len(rates) else rates.row
    return np.where(rows >= 0, held.place_of(np.maximum(rows, 0), rates.broker), UNKNOWN)


def _same_figures(
    held: ReplicaRateTable, rates: ReplicaRateTable, before: Ints
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether a record of each replica would have the same figures as at the sample before."""
    if not len(held):
        return np.zeros(len(rates), bool)
    was = np.maximum(before, 0)
    same: npt.NDArray[np.bool_] = (before >= 0) & (held.leads[was] == rates.leads)
    for name in ("size_bytes", "remote_records", "remote_size_bytes", "out_of_sync"):
        same &= getattr(held, name)[was] == getattr(rates, name)
    for name in ("bytes_in", "bytes_out", "messages_in"):
        first, last = getattr(held, name)[was], getattr(rates, name)
        same &= (first == last) | (np.isnan(first) & np.isnan(last))
    return same


def broker_records(
    cluster: str, before: ClusterSample, after: ClusterSample, brokers: Mapping[int, BrokerRates]
) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of the totals of each broker; none where the clock has stepped back between the samples."""
    if after.time_ms <= before.time_ms:
        return
    for broker, totals in sorted(brokers.items()):
        disks = after.log_dirs.get(broker)
        record = {
            **_common(cluster, after.time_ms, after.time_ms - before.time_ms),
            "broker": broker, "topic": None, "partition": None, "role": None,
            # A rate beyond the contract would have the whole record rejected.
            **{name: rate if rate is not None and rate <= RATE_MAX else None for name, rate in totals.items()},
            "size_bytes": disks.used_bytes if disks else None,
            "rack": after.racks[broker],
            "log_dir_used_bytes": disks.used_bytes if disks else None,
            "log_dir_usable_bytes": disks.usable_bytes if disks else None,
            "groups_left_out": after.groups_left_out.get(broker),
            "group_partitions_left_out": after.group_partitions_left_out.get(broker),
            "requests_refused": None if broker in after.unanswering else after.requests_refused.get(broker, 0),
            "address": after.addresses.get(broker),
        }  # fmt: skip
        yield str(broker).encode(), _text(record).encode()


def replica_records(cluster: str, due: DueRates) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of the rates of each replica that is due."""
    replicas, names = due.rates, due.rates.partitions.names
    topics = [_text(name) for name in names.topics]
    roles = {leads: f',"role":{_text(LEADER if leads else FOLLOWER)},"{BYTES_IN.name}":' for leads in (True, False)}
    bytes_out, messages_in = f',"{BYTES_OUT.name}":', f',"{MESSAGES_IN.name}":'
    heads = {
        interval_ms: _text(_common(cluster, due.time_ms, interval_ms))[:-1]
        for interval_ms in np.unique(due.interval_ms).tolist()
    }
    for first in range(0, len(due.places), AT_A_TIME):
        part = due.places[first : first + AT_A_TIME]
        row = replicas.row[part]
        columns = zip(
            due.interval_ms[first : first + AT_A_TIME].tolist(), replicas.broker[part].tolist(),
            names.topic[row].tolist(), names.number[row].tolist(), replicas.leads[part].tolist(),
            _rate_texts(replicas.bytes_in[part]), _rate_texts(replicas.bytes_out[part]),
            _rate_texts(replicas.messages_in[part]), _offset_texts(replicas.size_bytes[part]),
            _remote_texts(replicas, part), _sync_texts(replicas.out_of_sync[part]),
            strict=True,
        )  # fmt: skip
        for interval_ms, broker, topic, number, leads, written, read, messages, size, remote, sync in columns:
            yield (
                str(broker).encode(),
                (
                    f'{heads[interval_ms]},"broker":{broker},"topic":{topics[topic]},"partition":{number}{roles[leads]}'
                    f'{written}{bytes_out}{read}{messages_in}{messages},"size_bytes":{size}{remote}{sync}}}'
                ).encode(),
            )


def _common(cluster: str, time_ms: int, interval_ms: int) -> dict[str, Any]:
    """How each record of byte rates begins."""
    return {"v": RECORD_VERSION, "kafka_cluster": cluster, "event_time_ms": time_ms, "interval_ms": interval_ms}


def consumer_lag_records(
    cluster: str, observation: ClusterSample, names: Collection[str] | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of one record per group and row of `GroupTable`; the key is the group.

    Of the groups `names`; None is all. Fields that only some groups or members have are left out where unknown.
    """
    groups = observation.groups
    partitions = observation.partitions
    row = partitions.rows_of(groups.names)
    end, start = column_at(partitions.end, row), column_at(partitions.start, row)
    committed = groups.committed
    # A commit may be read a moment after the end offset: behind by less than nothing is behind by nothing.
    lag = np.where((end >= 0) & (committed >= 0), np.maximum(0, end - committed), UNKNOWN)
    topics = [_text(name) for name in groups.names.topics]
    policies = [_known_texts(cleanup_policy=observation.cleanup_policies.get(name)) for name in groups.names.topics]
    when = f',"event_time_ms":{observation.time_ms},"committed_offset":'
    begins = groups.begin.tolist()
    for place, (name, view) in enumerate(groups.items()):
        if names is not None and name not in names:
            continue
        part = slice(begins[place], begins[place + 1])
        keys = groups.keys_by_group[place]
        key = name.encode()
        head = _text({"v": RECORD_VERSION, "kafka_cluster": cluster, "group": name})[:-1] + ',"topic":'
        ends = _owner_texts(view)
        targets = {target: _known_texts(target_member_id=target) for target in {None, *view.targets.values()}}
        lags = _offset_texts(lag[part])
        columns = zip(
            groups.names.topic[part].tolist(), keys, _offset_texts(committed[part]), _offset_texts(end[part]),
            _offset_texts(start[part]), lags, [ends[view.owners.get(row)] for row in keys],
            [targets[view.targets.get(row)] for row in keys],
            _field_texts("share_start_offset", view.share.starts if view.share else None, keys),
            _field_texts("last_stable_offset", observation.last_stable, keys), strict=True,
        )  # fmt: skip
        for topic, row, offset, log_end, log_start, behind, tail, target, share, stable in columns:
            yield (
                key,
                (
                    f'{head}{topics[topic]},"partition":{row[1]}{when}{offset},"log_end_offset":{log_end}'
                    f',"log_start_offset":{log_start},"lag_records":{behind}{tail}{target}{share}{stable}{policies[topic]}}}'
                ).encode(),
            )


def _owner_texts(view: GroupView) -> dict[Owner | None, str]:
    """What a record of a group has of it and of the owner of its partition, by owner."""
    of_group = f',"group_state":{_text(view.state)},"generation_id":{_text(view.generation_id)}' + _known_texts(
        group_type=view.group_type, group_members=view.members, assignor=view.assignor,
        topology_epoch=view.topology_epoch,
    )  # fmt: skip
    texts: dict[Owner | None, str] = {None: f',"member_id":null,"client_id":null{of_group}'}
    for owner in set(view.owners.values()):
        of_owner = _known_texts(
            group_instance_id=owner.group_instance_id, rack_id=owner.rack_id,
            subscribed_topic_regex=owner.subscribed_topic_regex, client_host=owner.client_host,
        )  # fmt: skip
        ids = f',"member_id":{_text(owner.member_id)},"client_id":{_text(owner.client_id)}'
        texts[owner] = f"{ids}{of_group}{of_owner}"
    return texts


def _field_texts(name: str, by_key: Mapping[PartitionKey, int] | None, keys: Sequence[PartitionKey]) -> Iterable[str]:
    """What records of a group have of one field that is known of some partitions."""
    return [_known_texts(**{name: by_key.get(key)}) for key in keys] if by_key else repeat("", len(keys))


def _known_texts(**fields: object) -> str:
    return "".join(f',"{name}":{_text(value)}' for name, value in fields.items() if value is not None)


def _offset_texts(column: Ints) -> list[object]:
    """Whole numbers, or null."""
    return [NULL if value < 0 else value for value in column.tolist()]


def _remote_texts(replicas: ReplicaRateTable, places: Ints) -> Iterable[str]:
    """What a record has of remote storage: nothing where the log doesn't begin there."""
    records, sizes = replicas.remote_records[places], replicas.remote_size_bytes[places]
    if not (records != UNKNOWN).any():
        return repeat("", len(places))
    columns = zip(records.tolist(), sizes.tolist(), strict=True)
    return [
        _known_texts(**{REMOTE_RECORDS.name: known_or_none(count), REMOTE_SIZE_BYTES.name: known_or_none(size)})
        for count, size in columns
    ]


def _sync_texts(counts: Ints) -> list[str]:
    """What a record has of replicas that are not in sync."""
    texts = {count: f',"{OUT_OF_SYNC_REPLICAS.name}":{count}' for count in np.unique(counts).tolist()}
    texts[UNKNOWN] = ""
    return [texts[count] for count in counts.tolist()]


def _rate_texts(column: npt.NDArray[np.float64]) -> list[str]:
    """Returns the texts of rates as JSON writes them."""
    return [repr(value) if value <= RATE_MAX else NULL for value in column.tolist()]  # NaN isn't


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class _KnownSamples:
    """What is known from samples so far: the newest one, what of it is held back, and what samples have shown."""

    before: ClusterSample | None = None
    held: HeldRates | None = None
    held_groups: SomeGroups | None = None
    record_bytes: RecordBytes | None = None
    followers_serve: bool = False
    unread: Floats | None = None


class RecordMaker:
    """Makes the records of one sample after the other. Not for two threads.

    `interval_ms` is the set time between samples. `window_ms` is the length of the pipeline's windows: if it is given,
    replicas and groups without changes are reported less often.
    """

    def __init__(
        self, cluster: str, topics: TopicSettings, *, interval_ms: int, window_ms: int | None, shard: Shard = WHOLE
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._interval_ms = interval_ms
        self._window_ms = window_ms
        self._shard = shard
        self._known = self._made = _KnownSamples()

    @property
    def partitions_before(self) -> PartitionTable | None:
        """Partitions of the sample that the next sample is compared with; None before the first."""
        return None if self._known.before is None else self._known.before.partitions

    def of(self, after: ClusterSample) -> Iterator[tuple[str, Records]]:
        """Records of a sample by topic; the first sample has no rates, as these need two.

        Until `arrived` is called, the next sample is compared with the one before.
        """
        known, held, of_records = self._known, None, None
        before, followers_serve, unread = known.before, known.followers_serve, known.unread
        groups, held_groups = self._due_groups(after)
        for due in groups:
            yield self._topics.consumer_lag, consumer_lag_records(self._cluster, due.seen, due.names)
        if before is not None:
            of_records = learned(known.record_bytes, before, after)
            replicas = replica_rates(
                before, after, self._shard, known=of_records, followers_known=followers_serve, unread=unread,
                own_topics=(self._topics.byte_rate, self._topics.consumer_lag),
            )  # fmt: skip
            followers_serve, unread = replicas.followers_serve, replicas.unread
            brokers = broker_rates(before, after, replicas, self._shard)
            due_now, held = self._due_rates(replicas, after.time_ms, after.time_ms - before.time_ms)
            for rates in due_now:
                yield self._topics.byte_rate, replica_records(self._cluster, rates)
            yield self._topics.byte_rate, broker_records(self._cluster, before, after, brokers)
        self._made = _KnownSamples(after, held, held_groups, of_records, followers_serve, unread)

    def arrived(self) -> None:
        """The records made last have been sent: the next sample is compared with theirs."""
        self._known = self._made

    def _due_groups(self, after: ClusterSample) -> tuple[list[SomeGroups], SomeGroups | None]:
        """What is reported of groups now, and what is held back."""
        own = after
        if not self._shard.is_whole:
            groups = {name: view for name, view in after.groups.items() if self._shard.takes_group(name)}
            own = replace(after, groups=GroupTable(groups))
        if self._window_ms is None:
            return [SomeGroups(own, own.groups)], None
        passed_ms = after.time_ms - self._known.before.time_ms if self._known.before else 0
        next_ms = after.time_ms + max(passed_ms, self._interval_ms)
        return due_groups(self._known.held_groups, own, window_ms=self._window_ms, next_ms=next_ms)

    def _due_rates(
        self, replicas: ReplicaRateTable, time_ms: int, interval_ms: int
    ) -> tuple[list[DueRates], HeldRates | None]:
        """What is reported of the replicas now, and what is held back."""
        if self._window_ms is None:
            return [all_of(replicas, time_ms, interval_ms)], None
        next_ms = time_ms + max(interval_ms, self._interval_ms)
        return due_rates(self._known.held, replicas, time_ms, interval_ms, window_ms=self._window_ms, next_ms=next_ms)
