"""The records of the two topics, version 1 of the contract: JSON objects, unknown rates null."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from streaming.collect.observation import Observation, ReplicaKey
from streaming.collect.rates import BrokerRates, ReplicaRates
from streaming.contract import RECORD_VERSION
from streaming.contract.rates import BYTES_IN, BYTES_OUT, MESSAGES_IN

Record = dict[str, Any]


def byte_rate_records(
    cluster: str,
    before: Observation,
    after: Observation,
    replicas: Mapping[ReplicaKey, ReplicaRates],
    brokers: Mapping[int, BrokerRates],
) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of one record per replica and one per broker; the key is the broker id."""
    common = {
        "v": RECORD_VERSION,
        "kafka_cluster": cluster,
        "event_time_ms": after.time_ms,
        "interval_ms": after.time_ms - before.time_ms,
    }
    for (broker, (topic, partition)), rates in sorted(replicas.items()):
        yield _encoded(str(broker), {
            **common, "broker": broker, "topic": topic, "partition": partition, "role": rates.role,
            BYTES_IN.name: rates.bytes_in, BYTES_OUT.name: rates.bytes_out, MESSAGES_IN.name: rates.messages_in,
            "size_bytes": rates.size_bytes,
        })  # fmt: skip
    for broker, totals in sorted(brokers.items()):
        disks = after.log_dirs.get(broker)
        yield _encoded(str(broker), {
            **common, "broker": broker, "topic": None, "partition": None, "role": None,
            **totals, "size_bytes": disks.used_bytes if disks else None,
            "rack": after.racks[broker],
            "log_dir_used_bytes": disks.used_bytes if disks else None,
            "log_dir_usable_bytes": disks.usable_bytes if disks else None,
            "groups_left_out": after.groups_left_out.get(broker),
        })  # fmt: skip


def consumer_lag_records(cluster: str, observation: Observation) -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of one record per group and partition that is committed or owned; the key is the group id."""
    for name, group in sorted(observation.groups.items()):
        for key in sorted(group.committed.keys() | group.owners.keys()):
            partition = observation.partitions.get(key)
            committed = group.committed.get(key)
            end = partition.log_end_offset if partition else None
            owner = group.owners.get(key)
            # A commit may be read a moment after the end offset: behind by less than nothing is behind by nothing.
            lag = max(0, end - committed) if end is not None and committed is not None else None
            lag = group.lags.get(key, lag)
            yield _encoded(name, {
                "v": RECORD_VERSION, "kafka_cluster": cluster, "group": name, "topic": key[0], "partition": key[1],
                "event_time_ms": observation.time_ms, "committed_offset": committed, "log_end_offset": end,
                "log_start_offset": partition.log_start_offset if partition else None, "lag_records": lag,
                "member_id": owner.member_id if owner else None, "client_id": owner.client_id if owner else None,
                "group_state": group.state, "generation_id": group.generation_id,
            })  # fmt: skip


def _encoded(key: str, record: Record) -> tuple[bytes, bytes]:
    return key.encode(), json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
