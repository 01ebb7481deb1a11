"""Pipeline benchmark: drain rate, latency from append to readable, recovery after kill -9, a soak, and a kill test.

Beside the drain stand, in the same run on the same topic: Spark reading into nothing (the limit of any Spark job here),
a plain Spark job that parses, sums by window and appends closed windows to a Delta table, and a bare loop of
confluent-kafka, json and a dict with neither durability nor restart. Prints one JSON object; figures hold for the
machine and its load at that time, which are printed with them.

    make bench-pipeline ARGS="--records 1000000"
    make bench-pipeline ARGS="--kills 25 --records 500000"
    make bench-pipeline ARGS="--soak-seconds 600"
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from streaming import tables
from streaming.demo.brokers import EmbeddedCluster
from streaming.pipeline.run import stop_queries
from streaming.pipeline.sources import BYTE_RATES, kafka_options, sums_of
from streaming.runtime.jars import java_command
from streaming.settings import Settings
from tests.benchmarks.fleet_pipeline import cpu_used_s
from tests.pipeline.running import kill, produce, samples_counted, start_pipeline
from tests.pipeline.test_kill import kill_and_compare
from tests.pipeline.test_windows import WINDOW_MS, load_record, make_topics, start
from tests.spark_sessions import session_with_delta

PARTITIONS = 2
WARM_UP_RECORDS = 2_000_000
"""Until HotSpot has compiled what a batch needs, it takes a third of two cores."""
RECOVERY_RECORDS = 50_000
LATENCY_RATE = 500
SOAK = {"driver_memory": "1g", "trigger_interval_ms": 100, "maintenance_interval_ms": 30_000, "retention_ms": 600_000}
SOAK_HEAP = "-Xms1g -XX:+AlwaysPreTouch"
"""All of the heap is resident from the start: else how much of it the collector happens to use hides what grows."""
HEAPS = 20
"""So many times, evenly over the half of the soak that is measured, the live heap is looked at."""
HELPER_AGE_MAX_S = 10.0
"""Spark's short-lived helpers (rm, chmod) are left out: until they have begun they share all memory of the JVM."""
SOAK_INTERVAL_S = 0.75
SOAK_SPEED = 600
"""Event time runs as many times faster than the clock, and catches up with it at the end: windows close, are rolled up
and expire as in days of 144 seconds.
"""


Sums = dict[tuple[int, int, str, int], list[float]]


def main() -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--latency-seconds", type=int, default=60)
    parser.add_argument("--kills", type=int, default=0, help="kill test over --records samples instead")
    parser.add_argument("--soak-seconds", type=int, default=0, help="soak for as long instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, EmbeddedCluster(Path(home) / "kafka", broker_count=1) as cluster:
        folder = Path(home)
        if options.kills:
            settings = settings_of(cluster, folder, "kill")
            effective = kill_and_compare(
                settings, folder, samples=options.records, blows=(kill,) * options.kills, chance=random.Random(1)
            )
            result: dict[str, Any] = {
                "kills": options.kills, "before_all_was_read": effective, "samples": options.records,
                "tables_equal_recount": True,
            }  # fmt: skip
        elif options.soak_seconds:
            result = soak(settings_of(cluster, folder, "soak", **SOAK), folder, options.soak_seconds)
        else:
            result = measure(cluster, folder, options.records, options.latency_seconds)
    result["load_average"] = os.getloadavg()
    result["cpus"] = os.cpu_count()
    print(json.dumps(result, indent=2))


def settings_of(cluster: EmbeddedCluster, folder: Path, name: str, **pipeline: Any) -> Settings:
    """Settings with topics, tables and checkpoints of their own."""
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "test", "bootstrap_servers": cluster.bootstrap_servers},
            "topics": {"byte_rate": f"rate-{name}", "consumer_lag": f"lag-{name}"},
            "storage": {"tables": str(folder / name / "tables"), "checkpoints": str(folder / name / "checkpoints")},
            "pipeline": {
                "window_ms": WINDOW_MS, "trigger_interval_ms": 1_000, "clock_skew_max_ms": 30 * 86_400_000, **pipeline,
            },
        }
    )  # fmt: skip


