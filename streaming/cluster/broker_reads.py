"""What the collector reads of brokers: one request for all that one broker leads, holds or coordinates.

Answers that grow with the cluster are decoded here into columns, in the thread of the caller. For many threads.
ListOffsets requests are written here, as kafka-python takes some 3 us a partition to do it. A broker is asked about all
that it leads twice a sample, and in the next sample again. These requests differ in the timestamp of their rows alone,
so what stands between the timestamps is written once.
"""

import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kafka.admin import ConfigResourceType
from kafka.errors import IncompatibleBrokerVersion, KafkaError, NodeNotReadyError, NotControllerError, for_code
from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    ListGroupsRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest
from kafka.protocol.metadata import MetadataRequest

from assignor_core.live import PartitionKey
from streaming.cluster import described_groups, metadata
from streaming.cluster.answer_columns import (
    FETCH_OF_MANY,
    FETCH_VERSION_MAX,
    OFFSETS_FLEXIBLE,
    OFFSETS_WITH_EPOCH,
    LogDirRows,
    OffsetRows,
    TopicRows,
    decode_list_offsets,
    decode_log_dirs,
    decode_offset_fetch,
)
from streaming.cluster.answers import is_unanswered, raise_error
from streaming.cluster.described_groups import ClassicGroups, DescribedGroup
from streaming.cluster.kafka_python_patches import PatchedAdminClient
from streaming.cluster.metadata import ClusterMetadata, MetadataDecoder
from streaming.cluster.wire import RawAnswer, RawRequest

LATEST, EARLIEST, EARLIEST_LOCAL, NOT_UPLOADED = -1, -2, -4, -6
"""Kafka's timestamps of the log end, the log start, the first offset on the leader's disk (KIP-405), and the first one
that is not in remote storage yet (KIP-1023).
"""
OFFSETS_VERSION_MAX = 11
WITH_ISOLATION, WITH_LOCAL, WITH_TIMEOUT, WITH_NOT_UPLOADED = 2, 8, 10, 11
"""ListOffsets: the first version of each."""
TIMEOUT_MS = 10_000
ANY_REPLICA, NO_EPOCH = -1, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Isolation levels: with the second one the log end is the last stable offset."""
Led = Mapping[str, Sequence[int]]
"""Numbers of partitions by topic."""
ANY_TRIES = 3
"""Most brokers that are tried for an answer that any broker can give."""
REASSIGNMENTS_TIMEOUT_MS = 10_000
POLICY = "cleanup.policy"
"""Setting of a topic: `delete`, `compact` or both."""
Reads = tuple[dict[str, Mapping[PartitionKey, int]], dict[str, str]]


class OffsetRequest:
    """The fields of versions 1 to 11 of requests about the same partitions. For many threads."""

    def __init__(self, led: Led, isolation_level: int = READ_UNCOMMITTED) -> None:
        self.led = led
        self._isolation_level = isolation_level
        self._between: dict[int, tuple[bytes, ...]] = {}
        """What stands before, between and after the timestamps, by version."""

    def body(self, version: int, timestamp: int) -> bytes:
        """The request for this timestamp. Before version 8 there is no tiered storage: log starts are requested."""
        if timestamp == EARLIEST_LOCAL and version < WITH_LOCAL:
            timestamp = EARLIEST
        between = self._between.get(version)
        if between is None:
            between = self._between[version] = tuple(_between_timestamps(version, self.led, self._isolation_level))
        return struct.pack(">q", timestamp).join(between)


class OffsetRequests:
    """The request to each broker, kept for as long as it is asked about the same partitions. For many threads."""

    def __init__(self) -> None:
        self._by_broker: dict[int, OffsetRequest] = {}

    def of(self, broker: int, led: Led, timestamp: int) -> OffsetRequest:
        """Returns the request to `broker` for the partitions `led`, which do not change once they were handed in."""
        kept = self._by_broker.get(broker)
        if kept is not None and kept.led == led:
            return kept
        request = OffsetRequest(led)
        if timestamp != EARLIEST:  # log starts are asked of other partitions at each look
            self._by_broker[broker] = request
        return request


def _between_timestamps(version: int, led: Led, isolation_level: int) -> Iterator[bytes]:
    flexible = version >= OFFSETS_FLEXIBLE
    tags = b"\x00" if flexible else b""
    epoch = struct.pack(">i", NO_EPOCH) if version >= OFFSETS_WITH_EPOCH else b""
    before = struct.pack(">i", ANY_REPLICA)
    before += bytes([isolation_level]) if version >= WITH_ISOLATION else b""
    before += _length(len(led), flexible=flexible)
    for topic, numbers in led.items():
        name = topic.encode()
        before += _varint(len(name) + 1) if flexible else struct.pack(">h", len(name))
        before += name + _length(len(numbers), flexible=flexible)
        for number in numbers:
            yield before + struct.pack(">i", number) + epoch
            before = tags  # of the row
        before += tags  # of the topic
    yield before + (struct.pack(">i", TIMEOUT_MS) if version >= WITH_TIMEOUT else b"") + tags


def _length(count: int, *, flexible: bool) -> bytes:
    return _varint(count + 1) if flexible else struct.pack(">i", count)


def _varint(value: int) -> bytes:
    """An unsigned number of seven bits a byte, the lowest first (KIP-482)."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


