"""The pipeline as a process of its own, for tests and benchmarks that kill it, and what its tables must hold then."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from streaming import tables
from streaming.runtime import processes
from streaming.settings import Settings
from tests.pipeline.test_windows import Record, load_record, recount
from tests.waiting import DEADLINE_S


def start_pipeline(settings: Settings, folder: Path) -> subprocess.Popen[bytes]:
    """Start `rebalancer pipeline` with these settings; its log and its temporary files lie in `folder`."""
    config = folder / "pipeline.yaml"
    config.write_text(settings.model_dump_json(), encoding="utf-8")  # JSON is YAML
    return start_process(["--config", str(config)], folder)


def start_process(options: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start `rebalancer pipeline` with these options; its log and its temporary files lie in `folder`."""
    command = [sys.executable, "-m", "streaming", "pipeline", *options]
    temporary_files(folder).mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(temporary_files(folder))}
    return processes.start(command, log=folder / "pipeline.log", environment=environment)


def temporary_files(folder: Path) -> Path:
    """Where the pipeline that has its log in `folder` puts its temporary files."""
    return folder / "temporary"


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the driver's Python and its JVM; nothing where it has ended."""
    if process.poll() is not None:
        return
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in children:
        with suppress(psutil.NoSuchProcess):  # some end with their parent
            child.kill()
    psutil.wait_procs(children, timeout=DEADLINE_S)
    process.wait(timeout=DEADLINE_S)


SPAN_MS = 200_000
"""Of the event times of numbered records: 20 windows."""


def numbered_records(count: int) -> list[Record]:
    """Samples of 3 brokers x 7 partitions, event times evenly over 20 windows, so that each window comes in pieces."""
    return [
        load_record(1 + index % 3, index % 7, index * (SPAN_MS // 10) // count * 10, bytes_in_per_sec=float(index % 97))
        for index in range(count)
    ]


def none_late(settings: Settings, *, parts: int) -> Settings:
    """For numbered records that come in so many parts while the pipeline runs, each to several partitions.

    A batch may see all of a part in one partition and nothing of it yet in another: a connection took longer. So the
    watermark trails by more than a part.
    """
    pipeline = settings.pipeline.model_copy(update={"watermark_ms": SPAN_MS // parts + 10_000})
    return settings.model_copy(update={"pipeline": pipeline})


def assert_recounted(settings: Settings, records: list[Record], folder: Path) -> None:
    """partition_load equals a plain recount of all records, row for row."""
    rows = tables.read(settings.storage.tables, "partition_load")
    stored = {(tables.to_ms(row["window_start"]), row["broker"], row["partition"]): row for row in rows}
    wanted = recount(records)
    assert len(stored) == len(rows), "a key occurs twice"
    assert stored.keys() == wanted.keys(), (folder / "pipeline.log").read_text()[-20_000:]
    for key, (bytes_in, covered_ms, count, size) in wanted.items():
        row = stored[key]
        assert (row["covered_ms"], row["sample_count"], row["size_bytes"]) == (covered_ms, count, size)
        assert row["bytes_in_per_sec"] == pytest.approx(bytes_in)


def produce(settings: Settings, topic: str, records: list[Record], *, partitions: int) -> None:
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


def rows_late(settings: Settings) -> list[int]:
    """What the newest batches said of records behind the watermark."""
    return [row["late_rows_total"] for row in tables.read(settings.storage.tables, "pipeline_batch")][-10:]
