"""The file of `kafka-reassign-partitions`: which partitions somebody wants on which brokers.

Kafka's tool writes and reads `{"version": 1, "partitions": [{"topic": ..., "partition": ..., "replicas": [...],
"log_dirs": ["any", ...]}]}`, and so do many scripts that people have around it. This module reads that format and
knows no cluster: whether the lists fit one is for `assignor_core.planner.asked`.
"""

from collections.abc import Mapping
from typing import Any, TypeGuard

from assignor_core.errors import InputError
from assignor_core.live import PartitionKey, partition_name
from assignor_core.model import INT32_MAX

ReplicaLists = Mapping[PartitionKey, tuple[int, ...]]
"""Replica lists by (topic, partition), the preferred leader first."""

ANY_LOG_DIR = "any"
"""What the file says of a replica for which the broker may choose the log dir."""


def is_reassignment_file(content: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether JSON is of kafka-reassign-partitions, and not a plan of our own, which has movements.

    >>> is_reassignment_file({"version": 1, "partitions": []}), is_reassignment_file({"movements": []})
    (True, False)
    """
    return isinstance(content, Mapping) and "partitions" in content and "movements" not in content


def replica_lists(content: Mapping[str, Any]) -> ReplicaLists:
    """The lists of the file; raises InputError that names the first entry which can't be meant.

    >>> replica_lists({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 1]}]})
    {('t', 0): (2, 1)}
    """
    version = content.get("version", 1)
    if version != 1:
        raise InputError(f"version: found {version!r}, allowed is 1")
    rows = content["partitions"]
    if not isinstance(rows, list) or not rows:
        raise InputError("partitions: found no list with entries, at least one is needed")
    lists: dict[PartitionKey, tuple[int, ...]] = {}
    for number, row in enumerate(rows):
        key, replicas = _entry(row, f"partitions[{number}]")
        if key in lists:
            raise InputError(f"{partition_name(key)}: found twice in partitions, allowed once")
        lists[key] = replicas
    return lists


def _entry(row: object, name: str) -> tuple[PartitionKey, tuple[int, ...]]:
    if not isinstance(row, Mapping):
        raise InputError(f"{name}: found no object")
    topic, partition, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
    if not isinstance(topic, str) or not topic:
        raise InputError(f"{name}.topic: found {topic!r}, allowed is the name of a topic")
    if not _is_id(partition):
        raise InputError(f"{name}.partition: found {partition!r}, allowed is an integer from 0")
    named = partition_name((topic, partition))
    if not isinstance(replicas, list) or not replicas or not all(_is_id(broker) for broker in replicas):
        raise InputError(f"{named}: replicas: found {replicas!r}, allowed is a list of one or more broker ids")
    if len(set(replicas)) < len(replicas):
        raise InputError(f"{named}: replicas: found a broker twice in {replicas}, allowed once")
    log_dirs = row.get("log_dirs")
    if log_dirs is not None and (not isinstance(log_dirs, list) or any(one != ANY_LOG_DIR for one in log_dirs)):
        raise InputError(
            f"{named}: log_dirs: found {log_dirs!r}, allowed is {ANY_LOG_DIR!r} for each replica: "
            "brokers choose the log dir, and `rebalancer drain BROKER --log-dir` empties one"
        )
    return (topic, partition), tuple(replicas)


def _is_id(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= INT32_MAX
