"""What the collector asks brokers for: one request for all that one broker leads, holds or coordinates.

Answers that grow with the cluster are decoded here into columns, in the thread of whoever asked. For many threads.
"""

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka.errors import (
    IncompatibleBrokerVersion,
    KafkaError,
    NodeNotReadyError,
    NoError,
    NotControllerError,
    for_code,
)
from kafka.protocol.admin import (
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    ListGroupsRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest
from kafka.protocol.metadata import MetadataRequest

from streaming.cluster import classic_groups, metadata_rows
from streaming.cluster.answer_columns import (
    FETCH_OF_MANY,
    FETCH_VERSION_MAX,
    OFFSETS_FLEXIBLE,
    OFFSETS_WITH_EPOCH,
    LogDirRows,
    TopicRows,
    decode_list_offsets,
    decode_log_dirs,
    decode_offset_fetch,
)
from streaming.cluster.answers import is_unanswered
from streaming.cluster.classic_groups import ClassicGroups
from streaming.cluster.described_groups import DescribedGroup, PartitionKey
from streaming.cluster.kafka_python_mends import MendedAdminClient
from streaming.cluster.metadata_columns import ClusterMetadata, MetadataDecoder
from streaming.cluster.offset_rows import OffsetRows
from streaming.cluster.raw_requests import RawAnswer, RawRequest

LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4
"""Kafka's timestamps of the log end, the log start, and the first offset on the leader's disk (KIP-405)."""
OFFSETS_VERSION_MAX = 11
OFFSETS_WITH_ISOLATION, OFFSETS_WITH_LOCAL, OFFSETS_WITH_TIMEOUT = 2, 8, 10
ANY_TRIES = 3
"""So many brokers are asked for what each of them knows."""
REASSIGNMENTS_TIMEOUT_MS = 10_000
ANY_REPLICA, NO_EPOCH = -1, -1
Reads = tuple[dict[str, Mapping[PartitionKey, int]], dict[str, str]]


class BrokerReads:
    """Requests through one admin client that somebody else closes; it remembers which brokers gave no answer."""

    def __init__(self, admin: MendedAdminClient) -> None:
        self._admin = admin
        self._classic = ClassicGroups()
        self._metadata = MetadataDecoder()
        self._unanswering: set[int] = set()
        self._silent: dict[int, KafkaError] = {}

    def metadata(self) -> ClusterMetadata:
        """Brokers that are alive and all partitions, as one broker knows them; raises KafkaError."""
        versions = {"min_version": metadata_rows.VERSION_MIN, "max_version": metadata_rows.VERSION_MAX}
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
            _raise(answer)
        except NotControllerError:
            moving = self._admin.list_partition_reassignments()
            return {(tp.topic, tp.partition): frozenset(row["adding_replicas"]) for tp, row in moving.items()}
        return {
            (topic.name, row.partition_index): frozenset(row.adding_replicas)
            for topic in answer.topics
            for row in topic.partitions
        }

    def leader_offsets(self, broker: int, led: Mapping[str, Sequence[int]], timestamp: int) -> TopicRows:
        """Rows of `index`, `error`, `offset` of partitions, by topic, that this broker led; raises KafkaError."""
        request = RawRequest(
            ListOffsetsRequest(min_version=1, max_version=OFFSETS_VERSION_MAX),
            body=lambda version: list_offsets_body(version, led, timestamp),
        )
        answer = self._admin.ask_raw(broker, request)
        return decode_list_offsets(answer.version, answer.body)

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
        _raise(answer)
        return [group.to_dict() for group in answer.groups]

    def describe_classic(self, broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
        """Groups of the classic protocol that this broker coordinates; raises KafkaError."""
        request = DescribeGroupsRequest(
            groups=list(names), include_authorized_operations=False, max_version=classic_groups.VERSION_MAX
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
        """Of a broker that has answered lately, if there is one; one without an answer is followed by another."""
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


def list_offsets_body(version: int, led: Mapping[str, Sequence[int]], timestamp: int) -> bytes:
    """The request's fields of versions 1 to 11 (kafka-python takes some 3 us a partition to write them).

    A broker that knows only older versions than 8 has no tiered storage: it is asked for the log start instead.
    """
    if timestamp == EARLIEST_LOCAL and version < OFFSETS_WITH_LOCAL:
        timestamp = EARLIEST
    flexible = version >= OFFSETS_FLEXIBLE
    tags = b"\x00" if flexible else b""
    epoch = struct.pack(">i", NO_EPOCH) if version >= OFFSETS_WITH_EPOCH else b""
    after = epoch + struct.pack(">q", timestamp) + tags
    parts = [struct.pack(">i", ANY_REPLICA), b"\x00" if version >= OFFSETS_WITH_ISOLATION else b""]
    parts.append(_length(len(led), flexible=flexible))
    for topic, numbers in led.items():
        name = topic.encode()
        parts += (_varint(len(name) + 1) if flexible else struct.pack(">h", len(name)), name)
        parts.append(_length(len(numbers), flexible=flexible))
        for number in numbers:
            parts += (struct.pack(">i", number), after)
        parts.append(tags)
    parts.append(struct.pack(">i", REASSIGNMENTS_TIMEOUT_MS) if version >= OFFSETS_WITH_TIMEOUT else b"")
    return b"".join((*parts, tags))


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


def _raise(answer: Any) -> None:
    error = for_code(answer.error_code)
    if error is not NoError:
        raise error
