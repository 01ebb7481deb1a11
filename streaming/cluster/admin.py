"""The cluster as control sees and changes it: describe, reassign, elect, throttle, move between log dirs, cordon, mark.

Only this module and `topics`, which creates two topics, change a cluster. It speaks the core's types and turns every
error of the client into one of ours. Throttles are added and taken away entry by entry (APPEND and SUBTRACT), so that a
throttle somebody else has set stays as it is.

Markers are client quotas of a client id that no client has. A quota is the one thing that control may write with the
rights that it has anyway (ALTER_CONFIGS and DESCRIBE_CONFIGS on the cluster), that lies in the metadata log, and that
needs no topic or group. Its name holds the text, its values the times: they are so high that they would limit nobody.
See docs/decisions/0032.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import structlog
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    ClusterAuthorizationFailedError,
    ElectionNotNeededError,
    KafkaError,
    NoError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.structs import TopicPartition

from assignor_core.disks import NO_UPLOADS, FutureReplica, LogDirDescription, Uploads
from assignor_core.identity import cluster_mismatch
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, PartitionKey, Reassignment, ReplicaKey
from assignor_core.live_plans.tiered_logs import BEGINS_BEHIND_UPLOADS
from assignor_core.marker import Marker
from assignor_core.throttles import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    LOG_DIR_RATE,
    REPLICATION_RATES,
    ThrottledReplicas,
    entries_text,
    is_foreign,
    pieces,
)
from streaming.cluster.answer_columns import LogDirRows
from streaming.cluster.answers import brokers_alive, is_unanswered, racks_of, translated, unanswered_in
from streaming.cluster.broker_reads import EARLIEST_LOCAL, LATEST, NOT_UPLOADED, BrokerReads, Led
from streaming.cluster.metadata import LiveTopic
from streaming.errors import (
    AnotherCluster,
    ClusterRequestFailed,
    ClusterUnreachable,
    ElectionsRefused,
    LogDirMovesRefused,
    ReassignmentsRefused,
)

log = structlog.get_logger()

ROLE = "control"
PREFERRED = 0
UNSHOWN = TopicAuthorizationFailedError.errno
"""What Kafka answers for a topic that the client may not describe, whether it is there or not."""
TOPIC_NOT_SHOWN = (UnknownTopicOrPartitionError.errno, UNSHOWN)
ALREADY_DONE = ("NoReassignmentInProgressError",)
DELETED = ("DELETE", None)
"""The change that removes a setting."""
CORDONED_LOG_DIRS = "cordoned.log.dirs"
"""Broker setting since Kafka 4.3 (KIP-1066)."""
PREFIX = "rebalancer-control"
RENEWED = "consumer_byte_rate"
"""The quota that holds when the marker was renewed, ms since 1970 UTC."""
HELD = "producer_byte_rate"
"""The quota that is there while the marker is held; the same value."""
_NAME = re.compile(
    rf"{PREFIX} lease=(?P<lease>\w+) owner=(?P<owner>[\w.:/-]+)(@(?P<holder>\w+))? since_ms=(?P<since>\d{{1,15}})",
    re.ASCII,
)
"""Earlier versions wrote no holder, and take it for a part of the owner."""


class Cluster:
    """A live cluster behind an admin client that the caller built and closes; it implements all of `ports`.

    `may_act` is asked right before each change and raises where this process must not make it (see control.lease).
    With `kafka_cluster_id`, each look and each change raises AnotherCluster where the brokers name another id.
    """

    def __init__(
        self,
        admin: KafkaAdminClient,
        may_act: Callable[[], None] = lambda: None,
        *,
        kafka_cluster_id: str | None = None,
    ) -> None:
        self._admin = admin
        self._may_act = may_act
        self._kafka_cluster_id = kafka_cluster_id

    def describe(self, topics: Collection[str] | None = None) -> LiveCluster:
        with translated("describe the cluster", role=ROLE):
            cluster = self._checked_cluster()
            described = self._described_topics(topics)
            moving = self._reassignments()
        listed = {
            (row.topic, row.partition): Reassignment(
                *(tuple(answer[name]) for name in ("replicas", "adding_replicas", "removing_replicas"))
            )
            for row, answer in (moving or {}).items()
        }
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

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
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

    def uploads(self, leaders: Mapping[PartitionKey, int]) -> Uploads:
        try:
            brokers = self._beginning_behind_uploads()
        except (ClusterRequestFailed, ClusterUnreachable) as error:
            log.info("uploads_unread", reason=str(error))
            return NO_UPLOADS
        if not brokers:
            return NO_UPLOADS
        led: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (topic, number), leader in sorted(leaders.items()):
            if leader != NO_LEADER:
                led[leader][topic].append(number)
        reads = BrokerReads(self._admin)
        waiting: dict[PartitionKey, float] = {}
        for leader, asked in led.items():
            try:
                waiting |= _waiting(reads, leader, asked)
            except KafkaError as error:
                log.info("uploads_unread", broker=leader, reason=type(error).__name__)
        return Uploads(brokers, waiting)

    def throttle_rates(self, brokers: Collection[int] | None = None) -> dict[int, dict[str, int]]:
        return self._rates(brokers, REPLICATION_RATES)

    def throttled_replicas(self, topics: Iterable[str]) -> dict[tuple[str, str], str]:
        modified = self._modified(ConfigResourceType.TOPIC, sorted(set(topics)), (LEADER_REPLICAS, FOLLOWER_REPLICAS))
        return {
            (topic, key): values[key]
            for topic, values in modified.items()
            for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS)
            if values.get(key)
        }

    def log_dir_rates(self, brokers: Collection[int] | None = None) -> dict[int, int]:
        return {broker: row[LOG_DIR_RATE] for broker, row in self._rates(brokers, (LOG_DIR_RATE,)).items()}

    def markers(self) -> tuple[Marker, ...]:
        with translated("read client quotas", role=ROLE):
            self._checked_cluster()
            return markers_on(self._admin)

    def reassign(self, targets: Mapping[PartitionKey, tuple[int, ...] | None]) -> None:
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

    def move_to_log_dirs(self, targets: Mapping[ReplicaKey, str]) -> None:
        by_broker: dict[int, dict[tuple[str, int, int], str]] = defaultdict(dict)
        for (broker, (topic, partition)), path in sorted(targets.items()):
            by_broker[broker][topic, partition, broker] = path
        self._before_change()
        refused: dict[ReplicaKey, str] = {}
        silent = None
        for broker, asked in by_broker.items():
            try:
                refused |= self._moved_within(broker, asked)
            except ClusterUnreachable as error:
                silent = error
            except ClusterRequestFailed as error:  # it refuses all, for want of a right
                refused |= {(broker, (row[0], row[1])): error.kafka_error or str(error) for row in asked}
        if refused:
            raise LogDirMovesRefused(refused)
        if silent is not None:
            raise silent

    def cordon_log_dirs(self, broker_id: int, paths: Collection[str], *, cordoned: bool) -> None:
        """Let log dirs take no new replicas, or take them again; the broker keeps that over restarts."""
        operation = "APPEND" if cordoned else "SUBTRACT"
        change = {str(broker_id): {CORDONED_LOG_DIRS: (operation, ",".join(sorted(paths)))}}
        self._alter(ConfigResourceType.BROKER, change, what=CORDONED_LOG_DIRS)

    def set_throttled_replicas(
        self, leaders: Mapping[str, ThrottledReplicas], followers: Mapping[str, ThrottledReplicas]
    ) -> None:
        self._change_replica_lists("APPEND", leaders, followers)

    def set_throttle_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        self._change_rates({row: ("SET", str(rate)) for row, rate in rates_bytes_per_sec.items()}, REPLICATION_RATES)

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
            down = self._change_rates(dict.fromkeys(brokers, DELETED), REPLICATION_RATES, keeps_others=not untagged)
        except ClusterRequestFailed as error:
            refused = error
        self._change_replica_lists("SUBTRACT", leaders, followers)
        if refused is not None:
            raise refused
        return down

    def set_log_dir_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        self._change_rates({row: ("SET", str(rate)) for row, rate in rates_bytes_per_sec.items()}, (LOG_DIR_RATE,))

    def clear_log_dir_rates(self, brokers: Collection[int], *, untagged: bool = False) -> list[int]:
        return self._change_rates(dict.fromkeys(brokers, DELETED), (LOG_DIR_RATE,), keeps_others=not untagged)

    def write_marker(self, marker: Marker, replaced: Collection[Marker] = ()) -> None:
        self._before_change()
        with translated("write a client quota", role=ROLE):
            self._admin.alter_client_id_quotas(replacement(marker, tuple(replaced)))

    def _before_change(self) -> None:
        """The lease is asked last: the less time lies between its answer and the request, the better."""
        if self._kafka_cluster_id is not None:
            with translated("describe the cluster", role=ROLE):
                self._checked_cluster()
        self._may_act()

    def _checked_cluster(self) -> dict[str, Any]:
        """The cluster's description; raises AnotherCluster, KafkaError."""
        cluster: dict[str, Any] = self._admin.describe_cluster()
        other = cluster_mismatch(self._kafka_cluster_id, cluster["cluster_id"])
        if other is not None:
            raise AnotherCluster(other)
        return cluster

    def _alive(self) -> list[int]:
        with translated("describe the cluster", role=ROLE):
            return list(brokers_alive(self._admin))

    def _reassignments(self) -> dict[TopicPartition, dict[str, Any]] | None:
        """Reassignments that the controller lists; raises KafkaError. A subclass may return None."""
        moving: dict[TopicPartition, dict[str, Any]] = self._admin.list_partition_reassignments()
        return moving

    def _described_topics(self, topics: Collection[str] | None) -> list[LiveTopic]:
        """Topics in metadata; asked by name, Kafka answers with an error for a topic that is not there."""
        if topics is not None and not topics:
            return []
        rows: list[LiveTopic] = self._admin.live_topics(None if topics is None else sorted(topics))
        return rows

    def _beginning_behind_uploads(self) -> frozenset[int]:
        """Brokers that have the setting on, whatever set it; those before Kafka 4.3 do not know it."""
        asked = [ConfigResource(ConfigResourceType.BROKER, str(row), (BEGINS_BEHIND_UPLOADS,)) for row in self._alive()]
        with translated(f"read {BEGINS_BEHIND_UPLOADS} of brokers", role=ROLE):
            shown = self._admin.describe_configs(asked, config_filter="all").get("broker", {})
        return frozenset(
            int(broker)
            for broker, values in shown.items()
            if values.get(BEGINS_BEHIND_UPLOADS, {}).get("value") == "true"
        )

    def _moved_within(self, broker: int, asked: Mapping[tuple[str, int, int], str]) -> dict[ReplicaKey, str]:
        """What one broker refuses, with Kafka's error."""
        with translated(f"move replicas within broker {broker}", role=ROLE):
            answers = self._admin.alter_replica_log_dirs(dict(asked))
        return {
            (broker, (replica.topic, replica.partition)): error.__name__
            for replica, error in answers.items()
            if error is not NoError and not unanswered_in(error.__name__)
        }

    def _modified(
        self, kind: ConfigResourceType, names: list[str], settings: tuple[str, ...]
    ) -> dict[str, dict[str, str]]:
        """Returns values of `settings` that were set on these resources themselves, not inherited from a default."""
        if not names:
            return {}
        with translated("read throttle settings", role=ROLE):
            described = self._admin.describe_configs([ConfigResource(kind, name, settings) for name in names])
        resources = described.get(kind.name.lower(), {})
        return {name: {key: row["value"] for key, row in values.items()} for name, values in resources.items()}

    def _rates(self, brokers: Collection[int] | None, settings: tuple[str, ...]) -> dict[int, dict[str, int]]:
        """Rates that are set dynamically, bytes/s, by broker and setting, of these brokers that are alive."""
        return self._rates_of([row for row in self._alive() if brokers is None or row in brokers], settings)

    def _rates_of(self, alive: Collection[int], settings: tuple[str, ...]) -> dict[int, dict[str, int]]:
        modified = self._modified(ConfigResourceType.BROKER, list(map(str, alive)), settings)
        return {
            int(broker): rates
            for broker, values in modified.items()
            if (rates := {key: int(values[key]) for key in settings if values.get(key)})
        }

    def _change_rates(
        self, values: Mapping[int, tuple[str, str | None]], settings: tuple[str, ...], *, keeps_others: bool = True
    ) -> list[int]:
        """Change rates of brokers that are alive, but for those of others where these are kept; returns who is down.

        A read just before shows the rates of others: Kafka knows no condition for a change. A broker may not show yet
        what it was asked for just before, so a rate that it does not show is removed, too.
        """
        alive = values.keys() & set(self._alive())
        shown = self._rates_of(sorted(alive), settings) if keeps_others else {}
        changes = {
            str(broker): {row: values[broker] for row in settings if not is_foreign(shown.get(broker, {}).get(row))}
            for broker in sorted(alive)
        }
        self._alter(ConfigResourceType.BROKER, {broker: row for broker, row in changes.items() if row})
        return sorted(values.keys() - alive)

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

    def _alter(
        self,
        kind: ConfigResourceType,
        changes: Mapping[str, Mapping[str, tuple[str, str | None]]],
        *,
        what: str = "throttle",
    ) -> None:
        """Change settings of resources; `what` they are, for messages."""
        if not changes:
            return
        resources = [ConfigResource(kind, name, dict(values)) for name, values in sorted(changes.items())]
        self._before_change()
        with translated(f"change {what} settings", role=ROLE):
            answers = self._admin.alter_configs(resources, raise_on_unknown=False, incremental=True)
        failed = {name: answer for rows in answers.values() for name, answer in rows.items() if answer != "OK"}
        refused = {name: answer for name, answer in failed.items() if not unanswered_in(answer)}
        if refused:
            name, answer = min(refused.items())
            raise ClusterRequestFailed(f"{what} of {kind.name.lower()} {name} can't be changed: {answer}")
        if failed:
            raise ClusterUnreachable(f"no answer when asked to change the {what} of {kind.name.lower()} {min(failed)}")


