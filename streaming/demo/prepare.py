"""What a demo needs before it starts: its folder, its settings, its topics."""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import yaml

from streaming.cluster.clients import admin_client
from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.scenario import A_PER_BROKER, B_PER_BROKER, PARTITIONS_PER_TOPIC, FoundingScenario, placement
from streaming.errors import RefusedForSafety, UsageProblem
from streaming.runtime import accounts, processes
from streaming.runtime.accounts import Role
from streaming.runtime.locks import exclusive
from streaming.settings import KafkaSettings

KEPT_SEGMENT_BYTES = 4 << 20
KEPT_PARTITION_BYTES = 32 << 20
"""Bytes that a partition of topic A retains in a demo with --keep: together an hour at the usual rate."""
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
"""Name of the operator who may sign in on the page of a demo."""
USERS = "users.json"
MARKER = "rebalancer-demo.json"
"""File that marks a folder made by a demo: a folder without the file is never emptied."""
LOCK = "rebalancer-demo"
LOCK_FILE = f".{LOCK}.lock"
"""Stays when the folder is emptied: a lock on a file that was removed would keep nobody out."""


@contextmanager
def claimed(home: Path) -> Iterator[None]:
    """Hold `home` for this run: what a demo that has ended left there is cleared, anything else is left alone.

    Raises UsageProblem; RefusedForSafety while another demo runs there.
    """
    marker = home / MARKER
    try:
        if home.exists() and not marker.exists() and any(row.name != LOCK_FILE for row in home.iterdir()):
            raise UsageProblem(f"--home {home}: is not empty and no demo made it; name a new folder")
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageProblem(f"--home {home}: can't be used: {error.strerror}") from None
    # The kernel keeps the lock for this process alone: what it starts gets no files of its own but the standard ones.
    with exclusive(str(home.absolute()), LOCK) as is_ours:
        if not is_ours:
            raise RefusedForSafety(f"a demo is running in {home}{_pid_of(marker)}: end it, or name another --home")
        try:
            _clear(home, marker)
        except OSError as error:
            raise UsageProblem(f"--home {home}: can't be used: {error.strerror}") from None
        yield


def _clear(home: Path, marker: Path) -> None:
    """End and remove what an earlier run left. The marker comes first: whoever is refused reads there who runs."""
    marker.write_text(json.dumps({"made_by": "rebalancer demo", "pid": os.getpid()}))
    processes.end_noted(home / "kafka" / "processes.json")
    for entry in home.iterdir():
        if entry.name in (MARKER, LOCK_FILE):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    (home / "logs").mkdir()


def _pid_of(marker: Path) -> str:
    """Who runs, in words; nothing where the marker doesn't tell, as in its first moment."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return f" (pid {json.loads(marker.read_text())['pid']})"
    return ""


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
    accounts.write_users(home / USERS, [accounts.new_user(PERSON, Role.OPERATOR, password, now_ms=now_ms)])
    return password


def create_topics(
    kafka: KafkaSettings, scenario: FoundingScenario, broker_ids: tuple[int, ...], configs: dict[str, str]
) -> None:
    """Creates both topics, placed as skewed as the founding document has them; `configs` by Kafka's names."""
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
