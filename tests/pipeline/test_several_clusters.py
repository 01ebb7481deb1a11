"""The pipelines of two clusters in one Spark: windows and lateness of each, while the other one is ahead or fails."""

import json
from pathlib import Path

import psutil
import pytest
import yaml

from streaming import tables
from streaming.cluster.clients import admin_client
from streaming.settings import Settings
from tests.pipeline.running import kill, start_process
from tests.pipeline.test_windows import BASE_MS, Record, encode, load_record, make_topics, own, own_settings, send
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

__all__ = ["own"]  # the fixture

AHEAD_MS = 3_600_000
DEADLINE_S = 600.0


def send_to(settings: Settings, *records: Record) -> None:
    send(settings, settings.topics.byte_rate, encode([*records]))


def named(name: str, offset_ms: int) -> Record:
    return load_record(1, 0, offset_ms, kafka_cluster=name)


def windows(settings: Settings) -> dict[int, tuple[str, int, bool]]:
    """Cluster, samples and whether it is final, by the window's start."""
    return {
        tables.to_ms(row["window_start"]) - BASE_MS: (row["kafka_cluster"], row["sample_count"], row["is_final"])
        for row in tables.read(settings.storage.tables, "partition_load")
    }


def settings_file(folder: Path, clusters: dict[str, Settings]) -> Path:
    """The clusters as a user writes them; in truth both are the same brokers, by two names of this machine."""
    hosts = iter(("127.0.0.1", "localhost"))
    sections = {}
    for name, settings in clusters.items():
        host = next(hosts)
        servers = [server.replace("127.0.0.1", host) for server in settings.kafka.bootstrap_servers]
        sections[name] = {
            "kafka": {"bootstrap_servers": servers},
            "topics": settings.model_dump(include={"topics"})["topics"],
            "storage": {"tables": settings.storage.tables, "checkpoints": settings.storage.checkpoints},
        }
    pipeline = json.loads(next(iter(clusters.values())).pipeline.model_dump_json())
    file = folder / "clusters.yaml"
    file.write_text(yaml.safe_dump({"pipeline": pipeline, "clusters": sections}))
    return file


def test_each_cluster_has_its_own_lateness_and_its_own_end(own: Settings, tmp_path: Path) -> None:
    east, west = (own_settings(own, tmp_path / name) for name in ("east", "west"))
    for each in (east, west):
        make_topics(each)
    process = start_process(["--config", str(settings_file(tmp_path, {"east": east, "west": west}))], tmp_path)
    try:
        send_to(east, named("east", AHEAD_MS), named("east", AHEAD_MS + 100_000))
        until("east has a closed window", lambda: windows(east).get(AHEAD_MS) == ("east", 1, True), DEADLINE_S)
        send_to(west, named("west", 0), named("west", 100_000))
        until("west, an hour behind, has lost nothing", lambda: windows(west).get(0) == ("west", 1, True), DEADLINE_S)
        admin = admin_client(east.kafka)
        admin.delete_topics([east.topics.byte_rate])
        admin.close()

        def log() -> str:
            return (tmp_path / "pipeline.log").read_text()

        until("east fails", lambda: "cluster_is_tried_again" in log(), DEADLINE_S)
        send_to(west, named("west", 200_000))
        until("west goes on", lambda: windows(west).get(100_000) == ("west", 1, True), DEADLINE_S)
        failed = [line for line in log().splitlines() if "cluster_is_tried_again" in line]
        assert all("kafka_cluster=east" in line for line in failed)
        assert process.poll() is None
        psutil.Process(process.pid).terminate()
        until("it ends in order", lambda: process.poll() is not None, DEADLINE_S)
        assert process.returncode == 0, log()
    finally:
        kill(process)
