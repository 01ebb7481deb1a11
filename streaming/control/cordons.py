"""Cordons of drained brokers (KIP-1066): Kafka puts nothing new on a broker whose log dirs are all cordoned.

A row of `broker_intent` orders them, and is written first: which log dirs nobody else had cordoned. As long as the
drain lasts these are cordoned; once it has ended their cordons are removed, and then the row is settled. A process that
is killed in between leaves the order in the table, and whoever looks next carries it out. Cordons of others stay.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import structlog

from assignor_core.disks import LogDirDescription, Uploads
from assignor_core.intervals import is_due
from assignor_core.live import LiveCluster, PartitionKey
from streaming.cluster.ports import ClusterReader, ControlledCluster
from streaming.control.carrier import RETRIED_ERRORS
from streaming.control.intents import note_uncordoned
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from streaming.tables import Row, TableReader
from streaming.views.intents import Intent, cordons_of, newest_intents

log = structlog.get_logger()

LOOK_INTERVAL_MS = 10_000
"""While an execution is under way; else control looks at each tick."""
UNANSWERED = "the broker does not answer"


def to_cordon(cluster: ClusterReader, brokers: Collection[int]) -> dict[int, tuple[str, ...]]:
    """Log dirs that a drain of these brokers cordons, by broker: those that nobody has cordoned.

    None of brokers that don't answer, that refuse to show them, or that know no cordon, as those before Kafka 4.3.
    """
    found = {}
    for broker in brokers:
        try:
            shown = cluster.log_dirs([broker], ()).get(broker, ())
        except ClusterRequestFailed as error:
            log.warning("log_dirs_unread", broker=broker, error=str(error))
            continue
        found[broker] = tuple(row.path for row in shown if _is_open(row))
    return found


def settle(
    cluster: ControlledCluster, reader: TableReader, kafka_cluster: str, brokers: Collection[int] | None = None
) -> dict[int, str]:
    """Cordon and uncordon as the newest rows on these brokers want (on all where None).

    Returns what went wrong, by broker. Raises TableUnavailable, LeaseLost.
    """
    newest = newest_intents(reader, kafka_cluster)
    orders = {
        broker: row for broker, row in newest.items() if cordons_of(row) and (brokers is None or broker in brokers)
    }
    problems = {}
    for broker, row in sorted(orders.items()):
        try:
            shown = cluster.log_dirs([broker], ())
            if broker not in shown:
                problems[broker] = UNANSWERED
            elif row["intent"] == Intent.DRAIN:
                _cordon(cluster, broker, cordons_of(row), shown[broker])
            else:
                cluster.cordon_log_dirs(broker, cordons_of(row), cordoned=False)
                note_uncordoned(reader.root, kafka_cluster, row)
                log.info("broker_uncordoned", broker=broker)
        except (ClusterRequestFailed, ClusterUnreachable) as error:
            problems[broker] = str(error)
    return problems


def _cordon(
    cluster: ControlledCluster, broker: int, ours: Collection[str], rows: Collection[LogDirDescription]
) -> None:
    """Cordon what is not cordoned of `ours`. Kafka's list takes the place of one in the broker's own file, so log dirs
    that are cordoned there are named, too.
    """
    missing = [row.path for row in rows if row.path in ours and _is_open(row)]
    if missing:
        others = [row.path for row in rows if row.is_cordoned]
        cluster.cordon_log_dirs(broker, [*missing, *others], cordoned=True)
        log.info("broker_cordoned", broker=broker, log_dirs=missing)


def _is_open(row: LogDirDescription) -> bool:
    """Returns whether the log dir takes new replicas and its broker knows cordons. A broker shows neither for a log dir
    that is offline.
    """
    return row.is_cordoned is False and not row.is_offline


class Cordons:
    """Carries orders out for the control loop, which they must not stop: what fails is tried again."""

    def __init__(self, cluster: ControlledCluster, root: str, kafka_cluster: str) -> None:
        self._cluster = cluster
        self._reader = TableReader(root)
        self._kafka_cluster = kafka_cluster
        self._settled_ms: int | None = None
        self._problems: Mapping[int, str] = {}

    def settle(self, *, now_ms: int, executing: bool) -> None:
        """Settles the cordons of log dirs; raises LeaseLost."""
        if executing and not is_due(self._settled_ms, LOOK_INTERVAL_MS, now_ms):
            return
        self._settled_ms = now_ms
        self._reader.look_again()
        try:
            problems = settle(self._cluster, self._reader, self._kafka_cluster)
        except RETRIED_ERRORS as error:  # whatever else control does needs no cordon
            log.warning("cordons_unknown", error=str(error))
            return
        for broker, why in problems.items():
            if self._problems.get(broker) != why:
                log.warning("cordon_unsettled", broker=broker, error=why)
        self._problems = problems


class Uncordoned:
    """A cluster as it is once the cordons that are ours are removed, for a plan that fills these brokers."""

    def __init__(self, cluster: ClusterReader, newest: Mapping[int, Row | None]) -> None:
        self._cluster = cluster
        self._newest = newest

    def describe(self, topics: Collection[str] | None = None) -> LiveCluster:
        """See `ports.ClusterReader`."""
        return self._cluster.describe(topics)

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """See `ports.ClusterReader`."""
        shown = self._cluster.log_dirs(brokers, partitions)
        return {broker: tuple(self._without(broker, row) for row in rows) for broker, rows in shown.items()}

    def uploads(self, leaders: Mapping[PartitionKey, int]) -> Uploads:
        """See `ports.ClusterReader`."""
        return self._cluster.uploads(leaders)

    def _without(self, broker: int, row: LogDirDescription) -> LogDirDescription:
        ours = row.path in cordons_of(self._newest.get(broker))
        return replace(row, is_cordoned=False) if ours else row