def measure(cluster: EmbeddedCluster, folder: Path, records: int, latency_seconds: int) -> dict[str, Any]:
    """Drain (warm), its limits, latency, recovery."""
    session = session_with_delta()
    warm_up = settings_of(cluster, folder, "warm")
    fill(warm_up, WARM_UP_RECORDS)
    drain(session, warm_up, WARM_UP_RECORDS)
    own = settings_of(cluster, folder, "drain")
    fill(own, records)
    result: dict[str, Any] = {"records": records}
    result["spark_raw_read_per_s"] = records / seconds(lambda: to_nothing(raw(session, own)))
    result["read_and_summed_per_s"] = records / seconds(lambda: to_nothing(summed(session, own)))
    brokers = set(cluster.process_ids().values())
    result["drain_per_s"] = records / seconds(lambda: drain(session, own, records))
    for name in ("first", "second"):
        plain = settings_of(cluster, folder, f"plain-{name}")
        ours = settings_of(cluster, folder, f"ours-{name}")
        for each in (plain, ours):
            fill(each, records)
        used = cpu_seconds(lambda: plain_job(session, plain, folder / name), brokers)  # noqa: B023  # called at once
        result[f"plain_spark_cpu_us_per_record_{name}"] = used / records * 1e6
        used = cpu_seconds(lambda: drain(session, ours, records), brokers)  # noqa: B023
        result[f"drain_cpu_us_per_record_{name}"] = used / records * 1e6
    tenfold = settings_of(cluster, folder, "tenfold")
    fill(tenfold, records, partitions_of_a_broker=500)
    result["drain_of_10_x_keys_per_s"] = records / seconds(lambda: drain(session, tenfold, records))
    result["bare_python_loop_per_s"] = records / seconds(lambda: bare_loop(own, records))
    result["append_to_readable_s"] = latency(session, settings_of(cluster, folder, "latency"), latency_seconds)
    session.stop()
    result["recovery_s"] = recovery(settings_of(cluster, folder, "recovery"), folder)
    return result


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


def cpu_seconds(work: Callable[[], object], without: set[int]) -> float:
    """CPU time that one call takes in this process and those it has started, `without` some of them."""
    own = psutil.Process()

    def used_s() -> float:
        return sum(own.cpu_times()[:4]) + sum(cpu_used_s(child) for child in own.children() if child.pid not in without)

    before_s = used_s()
    work()
    return used_s() - before_s


def fill(settings: Settings, records: int, partitions_of_a_broker: int = 50) -> None:
    """Samples of 12 brokers, event times evenly over ten minutes."""
    make_topics(settings)
    rows = [
        load_record(
            1 + index % 12,
            index // 12 % partitions_of_a_broker,
            index * 600_000 // records,
            bytes_in_per_sec=float(index % 97),
        )
        for index in range(records)
    ]
    produce(settings, settings.topics.byte_rate, rows, partitions=PARTITIONS)


def drain(session: SparkSession, settings: Settings, records: int) -> None:
    """The real queries, windows and tables, until every record is in."""
    queries = start(session, settings)
    try:
        while samples_counted(settings) < records:
            failed = [query for query in queries if not query.isActive]
            assert not failed, failed[0].exception()
            time.sleep(0.25)  # each look costs CPU that the drain could use
    finally:
        stop_queries(session, queries)


def to_nothing(rows: DataFrame) -> None:
    """Evaluate into Spark's sink that keeps nothing."""
    rows.write.format("noop").mode("overwrite").save()


def raw(session: SparkSession, settings: Settings) -> DataFrame:
    """The whole topic of byte rates."""
    return session.read.format("kafka").options(**kafka_options(settings.kafka, settings.topics.byte_rate)).load()


def summed(session: SparkSession, settings: Settings) -> DataFrame:
    """The topic, summed as the pipeline does it, without windows over batches and without tables."""
    return sums_of(raw(session, settings), settings.pipeline, BYTE_RATES)


