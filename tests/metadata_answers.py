"""Answers to Metadata, as kafka-python's classes encode them."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from kafka.protocol.metadata import MetadataResponse

Row = tuple[Any, ...]
PARTITION = (
    "error_code",
    "partition_index",
    "leader_id",
    "leader_epoch",
    "replica_nodes",
    "isr_nodes",
    "offline_replicas",
)


def metadata_answer(
    version: int,
    topics: Mapping[str, Row],
    brokers: Sequence[Row] = (),
    *,
    cluster_id: str = "c",
    controller: int = 1,
    error_code: int = 0,
) -> bytes:
    """`topics` are (error, id, partitions) by name; partitions have what `PARTITION` names."""
    topic_of = MetadataResponse.MetadataResponseTopic
    partition_of = topic_of.MetadataResponsePartition
    response = MetadataResponse(
        throttle_time_ms=0, brokers=list(brokers), cluster_id=cluster_id, controller_id=controller,
        error_code=error_code,
        topics=[
            topic_of(
                error_code=error, name=name, topic_id=UUID(int=topic_id), is_internal=False,
                partitions=[partition_of(**dict(zip(PARTITION, row, strict=True))) for row in rows],
            )
            for name, (error, topic_id, rows) in topics.items()
        ],
    )  # fmt: skip
    return bytes(response.encode(version=version))
