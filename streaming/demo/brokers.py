"""Embedded Kafka: KRaft brokers as local processes on free loopback ports, for the demo and the tests.

Each broker is also a controller, has a rack, a JMX agent with the lean rules of `deploy/jmx`, and its log in a file.
This module knows how brokers are started and ended, not what is done with them.
"""

import base64
import shutil
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from kafka.errors import KafkaError

from streaming.cluster.kafka_python_patches import PatchedAdminClient
from streaming.demo.class_archive import archive_path
from streaming.errors import RebalancerError
from streaming.runtime import class_archive, jars, processes

HOST = "127.0.0.1"
JMX_RULES = Path(__file__).with_name("kafka-broker.yaml")
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
META_FILE = "meta.properties"
"""File in every log dir and metadata log dir with the ids of the cluster, the broker and the folder."""
START_TIMEOUT_S = 300.0
"""Generous: on a busy machine a broker takes a minute and more. One that has ended is noticed at once."""
JVM_OPTIONS = (
    "-Xms128m", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
    "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true",
)  # fmt: skip


class BrokerStartFailed(RebalancerError):
    """An embedded broker ended or didn't answer in time; the message names its log."""


@dataclass(frozen=True, slots=True)
class EmbeddedBroker:
    """One broker: ids, ports and folder. The first broker has id 1, as in the founding example."""

    broker_id: int
    rack: str
    port: int
    controller_port: int
    jmx_port: int
    folder: Path
    listener_ports: Mapping[str, int] = field(default_factory=dict)
    """Ports of listeners besides PLAINTEXT, by name."""

    @property
    def address(self) -> str:
        """The broker's host:port for clients."""
        return f"{HOST}:{self.port}"

    @property
    def jmx_url(self) -> str:
        """Address of the JMX agent's metrics."""
        return f"http://{HOST}:{self.jmx_port}/metrics"


