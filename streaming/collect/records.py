"""The records of the two topics, version 1 of the contract: JSON objects, unknown rates null.

A large fleet has 800,000 records a look, so the text of each is put together from its parts: what is the same for many
records is made once. `tests/collect/test_records.py` holds the texts to those of `json.dumps`.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from streaming.collect.due import DueRates
from streaming.collect.group_table import GroupTable, GroupView, Owner
from streaming.collect.observation import Observation
from streaming.collect.partition_table import UNKNOWN, Ints, PartitionKey, column_at, known_or_none
from streaming.collect.rates import FOLLOWER, LEADER, BrokerRates, ReplicaRateTable
from streaming.contract import RECORD_VERSION
from streaming.contract.rates import BYTES_IN, BYTES_OUT, MESSAGES_IN
from streaming.contract.records import OUT_OF_SYNC_REPLICAS, RATE_MAX, REMOTE_RECORDS, REMOTE_SIZE_BYTES

AT_A_TIME = 10_000
"""Rows whose figures are put into words together: so many are in memory as text."""
NULL = "null"


def broker_records(
    cluster: str, before: Observation, after: Observation, brokers: Mapping[int, BrokerRates]
) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of the totals of each broker; none where the clock has stepped back between the looks."""
    if after.time_ms <= before.time_ms:
        return
    for broker, totals in sorted(brokers.items()):
        disks = after.log_dirs.get(broker)
        record = {
            **_common(cluster, after.time_ms, after.time_ms - before.time_ms),
            "broker": broker, "topic": None, "partition": None, "role": None,
            **{name: _within_contract(rate) for name, rate in totals.items()},
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
    cluster: str, observation: Observation, names: Collection[str] | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of one record per group and row of `GroupTable`; the key is the group.

    Of the groups `names`; None is all. Fields that only some groups or members have are left out where unknown.
    """
    groups = observation.groups
    end, start = _log_offsets(observation, groups)
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
        ends, targets = _owner_texts(view), _target_texts(view)
        lags = _offset_texts(lag[part])
        columns = zip(
            groups.names.topic[part].tolist(), keys, _offset_texts(committed[part]), _offset_texts(end[part]),
            _offset_texts(start[part]), lags, [ends[view.owners.get(row)] for row in keys],
            [targets[view.targets.get(row)] for row in keys], _share_texts(view, keys),
            _stable_texts(observation.last_stable, keys), strict=True,
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


def _target_texts(view: GroupView) -> dict[str | None, str]:
    """What a record of a group has of who shall own its partition, by member id."""
    return {None: "", **{target: _known_texts(target_member_id=target) for target in set(view.targets.values())}}


def _share_texts(view: GroupView, keys: Sequence[PartitionKey]) -> Iterable[str]:
    """What a record of a share group has of its start offset."""
    if view.share is None:
        return repeat("", len(keys))
    return [_known_texts(share_start_offset=view.share.starts.get(key)) for key in keys]


def _stable_texts(last_stable: Mapping[PartitionKey, int], keys: Sequence[PartitionKey]) -> Iterable[str]:
    """What a record of a group has of the partition's last stable offset."""
    if not last_stable:
        return repeat("", len(keys))
    return [_known_texts(last_stable_offset=last_stable.get(key)) for key in keys]


def _known_texts(**fields: object) -> str:
    return "".join(f',"{name}":{_text(value)}' for name, value in fields.items() if value is not None)


def _log_offsets(observation: Observation, groups: GroupTable) -> tuple[Ints, Ints]:
    """(Log end, log start) of the partition of each row of groups; UNKNOWN where it isn't known."""
    partitions = observation.partitions
    row = partitions.rows_of(groups.names)
    return column_at(partitions.end, row), column_at(partitions.start, row)


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


def _within_contract(rate: float | None) -> float | None:
    """Returns the rate; None for a rate that would have its whole record rejected."""
    return rate if rate is not None and rate <= RATE_MAX else None


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
