"""Cordons of drained brokers (KIP-1066): Kafka puts nothing new on a broker whose log dirs are all cordoned.

A row of `broker_intent` orders them, and is written first: which log dirs nobody else had cordoned. As long as the
drain lasts these are cordoned; once it has ended their cordons are removed, and then the row is settled. A process that
is killed in between leaves the order in the table, and whoever reads the table next carries it out. Cordons of others
stay.
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

READ_INTERVAL_MS = 10_000
"""While an execution is under way; else control reads the rows at each tick."""
SETTLED_INTERVAL_MS = 60_000
"""How often brokers are asked again whether they are cordoned still, if nobody has written a row meanwhile."""
UNANSWERED = "the broker does not answer"
STILL_CORDONED = "the broker still shows the cordon"


def to_cordon(
    cluster: ClusterReader, newest: Mapping[int, Row], brokers: Collection[int]
) -> dict[int, tuple[str, ...]]:
    """Log dirs that a drain of these brokers cordons, by broker: those that nobody but us has cordoned.

    `newest` are the rows of before the call: whoever removes cordons of ours meanwhile also writes that none is left.
    Brokers that don't answer, that refuse to show log dirs, or that know no cordon, as those before Kafka 4.3, add
    none to those that are ours.
    """
    shown, problems = _shown(cluster, brokers)
    for broker, error in problems.items():
        log.warning("log_dirs_unread", broker=broker, error=error)
    open_ones = {broker: [row.path for row in shown.get(broker, ()) if _is_open(row)] for broker in brokers}
    return {broker: tuple(sorted(cordons_of(newest.get(broker)).union(open_ones[broker]))) for broker in brokers}


def _shown(
    cluster: ClusterReader, brokers: Collection[int]
) -> tuple[dict[int, tuple[LogDirDescription, ...]], dict[int, str]]:
    """Log dirs of the brokers that show them, and why others don't. All are asked at once; if one of them refuses, each
    is asked alone, so that it holds up no other.
    """
    if not brokers:
        return {}, {}
    try:
        return cluster.log_dirs(brokers, ()), {}
    except (ClusterRequestFailed, ClusterUnreachable) as error:
        if len(brokers) == 1:
            return {}, dict.fromkeys(brokers, str(error))
    each = [_shown(cluster, [broker]) for broker in brokers]
    return {key: row for rows, _ in each for key, row in rows.items()}, {
        broker: why for _, problems in each for broker, why in problems.items()
    }


def _orders(reader: TableReader, kafka_cluster: str) -> dict[int, Row]:
    """The newest row of each broker on which cordons are ours."""
    rows = newest_intents(reader, kafka_cluster)
    return {broker: row for broker, row in sorted(rows.items()) if cordons_of(row)}


def settle(
    cluster: ControlledCluster, reader: TableReader, kafka_cluster: str, brokers: Collection[int] | None = None
) -> dict[int, str]:
    """Cordon and uncordon as the newest rows on these brokers want (on all where None).

    Who names brokers has just written their rows, and cordons whatever the brokers show: a broker may still show a
    cordon that is removed already. Returns what went wrong, by broker. Raises TableUnavailable, LeaseLost.
    """
    orders = _orders(reader, kafka_cluster)
    if brokers is not None:
        orders = {broker: row for broker, row in orders.items() if broker in brokers}
    shown, problems = _shown(cluster, orders)
    for broker, row in orders.items():
        if broker not in shown:
            problems.setdefault(broker, UNANSWERED)
            continue
        try:
            if row["intent"] == Intent.DRAIN:
                _cordon(cluster, broker, cordons_of(row), shown[broker], in_any_case=brokers is not None)
            elif not _uncordoned(cluster, reader, kafka_cluster, row):
                problems[broker] = STILL_CORDONED
        except (ClusterRequestFailed, ClusterUnreachable) as error:
            problems[broker] = str(error)
    return problems


def _uncordoned(cluster: ControlledCluster, reader: TableReader, kafka_cluster: str, row: Row) -> bool:
    """Remove the cordons of this row; whether that is over. It is not as long as the broker shows one of them: a drain
    that finds it there would take it for that of somebody else.
    """
    broker, ours = row["broker"], cordons_of(row)
    cluster.cordon_log_dirs(broker, ours, cordoned=False)
    shown = cluster.log_dirs([broker], ()).get(broker, ())
    reader.look_again()
    newest = newest_intents(reader, kafka_cluster)[broker]
    if newest["intent"] == Intent.DRAIN:  # it has come meanwhile, and what it cordoned is removed
        _cordon(cluster, broker, cordons_of(newest), shown, in_any_case=True)
        return True
    if any(one.is_cordoned for one in shown if one.path in ours):
        return False
    note_uncordoned(reader.root, kafka_cluster, row)
    log.info("broker_uncordoned", broker=broker)
    return True


def _cordon(
    cluster: ControlledCluster,
    broker: int,
    ours: Collection[str],
    rows: Collection[LogDirDescription],
    *,
    in_any_case: bool = False,
) -> None:
    """Cordon what is not cordoned of `ours`, or all of it. Kafka's list takes the place of one in the broker's own
    file, so log dirs that are cordoned there are named, too.
    """
    known = [row for row in rows if row.path in ours and row.is_cordoned is not None and not row.is_offline]
    missing = [row.path for row in known if in_any_case or not row.is_cordoned]
    if missing:
        others = [row.path for row in rows if row.is_cordoned and row.path not in missing]
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
        self._read_ms: int | None = None
        self._settled: dict[int, Row] | None = None
        """Orders that are carried out, and need no read at each tick; None if something is left to do."""
        self._settled_ms: int | None = None
        self._problems: Mapping[int, str] = {}

    def settle(self, *, now_ms: int, executing: bool) -> None:
        """Settles the cordons of log dirs; raises LeaseLost."""
        if executing and not is_due(self._read_ms, READ_INTERVAL_MS, now_ms):
            return
        self._read_ms = now_ms
        self._reader.look_again()
        try:
            orders = _orders(self._reader, self._kafka_cluster)
            if orders == self._settled and not is_due(self._settled_ms, SETTLED_INTERVAL_MS, now_ms):
                return
            self._settled = None
            problems = settle(self._cluster, self._reader, self._kafka_cluster)
        except RETRIED_ERRORS as error:  # whatever else control does needs no cordon
            log.warning("cordons_unknown", error=str(error))
            return
        for broker, why in problems.items():
            if self._problems.get(broker) != why:
                log.warning("cordon_unsettled", broker=broker, error=why)
        self._problems = problems
        if not problems:
            self._settled, self._settled_ms = orders, now_ms


class Uncordoned:
    """A `ClusterReader` of a cluster as it is once our cordons are removed, for a plan that fills these brokers."""

    def __init__(self, cluster: ClusterReader, newest: Mapping[int, Row | None]) -> None:
        self._cluster = cluster
        self._newest = newest

    def describe(self, topics: Collection[str] | None = None) -> LiveCluster:
        return self._cluster.describe(topics)

    def log_dirs(
        self, brokers: Collection[int] | None = None, partitions: Collection[PartitionKey] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        shown = self._cluster.log_dirs(brokers, partitions)
        return {broker: tuple(self._without(broker, row) for row in rows) for broker, rows in shown.items()}

    def uploads(self, leaders: Mapping[PartitionKey, int]) -> Uploads:
        return self._cluster.uploads(leaders)

    def _without(self, broker: int, row: LogDirDescription) -> LogDirDescription:
        ours = row.path in cordons_of(self._newest.get(broker))
        return replace(row, is_cordoned=False) if ours else row
