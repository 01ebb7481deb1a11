"""Makes the store that stays in `kept/` for a release: `python -m tests.upgrades.keep`, on that release's commit.

It holds what the release left on real brokers: the tables of the demo, from skew to measured, and a pipeline that was
ended half-way through its records, with its checkpoints and the data of its broker.
"""

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from streaming import tables
from streaming.contract import TABLES
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import Settings
from tests.pipeline.running import kill, numbered_records, produce, samples_counted, start_pipeline
from tests.pipeline.test_windows import FOREVER_MS, WINDOW_MS, make_topics
from tests.prometheus.demo import CLUSTER, STORY_OPTIONS
from tests.waiting import until

KEPT = Path(__file__).parent / "kept"
SAMPLES = 2_000
READ_BEFORE = 1_000
"""So many of the samples were read by the release that is kept; the next one reads the others."""
NOT_KEPT = frozenset({"broker.log", "output.log", "format.log"})
READ_WITHIN_S = 420.0
BROKER = 1


def broker_of(home: Path) -> EmbeddedCluster:
    """One broker that keeps its records for ever: the store is read years later."""
    return EmbeddedCluster(home, broker_count=1, broker_settings={"log.retention.ms": "-1"})


def pipeline_settings(home: Path, cluster: EmbeddedCluster) -> Settings:
    """Of the pipeline that was ended half-way, with everything below `home`."""
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "test", "bootstrap_servers": cluster.bootstrap_servers},
            "topics": {"byte_rate": "byte-rate", "consumer_lag": "consumer-lag"},
            "storage": {"tables": str(home / "tables"), "checkpoints": str(home / "checkpoints")},
            "pipeline": {
                "window_ms": WINDOW_MS,
                "watermark_ms": 30_000,
                "trigger_interval_ms": 200,
                "clock_skew_max_ms": FOREVER_MS * 30,
                "driver_memory": "1g",
            },
        }
    )


def read_all(settings: Settings, folder: Path, count: int) -> None:
    """Run the pipeline until it has counted so many samples, and end it in order."""
    process = start_pipeline(settings, folder)
    try:
        until(
            f"{count} samples",
            lambda: process.poll() is not None or samples_counted(settings) >= count,
            deadline_s=READ_WITHIN_S,
        )
        process.terminate()
        assert process.wait(timeout=READ_WITHIN_S) == 0, (folder / "pipeline.log").read_text()[-5_000:]
    finally:
        kill(process)


def main() -> None:
    """Make the archive and the facts beside it."""
    name = version("kafka-load-rebalancer")
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        demo_facts = _keep_demo(made)
        _keep_pipeline(made)
        (KEPT / f"{name}.json").write_text(json.dumps(demo_facts, indent=2) + "\n", encoding="utf-8")
        with tarfile.open(KEPT / f"{name}.tar.xz", "w:xz", preset=9) as archive:
            for part in ("demo", "pipeline"):
                archive.add(made / part, part, filter=_plain)
    sys.stdout.write(f"{KEPT / name}.tar.xz: {(KEPT / f'{name}.tar.xz').stat().st_size:,} bytes\n")


def _keep_demo(made: Path) -> dict[str, Any]:
    """The tables of a demo that has ended, below `demo/tables`; returns what they hold."""
    home = made / "home"
    command = [sys.executable, "-m", "streaming", "demo", "--home", str(home), *STORY_OPTIONS]
    subprocess.run(command, check=True)
    root = made / "demo" / "tables"
    shutil.copytree(home / "tables", root)
    shutil.rmtree(home)
    for name, table in TABLES.items():  # thousands of small files would make a large archive
        delta = tables.open_table(str(root), name)
        if delta is not None:
            tables.join_small_files(str(root), table)
            delta.update_incremental()
            delta.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    events = sorted(tables.read(str(root), "execution"), key=lambda row: (row["event_time"], row["sequence"]))
    return {
        "cluster": CLUSTER,
        "made_at_ms": time.time_ns() // 1_000_000,
        "rows": {name: len(tables.read(str(root), name)) for name in TABLES if tables.table_exists(str(root), name)},
        "events": [row["event"] for row in events],
        "bytes_in_max_over_mean_measured": events[-1]["bytes_in_max_over_mean_measured"],
    }


def _keep_pipeline(made: Path) -> None:
    """Tables and checkpoints of a pipeline that has read half of its samples, and its broker's folders."""
    home = made / "pipeline"
    cluster = broker_of(made / "brokers")
    home.mkdir()
    with cluster:
        settings = pipeline_settings(home, cluster)
        make_topics(settings)
        produce(settings, settings.topics.byte_rate, numbered_records(SAMPLES)[:READ_BEFORE], partitions=2)
        read_all(settings, made, READ_BEFORE)
        cluster.stop_broker(BROKER)  # in order, so that it cuts its index files to what they hold
    for part in ("data", "metadata"):
        shutil.copytree(cluster.brokers[0].folder / part, home / "broker" / part)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without the names of who made it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if Path(member.name).name in NOT_KEPT else member


if __name__ == "__main__":
    main()