class PartlyShownCluster(Cluster):
    """Reassignments that may not be listed are `reassignments_hidden`; a broker that refuses log dirs shows none."""

    def __init__(self, *arguments: Any, logs: bool = False, **options: Any) -> None:
        """Takes the arguments of `Cluster`. A role `logs` what is refused; a command shows it in its answer."""
        super().__init__(*arguments, **options)
        self._logs = logs
        self._refused: set[str] = set()

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        try:
            shown = super().log_dirs(brokers, partitions)
        except ClusterRequestFailed as error:
            if error.kafka_error != ClusterAuthorizationFailedError.__name__:
                raise
            self._note_refusal("describe log dirs", "sizes of logs, room on disks: replicas stay where they are")
            return {broker: () for broker in self._alive() if brokers is None or broker in brokers}
        self._note_answer("describe log dirs")
        return shown

    def _reassignments(self) -> Any:
        try:
            moving = super()._reassignments()
        except ClusterAuthorizationFailedError:
            self._note_refusal("list reassignments", "whether partitions are being reassigned")
            return None
        self._note_answer("list reassignments")
        return moving

    def _note_refusal(self, request: str, unknown: str) -> None:
        if request not in self._refused:
            self._refused.add(request)
            if self._logs:
                log.warning("request_refused", request=request, needs="DESCRIBE on the cluster", unknown=unknown)

    def _note_answer(self, request: str) -> None:
        if request in self._refused:
            self._refused.remove(request)
            if self._logs:
                log.info("request_allowed", request=request)


