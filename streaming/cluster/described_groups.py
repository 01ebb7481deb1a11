"""Groups as their coordinator describes them, of all four kinds, in one shape. Asks one broker a request a kind.

Knows the requests and what their answers mean; not which groups are asked about, nor what is made of them. A group
whose row has an error is left out: it has moved, changed its kind or may not be described, and is asked about again.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from kafka.errors import IncompatibleBrokerVersion, NoError, for_code

from assignor_core.live import PartitionKey
from streaming.cluster.group_messages import (
    ConsumerGroupDescribeRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
"""Kafka's names of the group types (`ListGroups` from version 5 on)."""
DEAD = "Dead"
UNKNOWN_OFFSET = -1
PARTITIONS_MAX = 100_000
"""Partitions that are read of one member. Clients write what the members of a group own."""
TEXT_MAX, TEXT_END = 249, 40
"""Characters of a name that a client chose, as many as the name of a topic may have; so many are of its end."""
SHARE_VERSION_MIN = 1
"""Version 0 was the early access of 4.0, whose messages differ."""


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """One member. `target` is what it shall own: None where the protocol has none, or none of its own."""

    member_id: str
    client_id: str
    owned: tuple[PartitionKey, ...] = ()
    target: tuple[PartitionKey, ...] | None = None
    group_instance_id: str | None = None
    rack_id: str | None = None
    subscribed_topic_regex: str | None = None
    client_host: str | None = None
    """Host of the client, without the slash that brokers write before it."""
    unread: int = 0
    """Partitions beyond PARTITIONS_MAX."""


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """One group. `generation_id` is the group epoch where the coordinator has one; None where it is unknown."""

    state: str | None
    members: tuple[DescribedMember, ...] = ()
    generation_id: int | None = None
    assignor: str | None = None
    topology_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ShareOffsets:
    """How far a group has read: start offsets, and lags where the broker sends them (share groups, 4.2 and newer).

    `lags` has None where the broker does not know the lag; a partition that is absent was sent without one. `unread`
    are partitions of the group without a start offset.
    """

    starts: Mapping[PartitionKey, int]
    lags: Mapping[PartitionKey, int | None] = field(default_factory=dict)
    unread: tuple[PartitionKey, ...] = ()

    @property
    def partitions(self) -> tuple[PartitionKey, ...]:
        """All partitions that the group has."""
        return (*self.starts, *self.unread)


class GroupReads(Protocol):
    """Requests to one coordinator."""

    def ask_broker(self, broker: int, request: Any) -> Any:
        """Returns the broker's response to a request of kafka-python's; raises KafkaError."""

    def describe_classic(self, broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
        """Returns groups of the classic protocol, by name; raises KafkaError."""


def describe(reads: GroupReads, broker: int, kind: str, names: Sequence[str]) -> dict[str, DescribedGroup]:
    """Returns the groups `names`, of one kind, that this broker coordinates; raises KafkaError.

    Nothing for a kind that the broker can't describe.
    """
    try:
        if kind == CONSUMER:
            return _consumer_groups(reads, broker, names)
        if kind == SHARE:
            return _share_groups(reads, broker, names)
        if kind == STREAMS:
            return _streams_groups(reads, broker, names)
    except IncompatibleBrokerVersion:
        return {}
    return reads.describe_classic(broker, names)


def host_of(sent: str) -> str | None:
    """The host or address that a member connects from; brokers write Java's form of an address, with a slash.

    >>> host_of("/10.1.2.3")
    '10.1.2.3'
    """
    return sent.removeprefix("/") or None


def bounded(text: str) -> str:
    """A name that a client chose, cut in its middle if it is long: the end of a member id is what Kafka adds to it.

    >>> len(bounded("c" * 30_000 + "-1f")), bounded("c" * 30_000 + "-1f").endswith("c-1f"), bounded("short")
    (249, True, 'short')
    """
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[: TEXT_MAX - TEXT_END - 1]}…{text[-TEXT_END:]}"


def share_offsets(reads: GroupReads, broker: int, names: Sequence[str]) -> dict[str, ShareOffsets]:
    """Returns the offsets of the share groups `names` that this broker coordinates; raises KafkaError."""
    asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    request = DescribeShareGroupOffsetsRequest(groups=[asked(group_id=name, topics=None) for name in names])
    try:
        response = reads.ask_broker(broker, request)
    except IncompatibleBrokerVersion:
        return {}
    return {row.group_id: _share_offsets(row, has_lags=response.API_VERSION >= 1) for row in _sound(response.groups)}


