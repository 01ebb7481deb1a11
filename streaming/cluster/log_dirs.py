"""Log dirs of a live cluster: what DescribeLogDirs answers, movements within a broker, their rate, cordons."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from kafka.admin import ConfigResourceType
from kafka.errors import NoError

from assignor_core.disks import FutureReplica, LogDirDescription
from assignor_core.live import ReplicaKey
from assignor_core.throttles import LOG_DIR_RATE
from streaming.cluster.answer_columns import LogDirRows
from streaming.cluster.answers import translated, unanswered_in
from streaming.cluster.connection import ROLE, Connection
from streaming.errors import ClusterRequestFailed, ClusterUnreachable, LogDirMovesRefused

CORDONED_LOG_DIRS = "cordoned.log.dirs"
"""Broker setting since Kafka 4.3 (KIP-1066)."""


class LogDirRequests(Connection):
    """Movements within brokers. Each broker is asked by itself: there is no controller for them."""

    def move_to_log_dirs(self, targets: Mapping[ReplicaKey, str]) -> None:
        """Ask brokers to move replicas between their log dirs. Raises LogDirMovesRefused with the replicas refused."""
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

    def _moved_within(self, broker: int, asked: Mapping[tuple[str, int, int], str]) -> dict[ReplicaKey, str]:
        """What one broker refuses, with Kafka's error."""
        with translated(f"move replicas within broker {broker}", role=ROLE):
            answers = self._admin.alter_replica_log_dirs(dict(asked))
        return {
            (broker, (replica.topic, replica.partition)): error.__name__
            for replica, error in answers.items()
            if error is not NoError and not unanswered_in(error.__name__)
        }

    def log_dir_rates(self, brokers: Collection[int] | None = None) -> dict[int, int]:
        """Rates of movements within a broker that are set dynamically, bytes/s by broker."""
        return {broker: row[LOG_DIR_RATE] for broker, row in self._rates(brokers, (LOG_DIR_RATE,)).items()}

    def set_log_dir_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        """Set the rate of movements within these brokers, bytes/s; those that are gone are left out, and a rate that
        somebody else has set stays.
        """
        self._set_rates(rates_bytes_per_sec, (LOG_DIR_RATE,))

    def clear_log_dir_rates(self, brokers: Collection[int], *, untagged: bool = False) -> list[int]:
        """Remove rates, those of others only if `untagged`; safe to repeat. Returns the brokers that are down: only a
        broker itself can drop its rate.
        """
        return self._clear_rates(brokers, (LOG_DIR_RATE,), untagged=untagged)

    def cordon_log_dirs(self, broker_id: int, paths: Collection[str], *, cordoned: bool) -> None:
        """Let log dirs take no new replicas, or take them again; the broker keeps that over restarts."""
        operation = "APPEND" if cordoned else "SUBTRACT"
        change = {str(broker_id): {CORDONED_LOG_DIRS: (operation, ",".join(sorted(paths)))}}
        self._alter(ConfigResourceType.BROKER, change, what=CORDONED_LOG_DIRS)


def log_dir_of(row: LogDirRows) -> LogDirDescription:
    """One log dir of an answer to DescribeLogDirs."""
    replicas = row.replicas
    topics = [replicas.topics[topic] for topic in replicas.topic.tolist()]
    keys = list(zip(topics, replicas.column("index").tolist(), strict=True))
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