def log_dir_of(row: LogDirRows) -> LogDirDescription:
    """One log dir of an answer to DescribeLogDirs."""
    replicas = row.replicas
    keys = replicas.keys()
    sizes = replicas.column("size").tolist()
    future_places = replicas.column("is_future").nonzero()[0].tolist()
    future_replicas = {
        keys[place]: FutureReplica(sizes[place], int(replicas.rows["lag"][place])) for place in future_places
    }
    replica_bytes = dict(zip(keys, sizes, strict=True))
    for key in future_replicas:
        del replica_bytes[key]
    return LogDirDescription(
        row.path,
        row.total_bytes,
        row.usable_bytes,
        replica_bytes,
        is_offline=row.error_code != 0,
        is_cordoned=row.is_cordoned,
        future_replicas=future_replicas,
    )


def _waiting(reads: BrokerReads, leader: int, led: Led) -> dict[PartitionKey, float]:
    """Part of each log on the leader's disk that is not uploaded yet; raises KafkaError."""
    ends, uploaded, starts = (_offsets(reads, leader, led, at) for at in (LATEST, NOT_UPLOADED, EARLIEST_LOCAL))
    waiting = {}
    for key in ends.keys() & uploaded.keys() & starts.keys():
        local, left = ends[key] - starts[key], ends[key] - uploaded[key]
        if 0 <= left <= local and local:
            waiting[key] = left / local
    return waiting


