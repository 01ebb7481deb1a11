"""Three stages for one suite: a simulated cluster, the same behind Kafka's protocol, and embedded brokers; all behind
the ports and a few hands beside them.

The hands do what is no business of control: they make topics, write records, kill brokers, set throttles of others.
"""

import os
import signal
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidMetadataError,
    KafkaError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
)

from assignor_core.live import PartitionKey
from assignor_core.throttles import LOG_DIR_RATE
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.cluster.ports import ControlledCluster
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import (
    AnotherCluster,
    ClusterRequestFailed,
    ClusterUnreachable,
    ElectionsRefused,
    ReassignmentsRefused,
)
from streaming.settings import KafkaSettings
from tests import waiting
from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess
from tests.simulated_cluster import (
    NEWEST_RELEASE,
    ClientErrors,
    Fate,
    PlannedFault,
    Release,
    RequestKind,
    SimulatedClient,
    SimulatedCluster,
)
from tests.topics import set_settings, wait_until_known, wait_until_set

OLDEST_RELEASE: Release = (3, 9)
BROKERS = (1, 2, 3)
RECORD_BYTES = 50_000
SIMULATED_STEP_MS = 250
SIMULATED_LIMIT_MS = 300_000
SHORT_TIMEOUT_MS = 2_000

Assignments = Mapping[int, tuple[int, ...]]


class Stage(Protocol):
    """A cluster of brokers 1, 2 and 3, and the client under test."""

    client: ControlledCluster
    release: Release
    """Of Kafka: where releases differ, so do the right answers."""

    def make_topic(self, assignments: Assignments, *, size_bytes: int = 0, name: str | None = None) -> str:
        """A topic, with a new name unless one is given; the bytes are in partition 0."""

    def grow_topic(self, topic: str, replicas: tuple[int, ...]) -> None:
        """Add one partition."""

    def delete_topic(self, topic: str) -> None:
        """Remove a topic."""

    def set_list(self, topic: str, setting: str, text: str) -> None:
        """Set a list of throttled replicas, as another tool does."""

    def set_rate(self, broker_id: int, setting: str, bytes_per_sec: int) -> None:
        """Set one rate of a broker, as another tool does, and wait until the broker shows it."""

    def set_min_insync_replicas(self, topic: str, count: int) -> None:
        """So many replicas must be in sync for a write with acks=all."""

    def takes_writes(self, topic: str) -> bool:
        """Whether partition 0 acknowledges a record that is written with acks=all just now."""

    def let_metadata_lag(self) -> None:
        """From now on a look may show what has been a moment ago."""

    def carried_out_late(self, targets: Mapping[PartitionKey, tuple[int, ...]]) -> None:
        """Ask for reassignments while no broker goes on: the client gives up, then the brokers go on."""

    def freeze_broker(self, broker_id: int) -> None:
        """Stop its process."""

    def resume_broker(self, broker_id: int) -> None:
        """Let a frozen broker go on."""

    def kill_broker(self, broker_id: int) -> None:
        """kill -9."""

    def restart_broker(self, broker_id: int) -> None:
        """Start a dead broker again."""

    def remove_markers(self) -> None:
        """Remove every marker, as a person does with Kafka's own tool."""

    def until(self, what: str, condition: Callable[[], bool], last_seen: Callable[[], str] = str) -> None:
        """Let time pass until `condition` holds; a client that gets no answer asks again. Fails with `what`."""


def simulated_cluster(release: Release = NEWEST_RELEASE) -> SimulatedCluster:
    """Three brokers without topics."""
    return SimulatedCluster.of({broker: f"rack-{broker}" for broker in BROKERS}, release=release)


