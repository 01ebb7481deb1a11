"""The cluster as control sees and changes it: describe, reassign, elect, throttle; what it changes within
brokers is in `log_dirs`. Only these two modules and `input_topics`, which creates two topics, change a cluster.

It speaks the core's types and turns every client error into one of ours. Throttles are added and taken away entry by
entry (APPEND and SUBTRACT), so that a throttle somebody else has set stays as it is.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import structlog
from kafka.admin import ConfigResourceType
from kafka.errors import (
    ElectionNotNeededError,
    NoError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.structs import TopicPartition

from assignor_core.disks import LogDirDescription
from assignor_core.live import LiveCluster, LivePartition, PartitionKey, Reassignment
from assignor_core.marker import Marker
from assignor_core.throttles import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    REPLICATION_RATES,
    ThrottledReplicas,
    entries_text,
    pieces,
)
from streaming.cluster.answers import is_unanswered, racks_of, translated, unanswered_in
from streaming.cluster.connection import ROLE
from streaming.cluster.live_metadata import LiveTopic
from streaming.cluster.log_dirs import LogDirRequests, log_dir_of
from streaming.cluster.markers import markers_on, replacement
from streaming.cluster.uploads import UploadReads
from streaming.errors import ClusterRequestFailed, ElectionsRefused, ReassignmentsRefused

log = structlog.get_logger()

PREFERRED = 0
UNSHOWN = TopicAuthorizationFailedError.errno
"""What Kafka answers for a topic that the client may not describe, whether it is there or not."""
TOPIC_NOT_SHOWN = (UnknownTopicOrPartitionError.errno, UNSHOWN)
ALREADY_DONE = ("NoReassignmentInProgressError",)


class Cluster(LogDirRequests, UploadReads):
    """A live cluster; see `Connection` for what it is made with."""

    def describe(self, topics: Collection[str] | None = None) -> LiveCluster:
        """Live brokers, and partitions with their reassignments of these topics (None: all topics); raises
        ClusterUnreachable, AnotherCluster.
        """
        with translated("describe the cluster", role=ROLE):
            cluster = self._checked_cluster()
            described = self._described_topics(topics)
            moving = self._reassignments()
        listed = {(row.topic, row.partition): _reassignment(answer) for row, answer in (moving or {}).items()}
        hidden = frozenset(row.name for row in described if row.error_code == UNSHOWN)
        described = [row for row in described if row.error_code not in TOPIC_NOT_SHOWN]
        ids = {row.name: row.topic_id for row in described if row.topic_id is not None}
        partitions: dict[PartitionKey, LivePartition] = {}
        for topic in described:
            partitions.update(topic.partitions)
        for key in partitions.keys() & listed.keys():
            partitions[key] = partitions[key].with_reassignment(listed[key])
        return LiveCluster(
            cluster["cluster_id"], racks_of(cluster["brokers"]), partitions, ids, listed,
            reassignments_hidden=moving is None, hidden_topics=hidden,
        )  # fmt: skip

    def _reassignments(self) -> dict[TopicPartition, dict[str, Any]] | None:
        """Returns reassignments that the controller lists; raises KafkaError. Subclasses may return None and work
        without.
        """
        moving: dict[TopicPartition, dict[str, Any]] = self._admin.list_partition_reassignments()
        return moving

    def _described_topics(self, topics: Collection[str] | None) -> list[LiveTopic]:
        """Topics in metadata; asked by name, Kafka answers with an error for a topic that is not there."""
        if topics is not None and not topics:
            return []
        rows: list[LiveTopic] = self._admin.live_topics(None if topics is None else sorted(topics))
        return rows

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """Log dirs with what is free (KIP-827) and the replicas of `partitions`; a broker that refuses shows none.

        Brokers that don't answer are left out, and logged. If all are asked and none answers: ClusterUnreachable.
        """
        asked = [broker for broker in self._alive() if brokers is None or broker in brokers]
        if not asked:
            return {}
        with translated("read log dirs", role=ROLE):
            shown, errors = self._admin.log_dirs_by_broker(asked, partitions)
            refused = [error for error in errors.values() if not is_unanswered(error)]
            if refused or (brokers is None and not shown):
                raise next(iter(refused or errors.values()))
        for broker, error in errors.items():
            log.warning("log_dirs_unread", broker=broker, error=type(error).__name__)
        return {broker: tuple(map(log_dir_of, rows)) for broker, rows in shown.items()}

    def reassign(self, targets: Mapping[PartitionKey, tuple[int, ...] | None]) -> None:
        """Start reassignments; None cancels one. Raises ReassignmentsRefused with the partitions refused."""
        request = {TopicPartition(*key): list(replicas) if replicas else None for key, replicas in targets.items()}
        self._before_change()
        with translated("reassign partitions", role=ROLE):
            answers = self._admin.alter_partition_reassignments(request)
        refused = {
            (partition.topic, partition.partition): error.__name__
            for partition, error in answers.items()
            if error is not None
            and not unanswered_in(error.__name__)  # the next look shows what became of it
            and not (request[partition] is None and error.__name__ in ALREADY_DONE)
        }
        if refused:
            raise ReassignmentsRefused(refused)

    def elect_preferred(self, partitions: Iterable[PartitionKey]) -> None:
        """Make the first replica the leader, or leave it. Raises ElectionsRefused with the partitions refused."""
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            by_topic[topic].append(partition)
        self._before_change()
        with translated("elect preferred leaders", role=ROLE):
            answer = self._admin.elect_leaders(PREFERRED, dict(by_topic), raise_errors=False)
            whole = for_code(getattr(answer, "error_code", 0))  # version 0 has none
            if whole is not NoError:
                raise whole
        errors = {
            (row.topic, partition.partition_id): for_code(partition.error_code)
            for row in answer.replica_election_results
            for partition in row.partition_result
        }
        refused = {
            key: error.__name__
            for key, error in errors.items()
            if error not in (NoError, ElectionNotNeededError) and not unanswered_in(error.__name__)
        }
        if refused:
            raise ElectionsRefused(refused)

    def throttle_rates(self, brokers: Collection[int] | None = None) -> dict[int, dict[str, int]]:
        """Throttle rates that are set dynamically, bytes/s, by broker and setting."""
        return self._rates(brokers, REPLICATION_RATES)

    def throttled_replicas(self, topics: Iterable[str]) -> dict[tuple[str, str], str]:
        """Lists of throttled replicas that are set, by (topic, setting)."""
        modified = self._modified(ConfigResourceType.TOPIC, sorted(set(topics)), (LEADER_REPLICAS, FOLLOWER_REPLICAS))
        return {
            (topic, key): values[key]
            for topic, values in modified.items()
            for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS)
            if values.get(key)
        }

    def set_throttled_replicas(
        self, leaders: Mapping[str, ThrottledReplicas], followers: Mapping[str, ThrottledReplicas]
    ) -> None:
        """Name replicas whose copying is throttled; entries of others stay. Topics that are gone are left out. Kafka
        refuses entries beside a `*`, and those that would make a list too long.
        """
        self._change_replica_lists("APPEND", leaders, followers)

    def set_throttle_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        """Set the replication throttle of these brokers, bytes/s, both directions; those that are gone are left out.
        A rate that somebody else has set stays.
        """
        self._set_rates(rates_bytes_per_sec, REPLICATION_RATES)

    def clear_throttle(
        self,
        brokers: Collection[int],
        leaders: Mapping[str, ThrottledReplicas],
        followers: Mapping[str, ThrottledReplicas],
        *,
        untagged: bool = False,
    ) -> list[int]:
        """Take away what the two above have set; safe to repeat, and for topics or brokers that are gone. Rates of
        others stay, unless `untagged`.

        Returns the brokers that are down: only a broker itself can be asked to drop its rate. If Kafka refuses to
        change brokers, the lists of topics are changed before this raises.
        """
        down: list[int] = []
        refused = None
        try:
            down = self._clear_rates(brokers, REPLICATION_RATES, untagged=untagged)
        except ClusterRequestFailed as error:
            refused = error
        self._change_replica_lists("SUBTRACT", leaders, followers)
        if refused is not None:
            raise refused
        return down

    def markers(self) -> tuple[Marker, ...]:
        """Markers of rebalancers that change, or have changed, this cluster."""
        with translated("read client quotas", role=ROLE):
            self._checked_cluster()
            return markers_on(self._admin)

    def write_marker(self, marker: Marker, replaced: Collection[Marker] = ()) -> None:
        """Write a marker, in the place of those that are replaced."""
        self._before_change()
        with translated("write a client quota", role=ROLE):
            self._admin.alter_client_id_quotas(replacement(marker, tuple(replaced)))

    def _change_replica_lists(
        self, operation: str, leaders: Mapping[str, ThrottledReplicas], followers: Mapping[str, ThrottledReplicas]
    ) -> None:
        """Change lists entry by entry, in requests that Kafka takes; from a `*` it removes nothing."""
        if not leaders and not followers:
            return
        with translated("list topics", role=ROLE):
            existing = {row.name for row in self._described_topics(None)}
        there = [{topic: rows for topic, rows in side.items() if topic in existing} for side in (leaders, followers)]
        for sides in pieces(*there):
            changes: dict[str, dict[str, tuple[str, str | None]]] = defaultdict(dict)
            for setting, side in zip((LEADER_REPLICAS, FOLLOWER_REPLICAS), sides, strict=True):
                for topic, entries in side.items():
                    changes[topic][setting] = (operation, entries_text(entries))
            self._alter(ConfigResourceType.TOPIC, changes)


def _reassignment(answer: Mapping[str, Any]) -> Reassignment:
    return Reassignment(tuple(answer["replicas"]), tuple(answer["adding_replicas"]), tuple(answer["removing_replicas"]))