def _offsets(reads: BrokerReads, leader: int, led: Led, timestamp: int) -> dict[PartitionKey, int]:
    """Offsets that the leader knows."""
    rows = reads.leader_offsets(leader, led, timestamp)
    columns = zip(rows.keys(), rows.column("error").tolist(), rows.column("offset").tolist(), strict=True)
    return {key: offset for key, error, offset in columns if error == 0 and offset >= 0}


def client_id_of(marker: Marker) -> str:
    """The client id that bears the quotas of a marker.

    >>> client_id_of(Marker("5f", "host/7", 1_700_000_000_000, 0, holder_id="c4"))
    'rebalancer-control lease=5f owner=host/7@c4 since_ms=1700000000000'
    """
    holder = f"@{marker.holder_id}" if marker.holder_id else ""
    return f"{PREFIX} lease={marker.lease_id} owner={marker.owner}{holder} since_ms={marker.since_ms}"


def quotas_of(marker: Marker) -> dict[str, float | None]:
    """The quotas of a marker; None removes one."""
    return {RENEWED: float(marker.renewed_ms), HELD: None if marker.is_released else float(marker.renewed_ms)}


def marker_of(client_id: str, quotas: Mapping[str, float]) -> Marker | None:
    """The marker that a client id and its quotas stand for; None where they stand for none.

    >>> marker = Marker("5f", "host/7", 1_700_000_000_000, 1_700_000_015_000, holder_id="c4")
    >>> marker_of(client_id_of(marker), {RENEWED: 1_700_000_015_000.0, HELD: 1_700_000_015_000.0}) == marker
    True
    >>> marker_of("console-producer", {RENEWED: 1_000_000.0}) is None
    True
    """
    name = _NAME.fullmatch(client_id)
    if name is None or RENEWED not in quotas:
        return None
    return Marker(
        name["lease"], name["owner"], int(name["since"]), round(quotas[RENEWED]), HELD not in quotas,
        name["holder"] or "",
    )  # fmt: skip