@dataclass(slots=True)
class EmbeddedCluster:
    """A cluster below `home`; use as a context manager, or `start()` and `stop()`.

    `home` is emptied at the start of a new cluster; brokers that a killed run left there are ended first.
    """

    home: Path
    broker_count: int = 3
    racks: tuple[str, ...] = ("rack-1", "rack-2", "rack-3")
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    orphans_allowed: bool = False
    listeners: tuple[str, ...] = ()
    """Listeners besides PLAINTEXT, such as SASL_SSL; `broker_settings` secures them."""
    log_dirs: Mapping[int, tuple[Path, ...]] = field(default_factory=dict)
    """Log dirs by broker id, where these are not one folder below `home`."""
    java_options: tuple[str, ...] = ()
    """Java options of every broker; with any the brokers have no JMX agent and start without archived classes."""
    ports: Mapping[int, int] = field(default_factory=dict)
    """Ports of clients by broker id, where these are not any that are free."""
    jars_of: str = "broker"
    """The configuration of `conf/ivy.xml` whose release of Kafka the brokers run."""
    brokers: tuple[EmbeddedBroker, ...] = ()
    _running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _cluster_id: str = ""

    @property
    def bootstrap_servers(self) -> list[str]:
        """host:port of every broker."""
        return [broker.address for broker in self.brokers]

    def addresses(self, listener: str) -> list[str]:
        """host:port of every broker at one of `listeners`."""
        return [f"{HOST}:{broker.listener_ports[listener]}" for broker in self.brokers]

    @property
    def jmx_endpoints(self) -> dict[int, str]:
        """broker id: URL of its metrics, as the settings take them."""
        return {broker.broker_id: broker.jmx_url for broker in self.brokers}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Format and start every broker and wait until all are registered; on failure nothing is left running."""
        self.home.mkdir(parents=True, exist_ok=True)
        processes.end_noted(self._notes)
        self._cluster_id = _random_id()
        per_broker = 3 + len(self.listeners)
        ports = processes.free_ports(per_broker * self.broker_count)
        self.brokers = tuple(
            self._plan_broker(index, ports[index :: self.broker_count]) for index in range(self.broker_count)
        )
        try:
            self._format_all()
            for broker in self.brokers:
                self._launch(broker)
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill every broker that runs, by its process id. Safe to call twice."""
        # In order it takes six seconds, as the last brokers wait for a controller. Nobody reads this data again.
        for broker_id in list(self._running):
            self.kill_broker(broker_id)
        self._notes.unlink(missing_ok=True)

    def stop_broker(self, broker_id: int, *, grace_s: float = processes.TERMINATE_GRACE_S) -> None:
        """End one broker in order; it is killed if it still runs after `grace_s`."""
        process = self._running.pop(broker_id)
        with suppress(psutil.NoSuchProcess):
            processes.end([psutil.Process(process.pid)], grace_s)
        process.wait()

    def kill_broker(self, broker_id: int) -> None:
        """kill -9 of one broker."""
        process = self._running.pop(broker_id)
        process.kill()
        process.wait()

    def start_broker(self, *broker_ids: int) -> None:
        """Start brokers again on their old data and wait until all that run know each other."""
        for broker in self.brokers:
            if broker.broker_id in broker_ids:
                self._launch(broker)
        self.wait_until_ready()

    def process_ids(self) -> dict[int, int]:
        """Process id of each running broker, by broker id."""
        return {broker_id: process.pid for broker_id, process in self._running.items()}

    def wait_until_ready(self) -> None:
        """Wait until every running broker knows all of them as alive; raises BrokerStartFailed."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for broker in self.brokers:
            process = self._running.get(broker.broker_id)
            if process and not processes.wait_for_port(HOST, broker.port, process, deadline):
                raise BrokerStartFailed(f"broker {broker.broker_id} didn't start: see {broker.folder / 'broker.log'}")
        live = [broker for broker in self.brokers if broker.broker_id in self._running]
        while time.monotonic() < deadline:
            for broker in live:
                if self._running[broker.broker_id].poll() is not None:
                    raise BrokerStartFailed(f"broker {broker.broker_id} has ended: see {broker.folder / 'broker.log'}")
            views = [view for view in map(_known_to, live) if view is not None]  # one that is frozen answers nothing
            if views and all(view >= self._running.keys() for view in views):
                return
            time.sleep(0.2)
        raise BrokerStartFailed(
            f"brokers {sorted(self._running)} didn't all know each other within {START_TIMEOUT_S:.0f} s"
        )

    @property
    def _notes(self) -> Path:
        return self.home / "processes.json"

    def _plan_broker(self, index: int, ports: Sequence[int]) -> EmbeddedBroker:
        broker_id = index + 1
        port, controller_port, jmx_port, *of_listeners = ports
        return EmbeddedBroker(
            broker_id=broker_id,
            rack=self.racks[index % len(self.racks)],
            port=self.ports.get(broker_id, port),
            controller_port=controller_port,
            jmx_port=jmx_port,
            folder=self.home / f"broker-{broker_id}",
            listener_ports=dict(zip(self.listeners, of_listeners, strict=True)),
        )

    def _format_all(self) -> None:
        """Write settings; Kafka's tool formats the folders of the first broker, the others get copies of its files."""
        for broker in self.brokers:
            _empty(broker.folder)
            settings = "".join(f"{key}={value}\n" for key, value in self._settings_of(broker).items())
            (broker.folder / "server.properties").write_text(settings)
        first, *others = self.brokers
        self._format(first)
        for broker in others:  # a JVM for each would take a second of CPU
            _copy_format(_metadata_folder(first), _metadata_folder(broker), broker.broker_id)
            for folder in self._log_dirs_of(broker):
                _copy_format(self._log_dirs_of(first)[0], folder, broker.broker_id)

    def _format(self, broker: EmbeddedBroker) -> None:
        log = broker.folder / "format.log"
        command = [
            jars.java_command(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            *class_archive.options(archive_path(self.jars_of)), "-cp", jars.class_path(self.jars_of),
            f"-Dlog4j2.configurationFile={LOG_SETTINGS}", f"-Dbroker.log={log}", "kafka.tools.StorageTool", "format",
            f"--cluster-id={self._cluster_id}", "--config", str(broker.folder / "server.properties"),
        ]  # fmt: skip
        if processes.start(command, log=log).wait(timeout=START_TIMEOUT_S) != 0:
            raise BrokerStartFailed(f"formatting failed: see {log}")

    def _log_dirs_of(self, broker: EmbeddedBroker) -> tuple[Path, ...]:
        return self.log_dirs.get(broker.broker_id, (broker.folder / "data",))

    def _settings_of(self, broker: EmbeddedBroker) -> dict[str, str]:
        copies = str(min(3, self.broker_count))
        voters = ",".join(f"{other.broker_id}@{HOST}:{other.controller_port}" for other in self.brokers)
        ports = {"PLAINTEXT": broker.port, **broker.listener_ports}
        advertised = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
        protocols = ",".join(f"{name}:{name}" for name in ports)
        return {
            "process.roles": "broker,controller",
            "node.id": str(broker.broker_id),
            "broker.rack": broker.rack,
            "listeners": f"{advertised},CONTROLLER://{HOST}:{broker.controller_port}",
            "advertised.listeners": advertised,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocols}",
            "controller.quorum.voters": voters,
            "log.dirs": ",".join(map(str, self._log_dirs_of(broker))),
            # Apart from the replicas: a log dir that fails must not take the controller along.
            "metadata.log.dir": str(_metadata_folder(broker)),
            "auto.create.topics.enable": "false",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "4194304",
            "broker.session.timeout.ms": "6000",
            "controlled.shutdown.enable": "true",
            **self.broker_settings,
        }

    def _launch(self, broker: EmbeddedBroker) -> None:
        command = [
            jars.java_command(), *JVM_OPTIONS, *self._java_options(broker), "-cp", jars.class_path(self.jars_of),
            f"-Dlog4j2.configurationFile={LOG_SETTINGS}", f"-Dbroker.log={broker.folder / 'broker.log'}",
            f"-Djava.io.tmpdir={broker.folder}",  # what it unpacks stays behind when it is killed
            "kafka.Kafka", str(broker.folder / "server.properties"),
        ]  # fmt: skip
        self._running[broker.broker_id] = processes.start(
            command, log=broker.folder / "output.log", orphan_allowed=self.orphans_allowed
        )
        pids = {f"broker-{broker_id}": process.pid for broker_id, process in self._running.items()}
        processes.note(pids, self._notes)

    def _java_options(self, broker: EmbeddedBroker) -> tuple[str, ...]:
        if self.java_options:
            return self.java_options
        agent = f"-javaagent:{jars.jar_paths('agent')[0]}={HOST}:{broker.jmx_port}:{JMX_RULES}"
        return (agent, *class_archive.options(archive_path(self.jars_of)))