class SimulatedStage:
    """No process at all; time passes when somebody waits."""

    def __init__(self, cluster: SimulatedCluster | None = None) -> None:
        self.cluster = cluster or simulated_cluster()
        self.release = self.cluster.placement.release
        errors = ClientErrors(
            ClusterRequestFailed, ClusterUnreachable, ReassignmentsRefused, ElectionsRefused, AnotherCluster
        )
        client = SimulatedClient(self.cluster, errors=errors)
        self.client: ControlledCluster = client
        self._faults = client.faults

    def make_topic(self, assignments: Assignments, *, size_bytes: int = 0, name: str | None = None) -> str:
        topic = name or f"conformance-{len(self.cluster.contents.topics)}"
        self.cluster.create_topic(topic, assignments)
        partition = self.cluster.contents.topics[topic].partitions[0]
        partition.end_bytes = partition.acknowledged_bytes = size_bytes
        for copy in partition.copies.values():
            copy.end_bytes = size_bytes
        return topic

    def grow_topic(self, topic: str, replicas: tuple[int, ...]) -> None:
        self.cluster.grow_topic(topic, {len(self.cluster.contents.topics[topic].partitions): replicas})

    def delete_topic(self, topic: str) -> None:
        self.cluster.delete_topic(topic)

    def set_list(self, topic: str, setting: str, text: str) -> None:
        self.cluster.set_throttled_replicas(topic, setting, text)

    def set_rate(self, broker_id: int, setting: str, bytes_per_sec: int) -> None:
        if setting == LOG_DIR_RATE:
            self.cluster.set_log_dir_rate(broker_id, bytes_per_sec)
        else:
            self.cluster.set_throttle_rate(broker_id, setting, bytes_per_sec)

    def set_min_insync_replicas(self, topic: str, count: int) -> None:
        self.cluster.contents.topics[topic].min_insync_replicas = count

    def takes_writes(self, topic: str) -> bool:
        partition = self.cluster.contents.topics[topic].partitions[0]
        end_bytes, partition.bytes_in_per_sec = partition.end_bytes, RECORD_BYTES
        self.cluster.advance(1_000)
        partition = self.cluster.contents.topics[topic].partitions[0]  # bytes move when somebody looks
        partition.bytes_in_per_sec = 0
        return partition.end_bytes > end_bytes

    def let_metadata_lag(self) -> None:
        self._faults.metadata_lag_ms = 2 * SIMULATED_STEP_MS

    def carried_out_late(self, targets: Mapping[PartitionKey, tuple[int, ...]]) -> None:
        self._faults.planned.append(PlannedFault(Fate.LATE, RequestKind.REASSIGN, 5_000))
        with pytest.raises(ClusterUnreachable):
            self.client.reassign(targets)

    def freeze_broker(self, broker_id: int) -> None:
        self.cluster.freeze_broker(broker_id)

    def resume_broker(self, broker_id: int) -> None:
        self.cluster.resume_broker(broker_id)

    def kill_broker(self, broker_id: int) -> None:
        self.cluster.kill_broker(broker_id)

    def restart_broker(self, broker_id: int) -> None:
        self.cluster.restart_broker(broker_id)

    def remove_markers(self) -> None:
        self.cluster.contents.markers.clear()

    def until(self, what: str, condition: Callable[[], bool], last_seen: Callable[[], str] = str) -> None:
        end_ms = self.cluster.now_ms + SIMULATED_LIMIT_MS
        while not _holds(condition):
            assert self.cluster.now_ms < end_ms, f"{what}: not within {SIMULATED_LIMIT_MS} ms {last_seen()}"
            self.cluster.advance(SIMULATED_STEP_MS)


