"""What a demo needs before it starts: its folder, its settings, its topics."""

import json
import secrets
import shutil
from pathlib import Path
from typing import Any, Literal

import yaml

from streaming.cluster.clients import admin_client
from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.scenario import A_PER_BROKER, B_PER_BROKER, PARTITIONS_PER_TOPIC, FoundingScenario, placement
from streaming.errors import UsageProblem
from streaming.runtime import processes, users
from streaming.runtime.api_tokens import Role
from streaming.settings import KafkaSettings

KEPT_SEGMENT_BYTES = 4 << 20
KEPT_PARTITION_BYTES = 32 << 20
"""What 30 partitions keep while a demo is kept: an hour at the usual rate. Those of topic B stay tiny."""
RECORD_BYTES_MAX = 100
SAMPLE_INTERVAL_MS = 2_000
SHORT_STORY: dict[str, dict[str, Any]] = {
    "pipeline": {
        # A batch for each look: with twice as many the demo took an eighth more CPU time, and was over no earlier.
        "window_ms": 10_000, "watermark_ms": 3_000, "trigger_interval_ms": SAMPLE_INTERVAL_MS, "driver_memory": "1g",
        # HotSpot's quick compiler alone: what the other one gains in minutes costs more than it brings.
        "driver_java_options": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
    },
    "trigger": {
        "windows_over": 2, "windows_considered": 3, "cooldown_ms": 60_000, "load_min_bytes_per_sec": 5_000,
        # At the end all records are read again, at full speed: on a slow machine that is skew of bytes out for windows.
        "resources": ["bytes_in"],
    },
    # All brokers of a demo share the disk of its machine, which may be full to any degree with other things.
    "planner": {"windows": 3, "disk_reserve": 0.0},
    "control": {"mode": "apply", "tick_interval_ms": 1_000, "settle_windows": 2},
}  # fmt: skip
"""Short windows, so that the story takes minutes instead of a quarter of an hour."""
PERSON = "demo"
"""Who may sign in on the page of a demo, as an operator."""
USERS = "users.json"
MARKER = "rebalancer-demo.json"
"""Stands in every folder that a demo made: a folder without it is never emptied."""


def claim(home: Path) -> None:
    """Take `home` for this run: what a demo left there is cleared, anything else is left alone. Raises UsageProblem."""
    marker = home / MARKER
    try:
        if home.exists() and any(home.iterdir()) and not marker.exists():
            raise UsageProblem(f"--home {home}: is not empty and no demo made it; name a new folder")
        if marker.exists():
            processes.end_noted(home / "kafka" / "processes.json")
            shutil.rmtree(home)
        (home / "logs").mkdir(parents=True)
        marker.write_text(json.dumps({"made_by": "rebalancer demo"}))
    except OSError as error:
        raise UsageProblem(f"--home {home}: can't be used: {error.strerror}") from None


def write_settings(home: Path, cluster: EmbeddedCluster, mode: Literal["propose", "apply"]) -> Path:
    """Write the settings of this run into `home`, an absolute path, as a user would write them; the file."""
    settings: dict[str, Any] = {
        "kafka": {"cluster_name": "demo", "bootstrap_servers": cluster.bootstrap_servers},
        "storage": {"tables": str(home / "tables"), "checkpoints": str(home / "checkpoints")},
        "collect": {"sample_interval_ms": SAMPLE_INTERVAL_MS, "jmx_endpoints": cluster.jmx_endpoints},
        **SHORT_STORY,
        "control": {**SHORT_STORY["control"], "mode": mode},
        "serve": {"port": processes.free_port(), "users_file": str(home / USERS)},
    }
    file = home / "rebalancer.yaml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    return file


def add_person(home: Path, *, now_ms: int) -> str:
    """A password, of which nothing but a hash is kept, of the one person who may approve on the page of this run."""
    password = secrets.token_hex(8)
    users.write_users(home / USERS, [users.new_user(PERSON, Role.OPERATOR, password, now_ms=now_ms)])
    return password


def create_topics(
    kafka: KafkaSettings, scenario: FoundingScenario, broker_ids: tuple[int, ...], configs: dict[str, str]
) -> None:
    """Both topics, placed as skewed as the founding document has them; `configs` by Kafka's names."""
    admin = admin_client(kafka)
    try:
        admin.create_topics(
            {
                topic: {"assignments": placement(per_broker, broker_ids), "configs": configs}
                for topic, per_broker in zip(scenario.topics, (A_PER_BROKER, B_PER_BROKER), strict=True)
            }
        )
        admin.wait_for_topics(list(scenario.topics), timeout_ms=30_000)
    finally:
        admin.close()


def bounded_log_configs(records_at_least: float) -> dict[str, str]:
    """Configs of a topic that goes on for days: old records are deleted, but none of the first `records_at_least`."""
    kept_bytes = max(KEPT_PARTITION_BYTES, 2 * RECORD_BYTES_MAX * records_at_least / PARTITIONS_PER_TOPIC)
    return {"segment.bytes": str(KEPT_SEGMENT_BYTES), "retention.bytes": str(int(kept_bytes))}
