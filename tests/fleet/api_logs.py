"""Logs on one broker: ListOffsets of what it leads, DescribeLogDirs of what it holds, as they are at the moment."""

from typing import Any

from kafka.protocol.admin.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from tests.fleet.api import NOT_AUTHORIZED, NOT_LEADER, OK, UNKNOWN_PARTITION, Api
from tests.fleet.fleet import Fleet

EARLIEST, EARLIEST_LOCAL = -2, -4
UNKNOWN = -1
STORAGE_ERROR = 56


def _offsets(fleet: Fleet, broker: int, request: Any) -> Any:
    """Any timestamp but the earliest is answered as the latest; a fleet has no tiered storage."""
    topics = []
    for asked in request.topics:
        topic = fleet.contents.topics.get(asked.name)
        partitions = topic.partitions if topic else {}
        rows = []
        for row in asked.partitions:
            partition = partitions.get(row.partition_index)
            if partition is None:
                rows.append((row.partition_index, UNKNOWN_PARTITION, UNKNOWN, UNKNOWN, UNKNOWN))
            elif partition.leader != broker:
                rows.append((row.partition_index, NOT_LEADER, UNKNOWN, UNKNOWN, UNKNOWN))
            else:
                start, end = fleet.offsets(asked.name, partition)
                offset = start if row.timestamp in (EARLIEST, EARLIEST_LOCAL) else end
                rows.append((row.partition_index, OK, UNKNOWN, offset, partition.leader_epoch))
        topics.append((asked.name, rows))
    return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


def _offsets_refused(_fleet: Fleet, _broker: int, request: Any) -> Any:
    topics = [
        (asked.name, [(row.partition_index, NOT_LEADER, UNKNOWN, UNKNOWN, UNKNOWN) for row in asked.partitions])
        for asked in request.topics
    ]
    return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


def _log_dirs(fleet: Fleet, broker: int, request: Any) -> Any:
    """Of a log dir that is offline Kafka shows the path and the error, and nothing else."""
    log_dirs = fleet.contents.brokers[broker].log_dirs
    wanted = None if request.topics is None else {row.topic: frozenset(row.partitions) for row in request.topics}
    rows: list[dict[str, list[Any]]] = [{} for _ in log_dirs]
    used = fleet.used_bytes()
    for topic, partitions in fleet.held_by(broker).items():
        if wanted is not None and topic not in wanted:
            continue
        for number, partition in partitions:
            if wanted is None or number in wanted[topic]:
                size = partition.size_bytes(broker)
                rows[partition.copies[broker].log_dir].setdefault(topic, []).append((number, size, 0, False))
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    return DescribeLogDirsResponse(
        throttle_time_ms=0,
        error_code=OK,
        results=[
            result(error_code=STORAGE_ERROR, log_dir=fleet.log_dir_path(index), topics=[])
            if log_dir.offline
            else result(
                error_code=OK,
                log_dir=fleet.log_dir_path(index),
                topics=list(rows[index].items()),
                total_bytes=log_dir.size_bytes,
                usable_bytes=max(0, log_dir.size_bytes - used[broker, index]),
                is_cordoned=log_dir.cordoned,
            )
            for index, log_dir in enumerate(log_dirs)
        ],
    )


def _log_dirs_refused(_fleet: Fleet, _broker: int, _request: Any) -> Any:
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=NOT_AUTHORIZED, results=[])


APIS = (
    Api(ListOffsetsRequest, (4, 11), _offsets, _offsets_refused),
    Api(DescribeLogDirsRequest, (1, 5), _log_dirs, _log_dirs_refused),
)