def _sound(rows: Iterable[Any]) -> Iterator[Any]:
    return (row for row in rows if for_code(row.error_code) is NoError)


def _share_offsets(group: Any, *, has_lags: bool) -> ShareOffsets:
    every = {(topic.topic_name, row.partition_index): row for topic in group.topics for row in _sound(topic.partitions)}
    rows = {key: row for key, row in every.items() if row.start_offset > UNKNOWN_OFFSET}
    lags = {key: row.lag if row.lag > UNKNOWN_OFFSET else None for key, row in rows.items()} if has_lags else {}
    starts = {key: row.start_offset for key, row in rows.items()}
    return ShareOffsets(starts, lags, tuple(sorted(every.keys() - rows.keys())))


def _consumer_groups(reads: GroupReads, broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
    request = ConsumerGroupDescribeRequest(group_ids=list(names), include_authorized_operations=False)
    return {
        group.group_id: DescribedGroup(
            group.group_state or None,
            tuple(_consumer_member(row) for row in group.members),
            group.group_epoch,
            group.assignor_name or None,
        )
        for group in _sound(reads.ask_broker(broker, request).groups)
    }


def _consumer_member(row: Any) -> DescribedMember:
    return DescribedMember(
        row.member_id,
        row.client_id,
        _partitions(row.assignment.topic_partitions),
        _partitions(row.target_assignment.topic_partitions),
        row.instance_id,
        row.rack_id,
        row.subscribed_topic_regex or None,
        host_of(row.client_host),
    )


def _share_groups(reads: GroupReads, broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
    request = ShareGroupDescribeRequest(
        group_ids=list(names), include_authorized_operations=False, min_version=SHARE_VERSION_MIN
    )
    return {
        group.group_id: DescribedGroup(
            group.group_state or None,
            tuple(
                DescribedMember(
                    row.member_id,
                    row.client_id,
                    _partitions(row.assignment.topic_partitions),
                    rack_id=row.rack_id,
                    client_host=host_of(row.client_host),
                )
                for row in group.members
            ),
            group.group_epoch,
            group.assignor_name or None,
        )
        for group in _sound(reads.ask_broker(broker, request).groups)
    }


def _partitions(topics: Iterable[Any]) -> tuple[PartitionKey, ...]:
    every = ((topic.topic_name, number) for topic in topics for number in topic.partitions)
    return tuple(sorted(islice(every, PARTITIONS_MAX)))


def _streams_groups(reads: GroupReads, broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
    request = StreamsGroupDescribeRequest(group_ids=list(names), include_authorized_operations=False)
    return {group.group_id: _streams_group(group) for group in _sound(reads.ask_broker(broker, request).groups)}


def _streams_group(group: Any) -> DescribedGroup:
    """What a member owns of a streams group are the partitions that its active tasks read, as far as they exist.

    A task reads the partition of its number of each topic of its subtopology that has so many.
    """
    read: dict[str, list[str]] = defaultdict(list)
    for subtopology in (group.topology.subtopologies or ()) if group.topology else ():
        internal = [topic.name for topic in subtopology.repartition_source_topics]
        read[subtopology.subtopology_id] += [*subtopology.source_topics, *internal]
    members = tuple(
        DescribedMember(
            row.member_id,
            row.client_id,
            _of_tasks(row.assignment, read),
            _of_tasks(row.target_assignment, read),
            row.instance_id,
            row.rack_id,
            client_host=host_of(row.client_host),
        )
        for row in group.members
    )
    epoch = group.topology.epoch if group.topology else None
    return DescribedGroup(group.group_state or None, members, group.group_epoch, topology_epoch=epoch)


def _of_tasks(assignment: Any, read: Mapping[str, Sequence[str]]) -> tuple[PartitionKey, ...]:
    every = (
        (topic, number)
        for task in assignment.active_tasks
        for topic in read.get(task.subtopology_id, ())
        for number in task.partitions
    )
    return tuple(sorted(islice(every, PARTITIONS_MAX)))