def plain_job(session: SparkSession, settings: Settings, folder: Path) -> None:
    """What a Spark engineer writes in an afternoon: no open windows in the table, no word of what is late or unfit, no
    hours and days, and no upkeep.
    """
    keys = ["kafka_cluster", "broker", "topic", "partition", "role"]
    fields = (
        "kafka_cluster STRING, broker INT, topic STRING, partition INT, role STRING, event_time_ms LONG, "
        "interval_ms LONG, bytes_in_per_sec DOUBLE, bytes_out_per_sec DOUBLE, messages_in_per_sec DOUBLE, "
        "size_bytes LONG"
    )
    options = kafka_options(settings.kafka, settings.topics.byte_rate)
    records = session.readStream.format("kafka").options(**options).option("startingOffsets", "earliest").load()
    rows = records.select(f.from_json(f.col("value").cast("string"), fields).alias("row")).select("row.*")
    weighted = [
        (f.sum(f.col(name) * f.col("interval_ms")) / f.sum("interval_ms")).alias(name)
        for name in ("bytes_in_per_sec", "bytes_out_per_sec", "messages_in_per_sec")
    ]
    windows = (
        rows.withColumn("time", f.timestamp_millis("event_time_ms"))
        .withWatermark("time", f"{settings.pipeline.watermark_ms} milliseconds")
        .groupBy(f.window("time", f"{WINDOW_MS} milliseconds"), *keys)
        .agg(*weighted, f.max("size_bytes").alias("size_bytes"), f.count("*").alias("sample_count"))
    )
    writer = windows.writeStream.format("delta").outputMode("append").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "windows"))
    query.awaitTermination()


def bare_loop(settings: Settings, records: int) -> None:
    """The same sums in a dict: no table, no offsets kept, no restart."""
    consumer = Consumer(
        {"bootstrap.servers": settings.kafka.bootstrap_servers[0], "group.id": "peer", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(settings.topics.byte_rate, partition, 0) for partition in range(PARTITIONS)])
    sums: Sums = {}
    seen = 0
    while seen < records:
        messages = consumer.consume(10_000, timeout=1.0)
        seen += len(messages)
        for message in messages:
            value = message.value()
            assert value is not None, "no test writes a tombstone"
            count(sums, value)
    consumer.close()


