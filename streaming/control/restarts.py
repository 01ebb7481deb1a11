"""What a restart of each broker would do, written down for who shows it: serve knows no Kafka.

The partitions are those that control has read for a decision anyway; only while control decides nothing does it read
them for this. `min.insync.replicas` comes from the topics' settings, which are read some topics at a time and rarely.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from assignor_core.intervals import is_due
from assignor_core.live import LiveCluster
from assignor_core.restart import restart_checks
from streaming import tables
from streaming.cluster.ports import ClusterReader
from streaming.contract import BROKER_RESTART
from streaming.control.carrier import RETRIED_ERRORS
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from streaming.views.restarts import restart_rows

log = structlog.get_logger()

READ_INTERVAL_MS = 90_000
"""How long after the newest read control reads the cluster for this alone, ms: while it carries out a plan, or no
window closes.
"""
ASKED_AGAIN_MS = 600_000
"""Time after which the settings of a topic are read again, ms."""
TOPICS_PER_READ = 2_000
"""Topics whose settings one tick reads at most; the next ticks read the others."""

InSyncMin = Callable[[Collection[str]], Mapping[str, int]]
"""Reads `min.insync.replicas` of topics; those that are hidden or gone are left out."""


@dataclass(frozen=True, slots=True)
class _Setting:
    topic_id: str | None
    asked_ms: int
    value: int | None
    """None if the login may not read it, or the broker that was asked does not know the topic."""
    is_asked_next: bool = False
    """Whether the next tick reads it again: a broker may not have heard of a new topic yet."""

    def is_due(self, now_ms: int) -> bool:
        return self.is_asked_next or is_due(self.asked_ms, ASKED_AGAIN_MS, now_ms)


class InSyncMins:
    """Remembers `min.insync.replicas` of each topic, as it was some minutes ago. Not for two threads."""

    def __init__(self, read: InSyncMin) -> None:
        self._read = read
        self._known: dict[str, _Setting] = {}

    def of(self, live: LiveCluster, *, now_ms: int) -> dict[str, int]:
        """The values of the cluster's topics, as far as they are known. A topic that was made again has no value of
        before. Topics that were never read come first, then those whose value is the oldest.
        """
        ids = {topic: live.topic_ids.get(topic) for topic, _ in live.partitions}
        known = {topic: row for topic, row in self._known.items() if topic in ids and row.topic_id == ids[topic]}
        due = [topic for topic in ids if topic not in known]
        due += sorted(
            (topic for topic, row in known.items() if row.is_due(now_ms)), key=lambda topic: known[topic].asked_ms
        )
        asked = due[:TOPICS_PER_READ]
        shown = self._shown(asked) if asked else {}
        if shown is not None:
            hidden = {topic for topic in asked if topic not in shown}
            again = {topic for topic in hidden if topic in known and known[topic].value is None}
            if again:
                log.info("in_sync_min_hidden", topics=len(again), needs="DESCRIBE_CONFIGS on topics")
            known |= {topic: _Setting(ids[topic], now_ms, shown.get(topic), topic in hidden - again) for topic in asked}
        self._known = known
        return {topic: row.value for topic, row in known.items() if row.value is not None}

    def _shown(self, topics: Collection[str]) -> Mapping[str, int] | None:
        """None if nobody answered: what was known stays, and is asked for again at the next tick."""
        try:
            return self._read(topics)
        except (ClusterRequestFailed, ClusterUnreachable) as error:
            log.warning("in_sync_min_unread", error=str(error))
            return None


class RestartReports:
    """Writes the table `broker_restart` for the control loop, which this must not stop."""

    def __init__(self, read: InSyncMin, root: str, kafka_cluster: str) -> None:
        self._mins = InSyncMins(read)
        self._root = root
        self._kafka_cluster = kafka_cluster
        self._read_ms: int | None = None

    def read_if_due(self, cluster: ClusterReader, *, now_ms: int) -> None:
        """Reads the cluster unless `note` was called lately; raises LeaseLost."""
        if not is_due(self._read_ms, READ_INTERVAL_MS, now_ms):
            return
        self._read_ms = now_ms
        try:
            live = cluster.describe()
        except RETRIED_ERRORS as error:
            log.warning("restarts_unknown", error=str(error))
            return
        self.note(live, now_ms=now_ms)

    def note(self, live: LiveCluster, *, now_ms: int) -> None:
        """Write down what this read shows; a table that can't be written keeps nothing from going on."""
        self._read_ms = now_ms
        checks = restart_checks(live, self._mins.of(live, now_ms=now_ms))
        try:
            tables.replace(
                self._root,
                BROKER_RESTART.name,
                restart_rows(checks, self._kafka_cluster, now_ms=now_ms),
                kafka_cluster=self._kafka_cluster,
                transaction_id=f"broker_restart:{self._kafka_cluster}",
                transaction_version=tables.AtTime(now_ms),
            )
        except RETRIED_ERRORS as error:
            log.warning("restarts_not_written", error=str(error))
