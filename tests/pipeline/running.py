"""The pipeline as a process of its own, for tests and benchmarks that kill it."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from streaming import processes, tables
from streaming.settings import Settings


def start_pipeline(settings: Settings, folder: Path) -> subprocess.Popen[bytes]:
    """Start `rebalancer pipeline` with these settings; its log lies in `folder`."""
    config = folder / "pipeline.yaml"
    config.write_text(settings.model_dump_json(), encoding="utf-8")  # JSON is YAML
    command = [sys.executable, "-m", "streaming", "pipeline", "--config", str(config)]
    return processes.start(command, log=folder / "pipeline.log")


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the driver's Python and its JVM; nothing where it has ended."""
    if process.poll() is not None:
        return
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in children:
        with suppress(psutil.NoSuchProcess):  # some end with their parent
            child.kill()
    psutil.wait_procs(children, timeout=30)
    process.wait(timeout=30)


def produce(settings: Settings, topic: str, records: list[dict[str, Any]], *, partitions: int) -> None:
    """Send records in order, dealt round the partitions, until all are acknowledged."""
    refused: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer(
        {"bootstrap.servers": ",".join(settings.kafka.bootstrap_servers), "linger.ms": 20, "acks": "all",
         "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    for index, record in enumerate(records):
        value = json.dumps(record, separators=(",", ":"))
        producer.produce(topic, value, partition=index % partitions, on_delivery=delivered)
        if index % 1_000 == 0:
            producer.poll(0)
    producer.flush()
    assert not refused, refused[0]


def samples_counted(settings: Settings) -> int:
    """Samples in partition_load so far."""
    rows = tables.read(settings.storage.tables, "partition_load", columns=["sample_count"])
    return sum(row["sample_count"] for row in rows)
