"""What the collector asks brokers for: one request for all that one broker leads, holds or coordinates.

Answers that grow with the cluster are decoded here into columns, in the thread of whoever asked. For many threads.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kafka.admin import ConfigResourceType
from kafka.errors import (
    IncompatibleBrokerVersion,
    KafkaError,
    NodeNotReadyError,
    NoError,
    NotControllerError,
    for_code,
)
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
from streaming.cluster import classic_groups, metadata_rows, offset_requests
from streaming.cluster.answer_columns import (
    FETCH_OF_MANY,
    FETCH_VERSION_MAX,
    LogDirRows,
    TopicRows,
    decode_list_offsets,
    decode_log_dirs,
    decode_offset_fetch,
)
from streaming.cluster.answers import is_unanswered
from streaming.cluster.classic_groups import ClassicGroups
from streaming.cluster.described_groups import DescribedGroup
from streaming.cluster.kafka_python_patches import PatchedAdminClient
from streaming.cluster.metadata_columns import ClusterMetadata, MetadataDecoder
from streaming.cluster.offset_requests import Led, OffsetRequest, OffsetRequests
from streaming.cluster.offset_rows import OffsetRows
from streaming.cluster.raw_requests import RawAnswer, RawRequest

ANY_TRIES = 3
"""Most brokers that are tried for an answer that any broker can give."""
REASSIGNMENTS_TIMEOUT_MS = 10_000
POLICY = "cleanup.policy"
"""Setting of a topic: `delete`, `compact` or both."""
Reads = tuple[dict[str, Mapping[PartitionKey, int]], dict[str, str]]


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

    def leader_offsets(self, broker: int, led: Led, timestamp: int) -> TopicRows:
        """Rows of `index`, `error`, `offset` of partitions, by topic, that this broker led; raises KafkaError."""
        version_min = offset_requests.WITH_NOT_UPLOADED if timestamp == offset_requests.NOT_UPLOADED else 1
        request = self._offset_requests.of(broker, led, timestamp)
        return self._offsets(broker, request, timestamp, version_min=version_min)

    def last_stable_offsets(self, broker: int, led: Led) -> TopicRows:
        """Rows of the offsets before which all transactions are over; raises KafkaError."""
        request = OffsetRequest(led, offset_requests.READ_COMMITTED)
        return self._offsets(broker, request, offset_requests.LATEST, version_min=offset_requests.WITH_ISOLATION)

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

    def _offsets(self, broker: int, offsets: OffsetRequest, timestamp: int, *, version_min: int) -> TopicRows:
        request = RawRequest(
            ListOffsetsRequest(min_version=version_min, max_version=offset_requests.VERSION_MAX),
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


def _raise(answer: Any) -> None:
    error = for_code(answer.error_code)
    if error is not NoError:
        raise error