class WireStage:
    """The simulated cluster as a fleet in a process of its own, shared by all tests; each has a cluster of its own."""

    def __init__(self, fleet: FleetProcess, admin: KafkaAdminClient) -> None:
        self._fleet = fleet
        self.client: ControlledCluster = Cluster(admin)
        self.release = NEWEST_RELEASE
        fleet.run(_begin)

    def make_topic(self, assignments: Assignments, *, size_bytes: int = 0, name: str | None = None) -> str:
        return self._fleet.run(_make_topic, assignments, size_bytes, name)

    def grow_topic(self, topic: str, replicas: tuple[int, ...]) -> None:
        self._fleet.run(_by_hand, SimulatedStage.grow_topic, topic, replicas)

    def delete_topic(self, topic: str) -> None:
        self._fleet.run(_by_hand, SimulatedStage.delete_topic, topic)

    def set_list(self, topic: str, setting: str, text: str) -> None:
        self._fleet.run(_by_hand, SimulatedStage.set_list, topic, setting, text)

    def set_rate(self, broker_id: int, setting: str, bytes_per_sec: int) -> None:
        self._fleet.run(_by_hand, SimulatedStage.set_rate, broker_id, setting, bytes_per_sec)

    def set_min_insync_replicas(self, topic: str, count: int) -> None:
        self._fleet.run(_by_hand, SimulatedStage.set_min_insync_replicas, topic, count)

    def takes_writes(self, topic: str) -> bool:
        return self._fleet.run(_takes_writes, topic)

    def let_metadata_lag(self) -> None:
        """Brokers of a fleet hear of each change at once."""

    def carried_out_late(self, targets: Mapping[PartitionKey, tuple[int, ...]]) -> None:
        pytest.skip(f"a fleet carries out no request late: {targets}")

    def freeze_broker(self, broker_id: int) -> None:
        pytest.skip(
            f"whoever asks broker {broker_id} of a fleet while it is frozen waits in real time: see tests/fleet"
        )

    def resume_broker(self, broker_id: int) -> None:
        self._fleet.run(_by_hand, SimulatedStage.resume_broker, broker_id)

    def kill_broker(self, broker_id: int) -> None:
        self._fleet.run(_by_hand, SimulatedStage.kill_broker, broker_id)

    def restart_broker(self, broker_id: int) -> None:
        self._fleet.run(_by_hand, SimulatedStage.restart_broker, broker_id)

    def remove_markers(self) -> None:
        self._fleet.run(_remove_quotas)

    def until(self, what: str, condition: Callable[[], bool], last_seen: Callable[[], str] = str) -> None:
        def passed() -> bool:
            if _holds(condition):
                return True
            self._fleet.run(Fleet.advance, SIMULATED_STEP_MS)
            return False

        # The client waits in real time before it connects to a broker again.
        waiting.until(what, passed, pause_s=0.005, state=last_seen)


def wire_fleet() -> Fleet:
    """A fleet of three brokers without topics."""
    return Fleet(simulated_cluster())


def _begin(fleet: Fleet) -> None:
    fleet.replace_cluster(simulated_cluster())


def _make_topic(fleet: Fleet, assignments: Assignments, size_bytes: int, name: str | None) -> str:
    return SimulatedStage(fleet.cluster).make_topic(assignments, size_bytes=size_bytes, name=name)


def _by_hand(fleet: Fleet, hand: Callable[..., None], *arguments: object) -> None:
    hand(SimulatedStage(fleet.cluster), *arguments)


def _takes_writes(fleet: Fleet, topic: str) -> bool:
    return SimulatedStage(fleet.cluster).takes_writes(topic)


def _remove_quotas(fleet: Fleet) -> None:
    fleet.quotas.clear()