def count(sums: Sums, value: bytes) -> None:
    """One record into the sums."""
    row = json.loads(value)
    key = (row["event_time_ms"] // WINDOW_MS, row["broker"], row["topic"], row["partition"])
    total = sums.setdefault(key, [0.0, 0.0])
    total[0] += row["bytes_in_per_sec"] * row["interval_ms"]
    total[1] += row["interval_ms"]


def latency(session: SparkSession, settings: Settings, duration_s: int) -> dict[str, float]:
    """From the moment a record is sent to the moment another reader sees it in the table, at a steady rate."""
    make_topics(settings)
    ended = threading.Event()

    def send() -> None:
        until = time.time() + duration_s
        while (now := time.time()) < until:
            rows = [
                {**load_record(1 + index % 12, index % 50, 0), "event_time_ms": int(now * 1000)}
                for index in range(LATENCY_RATE // 10)
            ]
            produce(settings, settings.topics.byte_rate, rows, partitions=PARTITIONS)
            time.sleep(max(0.0, now + 0.1 - time.time()))
        ended.set()

    queries = start(session, settings)
    sender = threading.Thread(target=send)
    sender.start()
    newest, waits = 0, []
    while not ended.is_set():
        rows = tables.read(settings.storage.tables, "partition_load", columns=["last_event_time_ms"])
        seen = max((row["last_event_time_ms"] for row in rows), default=0)
        now_ms = time.time() * 1000
        # Every sample between the newest of the last look and that of this one has become readable in between.
        waits += [(now_ms - sent_ms) / 1000 for sent_ms in range(newest + 100, seen + 1, 100)] if newest else []
        newest = seen
        time.sleep(0.05)
    sender.join()
    stop_queries(session, queries)
    waits.sort()
    return {f"p{share}": waits[min(len(waits) - 1, len(waits) * share // 100)] for share in (50, 95, 99)}


def recovery(settings: Settings, folder: Path) -> float:
    """From the new process's start after kill -9 to its first new rows."""
    fill(settings, RECOVERY_RECORDS)
    process = start_pipeline(settings, folder)
    try:
        wait_for_samples(settings, RECOVERY_RECORDS)
        kill(process)
        produce(settings, settings.topics.byte_rate, [load_record(1, 0, 600_000)], partitions=1)
        started = time.monotonic()
        process = start_pipeline(settings, folder)
        wait_for_samples(settings, RECOVERY_RECORDS + 1)
        return time.monotonic() - started
    finally:
        kill(process)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the pipeline of the soak."""

    seconds: float
    batches: int
    resident_bytes: dict[str, int]
    files: int
    batch_ms: int


def soak(settings: Settings, folder: Path, duration_s: int) -> dict[str, Any]:
    """A steady stream with time pressed together; what grows: memory of the processes, files, duration of a batch.

    The second half is measured: until then HotSpot compiles.
    """
    make_topics(settings)
    os.environ["SPARK_SUBMIT_OPTS"] = SOAK_HEAP
    process = start_pipeline(settings, folder)
    looks: list[Look] = []
    heaps: list[tuple[int, int]] = []
    began = time.time()
    try:
        while (now := time.time()) < began + duration_s:
            event_time_ms = int((now - (began + duration_s - now) * SOAK_SPEED) * 1000)
            rows = [
                load_record(1 + index % 12, index // 12 % 50, 0, event_time_ms=event_time_ms) for index in range(600)
            ]
            produce(settings, settings.topics.byte_rate, rows, partitions=PARTITIONS)
            look = look_at(settings, process.pid, now - began)
            if look is not None and (not looks or look.batches > looks[-1].batches):
                looks.append(look)
                print(look, file=sys.stderr, flush=True)
            if looks and now > began + duration_s / 2 and len(heaps) < HEAPS * (2 * (now - began) / duration_s - 1):
                heaps.append((looks[-1].batches, live_heap(process.pid)))
            time.sleep(max(0.0, now + SOAK_INTERVAL_S - time.time()))
    finally:
        kill(process)
    warm = [look for look in looks if look.seconds > duration_s / 2]
    half = len(warm) // 2
    last = warm[-1]
    sizes = {name: [(look.batches, look.resident_bytes[name]) for look in warm] for name in last.resident_bytes}
    return {
        "batches": last.batches,
        "mb": {name: size / 1e6 for name, size in last.resident_bytes.items()},
        "live_heap_mb": [size / 1e6 for _, size in heaps],
        "measured_batches": last.batches - warm[0].batches,
        "mb_per_1000_batches": {name: slope_mb(rows) for name, rows in {**sizes, "live_heap": heaps}.items()},
        "files_max": max(look.files for look in looks),
        "batch_p50_ms_first_half": float(np.median([look.batch_ms for look in warm[:half]])),
        "batch_p50_ms_second_half": float(np.median([look.batch_ms for look in warm[half:]])),
    }


def slope_mb(sizes: list[tuple[int, int]]) -> float:
    """Growth by 1,000 batches, of sizes in bytes after so many of them."""
    batches, resident_bytes = zip(*sizes, strict=True)
    slope, _ = np.polyfit(batches, resident_bytes, 1)
    return float(slope) * 1000 / 1e6


def live_heap(pid: int) -> int:
    """Bytes of all objects that the JVM of this driver can still reach; it collects them for that."""
    (jvm,) = (child for child in psutil.Process(pid).children() if child.name() == "java")
    command = [str(Path(java_command()).resolve().with_name("jcmd")), str(jvm.pid), "GC.class_histogram"]
    histogram = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    _total, _instances, size = histogram.splitlines()[-1].split()
    return int(size)


def look_at(settings: Settings, pid: int, seconds: float) -> Look | None:
    """None before the first heartbeat."""
    beats = [row for row in tables.read(settings.storage.tables, "pipeline_batch") if row["query_name"] == "byte_rate"]
    table = tables.open_table(settings.storage.tables, "partition_load")
    newest = tables.newest(beats, "batches_total")
    if newest is None or table is None:
        return None
    driver = psutil.Process(pid)
    children = driver.children()
    workers = [worker for child in children for worker in child.children(recursive=True)]
    return Look(
        seconds,
        newest["batches_total"],
        {
            "driver": resident_bytes(driver),
            "jvm": sum(map(resident_bytes, children)),
            "workers": sum(map(resident_bytes, workers)),
        },
        len(table.file_uris()),
        newest["duration_ms"],
    )


def resident_bytes(process: psutil.Process) -> int:
    """Memory of a process; 0 where it is a helper or has ended meanwhile."""
    try:
        is_helper = time.time() - process.create_time() < HELPER_AGE_MAX_S
        return 0 if is_helper else int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def wait_for_samples(settings: Settings, samples: int) -> None:
    """Until the table holds them."""
    deadline = time.monotonic() + 300
    while samples_counted(settings) < samples:
        assert time.monotonic() < deadline, "the pipeline wrote nothing in 300 s"
        time.sleep(0.1)


if __name__ == "__main__":
    main()
