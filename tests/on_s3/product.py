"""Roles as processes, each with settings of its own; all of them on S3, on three embedded brokers with a skew."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.prepare import bounded_log_configs, create_topics
from streaming.demo.scenario import FoundingScenario
from streaming.demo.traffic import TrafficOrder
from streaming.demo.traffic_process import TrafficProcess
from streaming.runtime import processes
from streaming.settings import Settings
from streaming.tables.object_stores import use_object_store
from tests.pipeline.running import kill
from tests.s3 import BUCKET, CREDENTIALS

ROLES = {
    "collect": "collect",
    "pipeline": "pipeline",
    "control": "control",
    "stand-by": "control",
    "serve": "serve",
}
"""Process: the role that it plays."""
END_GRACE_S = 60.0
OWN_IDS = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(slots=True)
class Roles:
    """The roles of one run; each has a settings file of its own, as each may reach the store by a proxy of its own."""

    home: Path
    settings: Settings
    endpoints: Mapping[str, str | None]
    """URL of the store, by process; None where tables lie in a folder."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    """Processes that get a namespace of process ids each, as if on a machine of their own. Needs the right to."""
    log_from: dict[str, int] = field(default_factory=dict)
    """Where the log of the running process begins."""

    def start(self, name: str) -> None:
        """Start one process; its log goes on where the one before it ended."""
        storage = self.settings.storage.model_copy(update={"s3_endpoint": self.endpoints[name]})
        serve = self.settings.serve.model_copy(update={"port": processes.free_port()})
        own = self.settings.model_copy(update={"storage": storage, "serve": serve})
        config = self.home / f"{name}.yaml"
        config.write_text(own.model_dump_json(), encoding="utf-8")  # JSON is YAML
        command = [*(OWN_IDS if name in self.apart else ()), sys.executable, "-m", "streaming", ROLES[name]]
        command += ["--config", str(config)]
        self.log_from[name] = self.log(name).stat().st_size if self.log(name).exists() else 0
        self.running[name] = processes.start(command, log=self.log(name))

    def log(self, name: str) -> Path:
        """Where a process logs."""
        return self.home / "logs" / f"{name}.log"

    def kill(self, name: str) -> None:
        """kill -9 of a process and its children."""
        kill(self.running[name])

    def end(self, name: str) -> int:
        """SIGTERM; the exit code."""
        process = self.running.pop(name)
        role = psutil.Process(process.pid).children()[0] if name in self.apart else process
        role.terminate()
        return process.wait(timeout=END_GRACE_S)

    def ended(self) -> dict[str, int]:
        """Exit codes of processes that have ended by themselves."""
        codes = {name: process.poll() for name, process in self.running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def end_all(self) -> None:
        """SIGTERM to all that runs, SIGKILL to what stays."""
        for name in self.apart:
            if name in self.running:
                self.kill(name)
        alive = [psutil.Process(row.pid) for row in self.running.values() if row.poll() is None]
        processes.end(alive, grace_s=END_GRACE_S)

    def log_since_start(self, name: str) -> str:
        """What the running process has logged."""
        with self.log(name).open() as file:
            file.seek(self.log_from[name])
            return file.read()

    def holds(self, name: str, lease: Mapping[str, Any]) -> bool:
        """Whether a process of `apart` wrote this row of the lease: by its namespace, as all have one process id."""
        process = psutil.Process(self.running[name].pid)
        spaces = {os.readlink(f"/proc/{row.pid}/ns/pid") for row in process.children()}
        return any(space in (lease["owner_namespace"] or "") for space in spaces)

    def rss_mib(self, name: str) -> float:
        """Memory of a process and its children."""
        process = psutil.Process(self.running[name].pid)
        return sum(row.memory_info().rss for row in (process, *process.children(recursive=True))) / 2**20

    def cpu_s(self, name: str) -> float:
        """CPU time of a process and its children so far."""
        process = psutil.Process(self.running[name].pid)
        times = [row.cpu_times() for row in (process, *process.children(recursive=True))]
        return sum(row.user + row.system for row in times)


@dataclass(slots=True, kw_only=True)
class Product(Roles):
    """All roles, the brokers and the traffic of users."""

    scenario: FoundingScenario
    traffic: TrafficProcess
    cluster: EmbeddedCluster


@contextmanager
def product_on_s3(
    home: Path, store_url: str, endpoints: Mapping[str, str | None], rate: float, sections: Mapping[str, Any]
) -> Iterator[Product]:
    """Brokers, topics and traffic of `rate` records/s; the caller starts the roles. All is ended at the end.

    This process reaches the store itself, without the roles' proxies.
    """
    os.environ.update(CREDENTIALS)
    scenario = FoundingScenario("orders", "returns", records_per_sec=rate)
    with EmbeddedCluster(home / "kafka") as cluster:
        settings = settings_on_s3(cluster, store_url, sections)
        use_object_store(settings.storage)
        brokers = tuple(row.broker_id for row in cluster.brokers)
        create_topics(settings.kafka, scenario, brokers, bounded_log_configs(0))
        order = TrafficOrder(
            ",".join(cluster.bootstrap_servers), *scenario.topics, scenario.group, rate, str(home / "traffic.json")
        )
        traffic = TrafficProcess(order, home / "logs" / "traffic.log")
        product = Product(home, settings, endpoints, scenario=scenario, traffic=traffic, cluster=cluster)
        traffic.start()
        try:
            yield product
        finally:
            traffic.end()
            product.end_all()
            use_object_store(Settings().storage)


def settings_on_s3(cluster: EmbeddedCluster, store_url: str, sections: Mapping[str, Any]) -> Settings:
    """Settings with tables and checkpoints in the bucket; `sections` are what a run wants otherwise."""
    base: dict[str, Any] = {
        "kafka": {"cluster_name": "on-s3", "bootstrap_servers": cluster.bootstrap_servers},
        "storage": {
            "tables": f"s3://{BUCKET}/run/tables",
            "checkpoints": f"s3://{BUCKET}/run/checkpoints",
            "s3_endpoint": store_url,
        },
        "collect": {"jmx_endpoints": cluster.jmx_endpoints},
        "pipeline": {"driver_memory": "1g"},
        # All brokers share the disk of this machine, which may be full to any degree with other things.
        "planner": {"disk_reserve": 0.0},
        "control": {"mode": "apply"},
    }
    merged = {name: {**base.get(name, {}), **sections.get(name, {})} for name in {*base, *sections}}
    return Settings.model_validate(merged)
