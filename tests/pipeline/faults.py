"""Faults that take minutes or a file system of their own, staged by hand; the tables are compared with a recount.

python -m tests.pipeline.faults broker-down --seconds 60
mount -t tmpfs -o size=48m tmpfs FOLDER && python -m tests.pipeline.faults disk-full --folder FOLDER
"""

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from streaming.cluster.clients import admin_client
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import Settings
from tests.pipeline.running import (
    assert_recounted,
    kill,
    numbered_records,
    produce,
    samples_counted,
    start_pipeline,
)
from tests.topics import wait_until_known

SAMPLES = 60_000
CHUNKS = 30
DEADLINE_S = 600.0


def main() -> None:
    """Stage one fault; prints what was seen as JSON, or fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fault", choices=["broker-down", "disk-full"])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--folder", type=Path, help="disk-full: a small file system for tables and checkpoints")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, EmbeddedCluster(Path(home) / "kafka", broker_count=3) as cluster:
        settings = _settings(cluster, options.folder or Path(home))
        pipeline = Supervised(settings, Path(home))
        try:
            if options.fault == "broker-down":
                seen = broker_down(cluster, pipeline, options.seconds)
            else:
                seen = disk_full(pipeline, options.folder)
        finally:
            kill(pipeline.process)
    print(json.dumps(seen | {"samples": SAMPLES, "tables_equal_recount": True}))


class Supervised:
    """The pipeline under a supervisor: started again whenever it has ended."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.records = numbered_records(SAMPLES)
        self.exit_codes: list[int] = []
        self.process: subprocess.Popen[bytes] = start_pipeline(settings, folder)

    def look_after(self) -> None:
        """Start it again if it has ended."""
        code = self.process.poll()
        if code is not None:
            self.exit_codes.append(code)
            self.process = start_pipeline(self.settings, self.folder)

    def send(self, chunk: int) -> None:
        """One of the parts of all records."""
        size = len(self.records) // CHUNKS
        part = self.records[chunk * size : (chunk + 1) * size]
        produce(self.settings, self.settings.topics.byte_rate, part, partitions=2)

    def finish(self) -> float:
        """Until every record is in the table, and compare; how long it took, seconds."""
        began = time.monotonic()
        while samples_counted(self.settings) < SAMPLES:
            assert time.monotonic() < began + DEADLINE_S, (self.folder / "pipeline.log").read_text()[-20_000:]
            self.look_after()
            time.sleep(0.5)
        assert_recounted(self.settings, self.records, self.folder)
        return time.monotonic() - began


def broker_down(cluster: EmbeddedCluster, pipeline: Supervised, seconds: int) -> dict[str, Any]:
    """kill -9 of a broker in the middle of the stream, started again after `seconds`."""
    for chunk in range(CHUNKS):
        if chunk == CHUNKS // 3:
            cluster.kill_broker(2)
            until = time.monotonic() + seconds
        if chunk == CHUNKS * 2 // 3:
            time.sleep(max(0.0, until - time.monotonic()))
            cluster.start_broker(2)
        pipeline.send(chunk)
        pipeline.look_after()
        time.sleep(1.0)
    return {"fault": f"broker down {seconds} s", "caught_up_s": pipeline.finish(), "exit_codes": pipeline.exit_codes}


def disk_full(pipeline: Supervised, folder: Path) -> dict[str, Any]:
    """No byte free below tables and checkpoints while records come in; then there is room again."""
    ballast = folder / "ballast"
    deadline = time.monotonic() + DEADLINE_S
    for chunk in range(CHUNKS):
        if chunk == CHUNKS // 3:
            while samples_counted(pipeline.settings) == 0 and time.monotonic() < deadline:
                time.sleep(0.2)
            _fill_up(ballast)
        pipeline.send(chunk)
        time.sleep(0.5)
    ended = pipeline.process.wait(timeout=DEADLINE_S)
    counted = samples_counted(pipeline.settings)
    ballast.unlink()
    pipeline.look_after()
    caught_up_s = pipeline.finish()
    return {"fault": "disk full", "exit_code": ended, "samples_before": counted, "caught_up_s": caught_up_s}


def _fill_up(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, suppress(OSError):  # the pipeline took the last byte
        while free := shutil.disk_usage(ballast.parent).free:
            file.write(b"\0" * free)


def _settings(cluster: EmbeddedCluster, folder: Path) -> Settings:
    settings = Settings.model_validate(
        {
            "kafka": {"cluster_name": "test", "bootstrap_servers": cluster.bootstrap_servers},
            "storage": {"tables": str(folder / "tables"), "checkpoints": str(folder / "checkpoints")},
            "pipeline": {
                "window_ms": 10_000, "trigger_interval_ms": 200, "clock_skew_max_ms": 30 * 86_400_000,
                "records_per_batch_max": SAMPLES // 40, "driver_memory": "1g",
            },
        }
    )  # fmt: skip
    admin = admin_client(settings.kafka)
    names = [settings.topics.byte_rate, settings.topics.consumer_lag]
    admin.create_topics({name: {"num_partitions": 2, "replication_factor": 3} for name in names})
    wait_until_known(admin, names)
    admin.close()
    return settings


if __name__ == "__main__":
    main()
