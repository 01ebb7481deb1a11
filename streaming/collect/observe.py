"""Reads one observation through one admin client: a few batched requests a broker, whatever the number of partitions.

Each broker alone is asked for what it leads, holds or coordinates: one that hangs or refuses costs only its own part.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import httpx
import structlog
from kafka import KafkaAdminClient
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from streaming.collect.group_table import GroupTable
from streaming.collect.groups import GroupSampler
from streaming.collect.jmx import read_counters
from streaming.collect.look import Clock, Look
from streaming.collect.observation import LogDirs, Observation
from streaming.collect.partition_table import (
    NO_LEADER,
    PartitionKey,
    PartitionTable,
    PartitionView,
    ReplicaKey,
    SizeTable,
)
from streaming.settings import CollectSettings

log = structlog.get_logger()


def observe(
    admin: KafkaAdminClient,
    groups: GroupSampler,
    settings: CollectSettings,
    *,
    now_ms: int,
    monotonic: Clock = time.monotonic,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Observation:
    """Read everything; a part that can't be read is left out (and logged). Raises KafkaError without any metadata.

    `now_ms` is the time at the start; `monotonic`, in seconds, measures how much later each part is read.
    `transport` is the way to the JMX endpoints; None is the network.
    """
    look = Look.begin(admin, now_ms=now_ms, monotonic=monotonic)
    partitions = _partitions(admin, look)
    sizes, log_dirs = _log_dirs(admin, look)
    counters = read_counters(settings.jmx_endpoints, look, transport=transport)
    ends = {key: partition.log_end_offset for key, partition in partitions.items()}
    read = groups.read(admin, settings, look, log_ends=ends)
    return Observation(
        now_ms,
        look.racks,
        PartitionTable.of(partitions),
        SizeTable.of(sizes),
        log_dirs,
        counters,
        GroupTable(read.views),
        read.left_out,
        look.read_ms,
    )


def _partitions(admin: KafkaAdminClient, look: Look) -> dict[PartitionKey, PartitionView]:
    moving = admin.list_partition_reassignments()
    rows = {
        (topic["name"], row["partition_index"]): (str(topic.get("topic_id")), row)
        for topic in admin.describe_topics()
        for row in topic["partitions"]
    }
    led: dict[int, list[TopicPartition]] = defaultdict(list)
    for key, (_, row) in rows.items():
        led[row["leader_id"]].append(TopicPartition(*key))
    led.pop(NO_LEADER, None)
    ends: dict[PartitionKey, int] = {}
    starts: dict[PartitionKey, int] = {}
    for broker, own in sorted(led.items()):
        ends |= _offsets(admin, look, broker, own, OffsetSpec.LATEST)
        look.note("offsets", broker)
        starts |= _offsets(admin, look, broker, own, OffsetSpec.EARLIEST)
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


def _offsets(
    admin: KafkaAdminClient, look: Look, broker: int, led: list[TopicPartition], spec: OffsetSpec
) -> dict[PartitionKey, int]:
    """Of those of the partitions that the broker still leads."""
    try:
        offsets, refused = look.ask(broker, partial(admin.leader_offsets, broker, led, spec))
    except KafkaError as error:
        log.warning("offsets_unread", broker=broker, error=type(error).__name__)
        return {}
    if refused:
        log.warning("offsets_unread", broker=broker, partitions=len(refused), error=min(refused.values()))
    return {(tp.topic, tp.partition): offset for tp, offset in offsets.items()}


def _log_dirs(admin: KafkaAdminClient, look: Look) -> tuple[dict[ReplicaKey, int], dict[int, LogDirs]]:
    sizes: dict[ReplicaKey, int] = {}
    disks: dict[int, LogDirs] = {}
    for broker in sorted(look.racks):
        try:
            rows = look.ask(broker, partial(admin.describe_log_dirs, brokers=[broker]))[0]["log_dirs"]
        except KafkaError as error:
            log.warning("log_dirs_unread", broker=broker, error=type(error).__name__)
            continue
        if not rows:  # refused, which the client doesn't raise: a broker has one at least
            log.warning("log_dirs_unread", broker=broker, error="refused")
            continue
        look.note("sizes", broker)
        replicas = _replica_sizes(rows)
        sizes.update({(broker, key): size for key, size in replicas.items()})
        usable = [row["usable_bytes"] for row in rows if row.get("usable_bytes", -1) >= 0]
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
