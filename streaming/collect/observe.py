"""Reads one observation through one admin client: a handful of batched requests, whatever the number of partitions."""

from collections.abc import Iterable, Mapping
from typing import Any

import httpx
import structlog
from kafka import KafkaAdminClient
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from streaming.collect.groups import GroupSampler
from streaming.collect.jmx import read_counters
from streaming.collect.observation import (
    BrokerCounters,
    LogDirs,
    Observation,
    PartitionKey,
    PartitionView,
    ReplicaKey,
)
from streaming.settings import CollectSettings

log = structlog.get_logger()

NO_LEADER = -1


def observe(
    admin: KafkaAdminClient, http: httpx.Client, groups: GroupSampler, settings: CollectSettings, *, now_ms: int
) -> Observation:
    """Read everything; a part that can't be read is left out (and logged). Raises KafkaError without any metadata."""
    brokers = [row for row in admin.describe_cluster()["brokers"] if not row.get("is_fenced", False)]
    racks = {row["broker_id"]: row["rack"] or None for row in brokers}
    partitions = _partitions(admin)
    sizes, log_dirs = _log_dirs(admin, racks)
    counters = _counters(http, settings.jmx_endpoints)
    return Observation(now_ms, racks, partitions, sizes, log_dirs, counters, groups.read(admin, settings))


def _partitions(admin: KafkaAdminClient) -> dict[PartitionKey, PartitionView]:
    moving = admin.list_partition_reassignments()
    rows = {
        (topic["name"], row["partition_index"]): (str(topic.get("topic_id")), row)
        for topic in admin.describe_topics()
        for row in topic["partitions"]
    }
    led = [TopicPartition(*key) for key, (_, row) in rows.items() if row["leader_id"] != NO_LEADER]
    ends, starts = _offsets(admin, led, OffsetSpec.LATEST), _offsets(admin, led, OffsetSpec.EARLIEST)
    return {
        key: PartitionView(
            topic_id=topic_id,
            leader=row["leader_id"],
            replicas=tuple(row["replica_nodes"]),
            adding_replicas=frozenset(moving.get(TopicPartition(*key), {}).get("adding_replicas", ())),
            log_start_offset=starts.get(key),
            log_end_offset=ends.get(key),
        )
        for key, (topic_id, row) in rows.items()
    }


def _offsets(admin: KafkaAdminClient, partitions: list[TopicPartition], spec: OffsetSpec) -> dict[PartitionKey, int]:
    if not partitions:
        return {}
    try:
        found = admin.list_partition_offsets(dict.fromkeys(partitions, spec))
    except KafkaError as error:
        log.warning("offsets_unread", error=type(error).__name__)
        return {}
    return {(tp.topic, tp.partition): row.offset for tp, row in found.items()}


def _log_dirs(admin: KafkaAdminClient, brokers: Iterable[int]) -> tuple[dict[ReplicaKey, int], dict[int, LogDirs]]:
    sizes: dict[ReplicaKey, int] = {}
    disks: dict[int, LogDirs] = {}
    for broker in sorted(brokers):
        try:
            answer = admin.describe_log_dirs(brokers=[broker])[0]
        except KafkaError as error:
            log.warning("log_dirs_unread", broker=broker, error=type(error).__name__)
            continue
        replicas = _replica_sizes(answer["log_dirs"])
        sizes.update({(broker, key): size for key, size in replicas.items()})
        usable = [row["usable_bytes"] for row in answer["log_dirs"] if row.get("usable_bytes", -1) >= 0]
        disks[broker] = LogDirs(sum(replicas.values()), sum(usable) if usable else None)
    return sizes, disks


def _replica_sizes(log_dirs: Iterable[Mapping[str, Any]]) -> dict[PartitionKey, int]:
    """Sizes of the replicas in use; a future replica (a move between disks) is not one yet."""
    return {
        (topic["name"], row["partition_index"]): row["partition_size"]
        for log_dir in log_dirs
        for topic in log_dir["topics"]
        for row in topic["partitions"]
        if not row["is_future_key"]
    }


def _counters(http: httpx.Client, endpoints: Mapping[int, str]) -> dict[int, BrokerCounters]:
    found = {broker: read_counters(http, broker, url) for broker, url in sorted(endpoints.items())}
    return {broker: counters for broker, counters in found.items() if counters is not None}
