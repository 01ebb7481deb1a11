"""How far remote storage has got with logs of a live cluster; brokers on which new replicas begin there (KIP-1023)."""

from collections import defaultdict
from collections.abc import Mapping

import structlog
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from assignor_core.disks import NO_UPLOADS, Uploads
from assignor_core.live import NO_LEADER, PartitionKey
from assignor_core.live_plans.tiered_logs import BEGINS_BEHIND_UPLOADS
from streaming.cluster.answers import translated
from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.connection import ROLE, Connection
from streaming.cluster.offset_requests import EARLIEST_LOCAL, LATEST, NOT_UPLOADED, Led
from streaming.errors import ClusterRequestFailed, ClusterUnreachable

log = structlog.get_logger()


class UploadReads(Connection):
    """Reads for the price of a plan. Where they fail the price is an upper bound, so nothing raises."""

    def uploads(self, leaders: Mapping[PartitionKey, int]) -> Uploads:
        """How far remote storage has got with the logs of these partitions; see `ClusterReader`."""
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
    topics = [rows.topics[place] for place in rows.topic.tolist()]
    numbers, errors, offsets = (rows.column(name).tolist() for name in ("index", "error", "offset"))
    return {
        (topic, number): offset
        for topic, number, error, offset in zip(topics, numbers, errors, offsets, strict=True)
        if error == 0 and offset >= 0
    }
