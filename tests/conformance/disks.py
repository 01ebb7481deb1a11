"""The stage of tests about log dirs: broker 2 has two, each on a volume of its own; simulated, and on brokers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from assignor_core.disks import LogDirDescription
from assignor_core.live import PartitionKey
from streaming.cluster.clients import admin_client
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import ClusterRequestFailed, ClusterUnreachable, LogDirMovesRefused, ReassignmentsRefused
from streaming.settings import KafkaSettings
from tests.conformance.stages import BROKERS, RECORD_BYTES, EmbeddedStage, SimulatedStage
from tests.kafka.volumes import DELETED_AT_ONCE, MIB, empty, fill, mounted
from tests.simulated_cluster import ClientErrors, LogDir, SimulatedBroker, SimulatedClient, SimulatedCluster
from tests.topics import set_settings

VOLUME = 60 * MIB
SMALL_BYTES = 500_000


class SimulatedDisks(SimulatedStage):
    """Broker 2 with two small log dirs."""

    def __init__(self) -> None:
        brokers = [SimulatedBroker(row, f"rack-{row}", [LogDir(10**12)], 10**8, 10**8) for row in (1, 2, 3)]
        brokers[1].log_dirs = [LogDir(VOLUME), LogDir(VOLUME)]
        self.cluster = SimulatedCluster("simulated", brokers)
        self.release = self.cluster.contents.release
        errors = ClientErrors(
            ClusterRequestFailed,
            ClusterUnreachable,
            ReassignmentsRefused,
            log_dir_moves_refused=LogDirMovesRefused,
        )
        self.client = SimulatedClient(self.cluster, errors=errors)

    def fill(self, index: int, *, usable_bytes: int) -> None:
        shown = self.client.log_dirs([2])[2][index]
        assert shown.usable_bytes is not None
        self.cluster.contents.brokers[2].log_dirs[index].other_bytes += shown.usable_bytes - usable_bytes

    def repair(self, index: int) -> None:
        log_dir = self.cluster.contents.brokers[2].log_dirs[index]
        log_dir.other_bytes = 0
        self.cluster.repair_log_dir(2, index)

    def cordon(self, *indexes: int) -> None:
        for index in indexes:
            self.cluster.contents.brokers[2].log_dirs[index].cordoned = True

    def write(self, topic: str) -> None:
        self.cluster.contents.topics[topic].partitions[0].bytes_in_per_sec = SMALL_BYTES


class EmbeddedDisks(EmbeddedStage):
    """Three brokers that one file shares, as tests may break their disks; each volume is a log dir of broker 2."""

    def __init__(self, brokers: EmbeddedCluster, admin: KafkaAdminClient, volumes: list[Path]) -> None:
        super().__init__(brokers, admin)
        self._volumes = volumes

    def fill(self, index: int, *, usable_bytes: int) -> None:
        fill(self._volumes[index], usable_bytes=usable_bytes)

    def repair(self, index: int) -> None:
        empty(self._volumes[index])
        self._brokers.stop_broker(2)
        self._brokers.start_broker(2)

    def cordon(self, *indexes: int) -> None:
        paths = ",".join(str(self._volumes[index] / "data") for index in indexes)
        settings = {"cordoned.log.dirs": ("SET", paths)}
        set_settings(self._admin, ConfigResource(ConfigResourceType.BROKER, "2", settings))

    def write(self, topic: str) -> None:
        """Some records; no answer is waited for: one of the replicas may not take them."""
        producer = KafkaProducer(bootstrap_servers=self._brokers.brokers[0].address, acks=1)
        for _ in range(SMALL_BYTES // RECORD_BYTES):
            producer.send(topic, b"x" * RECORD_BYTES, partition=0)
        producer.flush()
        producer.close()

    def tidy(self) -> None:
        """Besides: log dirs are online again, without cordons, and hold nothing."""
        for volume in self._volumes:
            empty(volume)
        if any(row.is_offline for row in self.client.log_dirs([2]).get(2, ())):
            self._brokers.stop_broker(2)
        super().tidy()
        uncordoned = {"cordoned.log.dirs": ("DELETE", None)}
        set_settings(self._admin, ConfigResource(ConfigResourceType.BROKER, "2", uncordoned))
        self.until(
            "rates within brokers are removed", lambda: self.client.clear_log_dir_rates(BROKERS, untagged=True) == []
        )
        self.until("no such rate is left", lambda: self.client.log_dir_rates() == {})
        self.until("log dirs are empty", lambda: all(map(_is_empty, shown(self))), lambda: str(shown(self)))


def _is_empty(row: LogDirDescription) -> bool:
    is_free = (row.usable_bytes or 0) > VOLUME - SMALL_BYTES
    return is_free and not (row.is_cordoned or row.replica_bytes or row.future_replicas)


Disks = SimulatedDisks | EmbeddedDisks


@contextmanager
def embedded_disks(folder: Path) -> Iterator[EmbeddedDisks]:
    """Brokers and volumes of their own; a log that has left is deleted at once, not a minute later."""
    volumes = [folder / "volume-0", folder / "volume-1"]
    log_dirs = {2: tuple(volume / "data" for volume in volumes)}
    with (
        mounted(*volumes, size_bytes=VOLUME),
        EmbeddedCluster(folder / "three", log_dirs=log_dirs, broker_settings=DELETED_AT_ONCE) as brokers,
    ):
        admin = admin_client(KafkaSettings(bootstrap_servers=brokers.bootstrap_servers))
        yield EmbeddedDisks(brokers, admin, volumes)
        admin.close()


def shown(disks: Disks) -> list[LogDirDescription]:
    """The log dirs of broker 2, in the order of their paths."""
    return sorted(disks.client.log_dirs([2])[2], key=lambda row: row.path)


def index_of(disks: Disks, key: PartitionKey) -> int:
    """The log dir of broker 2 that holds a partition."""
    (index,) = (index for index, row in enumerate(shown(disks)) if key in row.replica_bytes)
    return index