def _known_to(broker: EmbeddedBroker) -> set[int] | None:
    """Brokers in this one's metadata, without those that are fenced; None if it doesn't answer."""
    with suppress(KafkaError):
        admin = PatchedAdminClient(
            bootstrap_servers=[broker.address], request_timeout_ms=5_000, bootstrap_timeout_ms=5_000
        )
        try:
            admin.connect_to_any()
            return set(admin.broker_ids())
        finally:
            admin.close()
    return None


def _metadata_folder(broker: EmbeddedBroker) -> Path:
    return broker.folder / "metadata"


def _copy_format(formatted: Path, folder: Path, broker_id: int) -> None:
    """Write what Kafka's tool writes for a broker of the cluster: each folder has an id of its own (KIP-858).

    Other files differ by release: the metadata of the first start lie beside the ids before Kafka 4.4, and in the log
    of metadata from then on.
    """
    shutil.copytree(formatted, folder, dirs_exist_ok=True)
    own = {"node.id": str(broker_id), "directory.id": _random_id()}
    rows = (line.split("=", 1) for line in (formatted / META_FILE).read_text().splitlines() if "=" in line)
    properties = {**dict(rows), **own}
    (folder / META_FILE).write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def _random_id() -> str:
    """An id in Kafka's form: 16 random bytes in base64 without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _empty(folder: Path) -> None:
    """Make `folder` new: a broker's data from an earlier run would carry another cluster's id."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
