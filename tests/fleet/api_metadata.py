"""Brokers, topics and partitions: Metadata, DescribeCluster, DescribeTopicPartitions. Encoded once for each change."""

from typing import Any
from uuid import UUID

from kafka.protocol.admin.cluster import DescribeClusterRequest, DescribeClusterResponse
from kafka.protocol.admin.topics import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from assignor_core.live import NO_LEADER
from tests.fleet.api import NOT_AUTHORIZED, OK, UNKNOWN_PARTITION, Api
from tests.fleet.fleet import HOST, Fleet
from tests.simulated_cluster.state import ClusterContents, SimulatedPartition

LEADER_NOT_AVAILABLE = 5
UNKNOWN_TOPIC_ID = 100
INTERNAL = "__"
TOPIC_OPERATIONS = frozenset({3, 4, 5, 6, 7, 8, 10, 11})
"""All that Kafka knows of a topic, by its codes: without an authorizer everybody may do them."""
NOT_SHOWN = -(2**31)
"""Instead of operations, where the field is a plain number."""
PAGE_MAX = 2_000
"""Kafka's default of `max.request.partition.size.limit`."""
CLUSTER_OPERATIONS = frozenset({5, 7, 8, 9, 10, 11, 12})


def _metadata(fleet: Fleet, _broker: int, request: Any) -> Any:
    shown = bool(request.include_topic_authorized_operations)
    if request.topics is None:
        name = ("metadata", request.API_VERSION, shown)
        return fleet.until_changed(name, lambda: _encoded(fleet, sorted(fleet.contents.topics), request, shown))
    rows = [_asked_topic(fleet, row, shown) for row in request.topics]
    return _metadata_response(fleet, rows)


def _encoded(fleet: Fleet, names: list[str], request: Any, shown: bool) -> bytes:
    response = _metadata_response(fleet, [_topic(fleet, name, shown) for name in names])
    return bytes(response.encode(version=request.API_VERSION))


def _metadata_response(fleet: Fleet, topics: list[Any]) -> Any:
    alive = fleet.alive()
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[(row, HOST, fleet.ports[row], fleet.contents.brokers[row].rack) for row in alive],
        cluster_id=fleet.contents.cluster_id,
        controller_id=_controller(fleet),
        topics=topics,
        error_code=OK,
    )


def _controller(fleet: Fleet) -> int:
    """Brokers name any that is alive, as each of them passes requests on to the controller."""
    return min(fleet.alive(), default=-1)


def _asked_topic(fleet: Fleet, row: Any, shown: bool) -> Any:
    if row.name is None:
        name = fleet.topic_of(row.topic_id)
        return _topic(fleet, name, shown) if name else _missing(UNKNOWN_TOPIC_ID, None, row.topic_id, None)
    if row.name not in fleet.contents.topics:
        # Kafka shows what the user might do with such a topic.
        return _missing(UNKNOWN_PARTITION, row.name, UUID(int=0), TOPIC_OPERATIONS if shown else None)
    return _topic(fleet, row.name, shown)


def _missing(error_code: int, name: str | None, topic_id: UUID, operations: frozenset[int] | None) -> Any:
    return (error_code, name, topic_id, False, [], operations)


def _topic(fleet: Fleet, name: str, shown: bool) -> Any:
    topic, contents = fleet.contents.topics[name], fleet.contents
    partitions = [_partition(contents, number, row) for number, row in sorted(topic.partitions.items())]
    operations = TOPIC_OPERATIONS if shown else None
    return (OK, name, fleet.wire_id(name), name.startswith(INTERNAL), partitions, operations)


def _partition(contents: ClusterContents, number: int, row: SimulatedPartition) -> Any:
    return (
        OK if row.leader != NO_LEADER else LEADER_NOT_AVAILABLE,
        number,
        row.leader,
        row.leader_epoch,
        row.replicas,
        row.isr,
        [broker for broker in row.replicas if broker not in row.isr and not contents.holds_online(broker, row)],
    )


def _described_cluster(fleet: Fleet, _broker: int, request: Any) -> Any:
    brokers = [
        (row.broker_id, HOST, fleet.ports[row.broker_id], row.rack, row.fenced)
        for _, row in sorted(fleet.contents.brokers.items())
        if request.include_fenced_brokers or not row.fenced
    ]
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=OK,
        error_message=None,
        endpoint_type=1,
        cluster_id=fleet.contents.cluster_id,
        controller_id=_controller(fleet),
        brokers=brokers,
        authorized_operations=CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else None,
    )


def _cluster_refused(fleet: Fleet, _broker: int, _request: Any) -> Any:
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=NOT_AUTHORIZED,
        error_message="refused",
        endpoint_type=1,
        cluster_id="",
        controller_id=-1,
        brokers=[],
        authorized_operations=None,
    )


def _topic_partitions(fleet: Fleet, _broker: int, request: Any) -> Any:
    """Kafka describes the topics in order of their names, and names where the next page begins (KIP-966)."""
    names = sorted(row.name for row in request.topics) or sorted(fleet.contents.topics)
    first = (request.cursor.topic_name, request.cursor.partition_index) if request.cursor else ("", 0)
    left, following = min(request.response_partition_limit, PAGE_MAX), None
    topics: list[Any] = []
    for name in names:
        if name < first[0]:
            continue
        topic = fleet.contents.topics.get(name)
        if topic is None:
            topics.append((UNKNOWN_PARTITION, name, UUID(int=0), False, [], NOT_SHOWN))
            continue
        numbers = [row for row in sorted(topic.partitions) if (name, row) >= first]
        rows = [_with_eligible(fleet.contents, row, topic.partitions[row]) for row in numbers[:left]]
        if rows or not numbers:
            topics.append((OK, name, fleet.wire_id(name), name.startswith(INTERNAL), rows, NOT_SHOWN))
        if len(numbers) > left:
            following = (name, numbers[left])
            break
        left -= len(numbers)
    cursor = DescribeTopicPartitionsResponse.Cursor
    return DescribeTopicPartitionsResponse(
        throttle_time_ms=0,
        topics=topics,
        next_cursor=cursor(topic_name=following[0], partition_index=following[1]) if following else None,
    )


def _with_eligible(contents: ClusterContents, number: int, row: SimulatedPartition) -> Any:
    *known, offline = _partition(contents, number, row)
    return (*known, row.eligible_leaders, (), offline)


APIS = (
    Api(MetadataRequest, (12, 13), _metadata),
    Api(DescribeClusterRequest, (0, 2), _described_cluster, _cluster_refused),
    Api(DescribeTopicPartitionsRequest, (0, 0), _topic_partitions),
)
