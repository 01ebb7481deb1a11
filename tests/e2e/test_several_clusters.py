"""One deployment of two clusters: one of them is killed, and skew in the other one is planned all the same."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from kafka import KafkaProducer

from streaming import tables
from streaming.cluster.clients import admin_client
from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.prepare import SHORT_STORY
from streaming.runtime import processes
from streaming.settings import KafkaSettings
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka]

STORY_DEADLINE_S = 420.0
RECORD = b"x" * 2_000
SAMPLE_INTERVAL_MS = 1_000


def rows(home: Path, cluster: str, table: str) -> list[dict[str, Any]]:
    return tables.read(str(home / "tables" / "clusters" / cluster), table)


def write_settings(home: Path, clusters: dict[str, EmbeddedCluster], port: int) -> Path:
    settings: dict[str, Any] = {
        **SHORT_STORY,
        "storage": {"tables": str(home / "tables"), "checkpoints": str(home / "checkpoints")},
        "control": {**SHORT_STORY["control"], "mode": "propose"},
        "collect": {"sample_interval_ms": SAMPLE_INTERVAL_MS},
        "serve": {"port": port},
        "clusters": {
            name: {
                "kafka": {"bootstrap_servers": cluster.bootstrap_servers},
                "collect": {"jmx_endpoints": cluster.jmx_endpoints},
            }
            for name, cluster in clusters.items()
        },
    }
    file = home / "rebalancer.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


@contextmanager
def load_on_one_broker(cluster: EmbeddedCluster) -> Iterator[None]:
    """Traffic on partitions that all are on broker 1; broker 2 has none of it."""
    admin = admin_client(KafkaSettings(bootstrap_servers=cluster.bootstrap_servers))
    admin.create_topics({"orders": {"assignments": {number: [1] for number in range(6)}}})
    wait_until_known(admin, ["orders"])
    admin.close()
    ending = threading.Event()

    def produce() -> None:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        while not ending.wait(0.05):
            for partition in range(6):
                producer.send("orders", RECORD, partition=partition)
        producer.close()

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def roles_of(process: subprocess.Popen[bytes]) -> dict[tuple[str, str], int]:
    """Process ids by role and cluster."""
    found = {}
    for child in psutil.Process(process.pid).children():
        words = child.cmdline()
        found[words[3], words[-1] if "--cluster" in words else ""] = child.pid
    return found


def test_skew_in_one_cluster_is_planned_while_the_other_one_is_killed(tmp_path: Path) -> None:
    port = processes.free_port()
    with (
        EmbeddedCluster(tmp_path / "east", broker_count=2) as east,
        EmbeddedCluster(tmp_path / "west", broker_count=1) as west,
    ):
        settings = write_settings(tmp_path, {"east": east, "west": west}, port)
        command = [sys.executable, "-m", "streaming", "run", "--config", str(settings)]
        running = processes.start(command, log=tmp_path / "run.log")
        try:

            def alive_with(found: object) -> object:
                assert running.poll() is None, (tmp_path / "run.log").read_text()[-10_000:]
                return found

            for name in ("east", "west"):
                until(
                    f"{name} has a decision",
                    lambda name=name: alive_with(rows(tmp_path, name, "decision")),  # type: ignore[misc]
                    STORY_DEADLINE_S,
                )
            before = roles_of(running)
            west.kill_broker(1)
            with load_on_one_broker(east):
                until("east has a plan", lambda: alive_with(rows(tmp_path, "east", "plan")), STORY_DEADLINE_S)
            (plan, *_) = rows(tmp_path, "east", "plan")
            assert plan["kafka_cluster"] == "east"
            assert plan["movement_count"] > 0
            assert rows(tmp_path, "west", "plan") == []
            for name in ("east", "west"):
                for table in ("broker_load", "decision", "lease"):
                    assert {row["kafka_cluster"] for row in rows(tmp_path, name, table)} == {name}
            after = roles_of(running)
            own = {("collect", "east"), ("control", "east"), ("pipeline", ""), ("serve", "")}
            assert {role: after.get(role) for role in own} == {role: before[role] for role in own}
            assert before.keys() == own | {("collect", "west"), ("control", "west")}
            listed = httpx.get(f"http://127.0.0.1:{port}/api/v1/clusters", timeout=DEADLINE_S).json()["items"]
            assert sorted(row["kafka_cluster"] for row in listed) == ["east", "west"]
            page = httpx.get(f"http://127.0.0.1:{port}/clusters/east/api/v1/plans", timeout=DEADLINE_S).json()
            assert plan["plan_id"] in [row["plan_id"] for row in page["items"]]
        finally:
            running.terminate()
            running.wait(timeout=DEADLINE_S)
