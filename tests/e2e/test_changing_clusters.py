"""One deployment whose clusters change while it runs: added by SIGHUP, removed by a change of the file."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from streaming import tables
from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.prepare import SHORT_STORY
from streaming.runtime import processes
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka]

STORY_DEADLINE_S = 900.0


def write_settings(home: Path, clusters: dict[str, EmbeddedCluster], port: int) -> Path:
    settings: dict[str, Any] = {
        **SHORT_STORY,
        "storage": {"tables": str(home / "tables"), "checkpoints": str(home / "checkpoints")},
        "control": {**SHORT_STORY["control"], "mode": "observe"},
        "collect": {"sample_interval_ms": 1_000},
        "serve": {"port": port},
        "log": {"format": "json"},
        "clusters": {name: {"kafka": {"bootstrap_servers": each.bootstrap_servers}} for name, each in clusters.items()},
    }
    file, fresh = home / "rebalancer.yaml", home / "new.yaml"
    fresh.write_text(yaml.safe_dump(settings, sort_keys=False))
    os.replace(fresh, file)
    return file


def roles_of(process: subprocess.Popen[bytes]) -> dict[tuple[str, str], int]:
    """Process ids by role and cluster."""
    found = {}
    for child in psutil.Process(process.pid).children():
        words: list[str] = []
        with suppress(psutil.NoSuchProcess):  # nor one that has ended, and that its parent has not seen yet
            words = child.cmdline()
        if len(words) > 3:  # not between fork and exec
            found[words[3], words[-1] if "--cluster" in words else ""] = child.pid
    return found


def test_a_cluster_comes_and_one_goes_while_the_processes_of_the_third_run_on(tmp_path: Path) -> None:
    port, log_file = processes.free_port(), tmp_path / "run.log"
    with (
        EmbeddedCluster(tmp_path / "east", broker_count=1) as east,
        EmbeddedCluster(tmp_path / "west", broker_count=1) as west,
        EmbeddedCluster(tmp_path / "north", broker_count=1) as north,
    ):
        settings = write_settings(tmp_path, {"east": east, "west": west}, port)
        running = processes.start([sys.executable, "-m", "streaming", "run", "--config", str(settings)], log=log_file)

        def versions(name: str) -> int:
            root = str(tmp_path / "tables" / "clusters" / name)
            table = tables.open_table(root, "broker_load")
            return -1 if table is None else table.version()

        def wait_for(what: str, found: Any) -> None:
            def checked() -> Any:
                assert running.poll() is None, log_file.read_text()[-10_000:]
                return found()

            until(what, checked, STORY_DEADLINE_S, state=lambda: log_file.read_text()[-10_000:])

        def events(name: str) -> list[dict[str, Any]]:
            lines = [json.loads(line) for line in log_file.read_text().splitlines() if line.endswith("}")]
            return [line for line in lines if line.get("event") == name]

        try:
            wait_for("east and west have windows", lambda: min(versions("east"), versions("west")) > 0)
            before = roles_of(running)

            write_settings(tmp_path, {"east": east, "west": west, "north": north}, port)
            running.send_signal(1)
            wait_for("north has windows", lambda: versions("north") > 0)
            assert roles_of(running) == before | {
                role: pid for role, pid in roles_of(running).items() if role[1] == "north"
            }

            (tmp_path / "rebalancer.yaml").write_text("clusters: {east: {")
            wait_for("the file is refused", lambda: events("settings_refused"))
            write_settings(tmp_path, {"east": east, "north": north}, port)  # found without a signal
            wait_for("west is gone", lambda: not any(name == "west" for _, name in roles_of(running)))
            wait_for("its pipeline has ended", lambda: events("pipeline_stopped"))
            kept = {"east": versions("east"), "north": versions("north")}
            wait_for("the others' windows go on", lambda: all(versions(name) > kept[name] for name in kept))
            after = roles_of(running)
            untouched = {("collect", "east"), ("control", "east"), ("pipeline", ""), ("serve", "")}
            assert {role: after.get(role) for role in untouched} == {role: before[role] for role in untouched}
            assert versions("west") > 0, "its tables stay"
            assert {row["kafka_cluster"] for row in events("pipeline_stopped")} == {"west"}
            assert not events("role_ended")
            assert not events("cluster_failed")
        finally:
            running.terminate()
            assert running.wait(timeout=STORY_DEADLINE_S) == 0