class BrokerReads:
    """Requests through one admin client that somebody else closes; it remembers which brokers gave no answer."""

    def __init__(self, admin: PatchedAdminClient) -> None:
        self._admin = admin
        self._classic = ClassicGroups()
        self._offset_requests = OffsetRequests()
        self._metadata = MetadataDecoder()
        self._unanswering: set[int] = set()
        self._silent: dict[int, KafkaError] = {}

    def metadata(self) -> ClusterMetadata:
        """Brokers that are alive and all partitions, as one broker knows them; raises KafkaError."""
        versions = {"min_version": metadata.VERSION_MIN, "max_version": metadata.VERSION_MAX}
        answer: RawAnswer = self._ask_any(
            lambda broker: self._admin.ask_raw(
                broker, RawRequest(MetadataRequest(topics=None, allow_auto_topic_creation=False, **versions))
            )
        )
        return self._metadata.decode(answer.version, answer.body)

    def silent_brokers(self) -> dict[int, KafkaError]:
        """Brokers that gave no answer to what any of them knows since the last call: who asks again waits again."""
        silent, self._silent = self._silent, {}
        return silent

    def replicas_added(self) -> dict[PartitionKey, frozenset[int]]:
        """Replicas that reassignments add, by partition; raises KafkaError."""
        request = ListPartitionReassignmentsRequest
        try:
            # Brokers pass it on to the controller; those with ZooKeeper don't.
            answer = self._ask_any(
                lambda broker: self._admin.ask_broker(broker, request(timeout_ms=REASSIGNMENTS_TIMEOUT_MS, topics=None))
            )
            raise_error(answer)
        except NotControllerError:
            moving = self._admin.list_partition_reassignments()
            return {(tp.topic, tp.partition): frozenset(row["adding_replicas"]) for tp, row in moving.items()}
        return {
            (topic.name, row.partition_index): frozenset(row.adding_replicas)
            for topic in answer.topics
            for row in topic.partitions
        }

    def leader_offsets(self, broker: int, led: Led, timestamp: int) -> TopicRows:
        """Rows of `index`, `error`, `offset` of partitions, by topic, that this broker led; raises KafkaError."""
        version_min = WITH_NOT_UPLOADED if timestamp == NOT_UPLOADED else 1
        request = self._offset_requests.of(broker, led, timestamp)
        return self._offsets(broker, request, timestamp, version_min=version_min)

    def last_stable_offsets(self, broker: int, led: Led) -> TopicRows:
        """Rows of the offsets before which all transactions are over; raises KafkaError."""
        request = OffsetRequest(led, READ_COMMITTED)
        return self._offsets(broker, request, LATEST, version_min=WITH_ISOLATION)

    def cleanup_policies(self, topics: Sequence[str]) -> dict[str, str]:
        """`cleanup.policy` of these topics, of those whose configs the user may read; raises KafkaError."""
        resource = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(
            resources=[
                resource(resource_type=ConfigResourceType.TOPIC, resource_name=name, configuration_keys=[POLICY])
                for name in topics
            ],
            include_synonyms=False,
            include_documentation=False,
        )
        answer = self._ask_any(lambda broker: self._admin.ask_broker(broker, request))
        return {
            row.resource_name: config.value
            for row in answer.results
            if not row.error_code
            for config in row.configs
            if config.name == POLICY and config.value
        }

    def log_dirs(self, broker: int) -> list[LogDirRows]:
        """Log dirs of a broker with rows of `index`, `size`, `is_future`; raises KafkaError."""
        answer = self._admin.ask_raw(broker, RawRequest(DescribeLogDirsRequest(topics=None)))
        error_code, rows = decode_log_dirs(answer.version, answer.body)
        if error_code:
            raise for_code(error_code)
        return rows

    def list_groups(self, broker: int) -> list[dict[str, Any]]:
        """Groups that a broker coordinates, as kafka-python shows them; raises KafkaError."""
        answer = self._admin.ask_broker(broker, ListGroupsRequest())
        raise_error(answer)
        return [group.to_dict() for group in answer.groups]

    def describe_classic(self, broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
        """Groups of the classic protocol that this broker coordinates; raises KafkaError."""
        request = DescribeGroupsRequest(
            groups=list(names), include_authorized_operations=False, max_version=described_groups.VERSION_MAX
        )
        answer = self._admin.ask_raw(broker, RawRequest(request))
        return self._classic.decode(answer.version, answer.body)

    def committed_offsets(self, broker: int, names: Sequence[str]) -> Reads:
        """(Offsets by partition, name of the error) by group, of groups of one coordinator; raises KafkaError."""
        try:
            return self._committed(broker, names, many=True)
        except IncompatibleBrokerVersion:  # before 3.0 one request is of one group
            offsets: dict[str, Mapping[PartitionKey, int]] = {}
            refused: dict[str, str] = {}
            for name in names:
                found, failed = self._committed(broker, [name], many=False)
                offsets |= found
                refused |= failed
            return offsets, refused

    def ask_broker(self, broker: int, request: Any) -> Any:
        """Any other request of kafka-python's, and its response; raises KafkaError."""
        return self._admin.ask_broker(broker, request)

    def _offsets(self, broker: int, offsets: OffsetRequest, timestamp: int, *, version_min: int) -> TopicRows:
        request = RawRequest(
            ListOffsetsRequest(min_version=version_min, max_version=OFFSETS_VERSION_MAX),
            body=partial(offsets.body, timestamp=timestamp),
        )
        answer = self._admin.ask_raw(broker, request)
        return decode_list_offsets(answer.version, answer.body)

    def _committed(self, broker: int, names: Sequence[str], *, many: bool) -> Reads:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        request = (
            OffsetFetchRequest(
                groups=[group(group_id=name, topics=None) for name in names], require_stable=False,
                min_version=FETCH_OF_MANY, max_version=FETCH_VERSION_MAX,
            )
            if many
            else OffsetFetchRequest(group_id=names[0], topics=None, min_version=2, max_version=FETCH_OF_MANY - 1)
        )  # fmt: skip
        answer = self._admin.ask_raw(broker, RawRequest(request))
        rows = decode_offset_fetch(answer.version, answer.body)
        if not many:
            rows = {names[0]: rows[""]}
        offsets: dict[str, Mapping[PartitionKey, int]] = {}
        refused: dict[str, str] = {}
        for name, row in rows.items():
            if row.error_code:
                refused[name] = for_code(row.error_code).__name__
            else:
                offsets[name] = OffsetRows(row.partitions)
        return offsets, refused

    def _ask_any(self, ask: Callable[[int], Any]) -> Any:
        """Returns a broker's answer, first of those that answered lately; if a broker fails, the next one is tried."""
        known = self._admin.broker_ids()
        random.shuffle(known)
        in_line = sorted(known, key=lambda broker: broker in self._unanswering)
        error: KafkaError = NodeNotReadyError("no broker is known")
        for broker in in_line[:ANY_TRIES]:
            try:
                answer = ask(broker)
            except KafkaError as failure:
                if not is_unanswered(failure):
                    raise
                self._unanswering.add(broker)
                self._silent[broker] = error = failure
            else:
                self._unanswering.discard(broker)
                return answer
        raise error