class EmbeddedStage:
    """Three real brokers, shared by all tests: `tidy` brings them back to what they were."""

    def __init__(self, brokers: EmbeddedCluster, admin: KafkaAdminClient) -> None:
        self._brokers = brokers
        self._admin = admin
        self._topics: list[str] = []
        self.client: ControlledCluster = Cluster(admin)
        self.release = OLDEST_RELEASE if brokers.jars_of == "broker-oldest" else NEWEST_RELEASE

    def make_topic(self, assignments: Assignments, *, size_bytes: int = 0, name: str | None = None) -> str:
        topic = name or f"conformance-{uuid.uuid4().hex[:8]}"
        with suppress(TopicAlreadyExistsError):  # of its own name: an answer was lost, and the client has asked again
            self._admin.create_topics({topic: {"assignments": {key: list(row) for key, row in assignments.items()}}})
        wait_until_known(self._admin, [topic])
        self._topics.append(topic)
        if size_bytes:
            producer = KafkaProducer(bootstrap_servers=self._brokers.bootstrap_servers, acks="all")
            for _ in range(size_bytes // RECORD_BYTES):
                producer.send(topic, b"x" * RECORD_BYTES, partition=0)
            producer.flush()
            producer.close()
        self.until(f"{topic} is in metadata", lambda: (topic, max(assignments)) in self.client.describe().partitions)
        return topic

    def grow_topic(self, topic: str, replicas: tuple[int, ...]) -> None:
        count = sum(name == topic for name, _ in self.client.describe().partitions)
        self._admin.create_partitions({topic: {"count": count + 1, "assignments": [list(replicas)]}})

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])
        self._topics.remove(topic)

    def set_list(self, topic: str, setting: str, text: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {setting: ("SET", text)})
        set_settings(self._admin, resource)
        wait_until_set(self._admin, topic, setting, text)

    def set_rate(self, broker_id: int, setting: str, bytes_per_sec: int) -> None:
        values = {setting: ("SET", str(bytes_per_sec))}
        set_settings(self._admin, ConfigResource(ConfigResourceType.BROKER, str(broker_id), values))
        read = self.client.log_dir_rates if setting == LOG_DIR_RATE else self.client.throttle_rates
        self.until("the rate is shown", lambda: str(bytes_per_sec) in str(read([broker_id])))

    def set_min_insync_replicas(self, topic: str, count: int) -> None:
        self.set_list(topic, "min.insync.replicas", str(count))

    def takes_writes(self, topic: str) -> bool:
        producer = KafkaProducer(
            bootstrap_servers=self._brokers.bootstrap_servers, acks="all", retries=0, enable_idempotence=False
        )
        try:
            producer.send(topic, b"x", partition=0).get(timeout=waiting.DEADLINE_S)
        except (NotEnoughReplicasError, NotEnoughReplicasAfterAppendError, RequestTimedOutError):
            # The leader may take a record just before it hears that too few are in sync: these never become enough.
            return False
        except InvalidMetadataError as error:
            raise ClusterUnreachable(f"{topic}-0 has another leader than the producer was told") from error
        finally:
            producer.close()
        return True

    def let_metadata_lag(self) -> None:
        """Brokers hear of each change a moment after the controller, one after the other."""

    def carried_out_late(self, targets: Mapping[PartitionKey, tuple[int, ...]]) -> None:
        settings = KafkaSettings(bootstrap_servers=self._brokers.bootstrap_servers, request_timeout_ms=SHORT_TIMEOUT_MS)
        admin = admin_client(settings)
        client = Cluster(admin)
        client.describe()  # so that it knows the controller, and the next request is the one that counts
        try:
            for broker_id in BROKERS:
                self.freeze_broker(broker_id)
            with pytest.raises(ClusterUnreachable):
                client.reassign(targets)
        finally:
            for broker_id in BROKERS:
                self.resume_broker(broker_id)
            admin.close()

    def freeze_broker(self, broker_id: int) -> None:
        os.kill(self._brokers.process_ids()[broker_id], signal.SIGSTOP)

    def resume_broker(self, broker_id: int) -> None:
        os.kill(self._brokers.process_ids()[broker_id], signal.SIGCONT)

    def kill_broker(self, broker_id: int) -> None:
        self._brokers.kill_broker(broker_id)

    def restart_broker(self, broker_id: int) -> None:
        self._brokers.start_broker(broker_id)

    def remove_markers(self) -> None:
        names = self._admin.client_id_quotas()
        self._admin.alter_client_id_quotas({name: dict.fromkeys(names[name]) for name in names})

    def until(self, what: str, condition: Callable[[], bool], last_seen: Callable[[], str] = str) -> None:
        waiting.until(what, lambda: _holds(condition), state=last_seen)

    def tidy(self) -> None:
        """Dead brokers run again, topics and rates of the test are gone."""
        for process_id in self._brokers.process_ids().values():
            os.kill(process_id, signal.SIGCONT)
        for broker_id in set(BROKERS) - self._brokers.process_ids().keys():
            self._brokers.start_broker(broker_id)
        self.until("all brokers are back", lambda: self.client.describe().broker_racks.keys() == set(BROKERS))
        self.until("rates are removed", lambda: self.client.clear_throttle(BROKERS, {}, {}, untagged=True) == [])
        for topic in self._topics:
            with suppress(KafkaError):
                self._admin.delete_topics([topic])
        self.until("no rate is left", lambda: self.client.throttle_rates() == {})


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except ClusterUnreachable:
        return False