def markers_on(admin: Any) -> tuple[Marker, ...]:
    """All markers, by lease and holder; raises KafkaError."""
    markers = (marker_of(name, quotas) for name, quotas in admin.client_id_quotas().items())
    return tuple(sorted((row for row in markers if row is not None), key=lambda row: (*row.identity, row.since_ms)))


def replacement(marker: Marker, replaced: tuple[Marker, ...]) -> dict[str, dict[str, float | None]]:
    """What to ask the cluster for: quotas by client id; those of markers that are `replaced` go."""
    own = client_id_of(marker)
    gone = {client_id_of(row) for row in replaced} - {own}
    return {**{name: {RENEWED: None, HELD: None} for name in sorted(gone)}, own: quotas_of(marker)}


def broker_hosts(admin: KafkaAdminClient) -> dict[int, str]:
    """Advertised host by broker that is alive; raises ClusterUnreachable, ClusterRequestFailed."""
    with translated("describe the cluster", role=ROLE):
        return {row["broker_id"]: row["host"] for row in admin.describe_cluster()["brokers"]}


def quorum_leader(admin: KafkaAdminClient) -> int | None:
    """Id of the node that leads the metadata quorum (KRaft), which is a broker's id where brokers are controllers, too.

    None if the cluster does not show it. The controller in the description of a KRaft cluster is any broker.
    """
    with suppress(KafkaError, OSError):
        for topic in admin.describe_metadata_quorum()["topics"]:
            for partition in topic["partitions"]:
                return int(partition["leader_id"])
    return None
