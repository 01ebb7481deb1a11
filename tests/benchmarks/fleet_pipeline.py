"""The pipeline at the rate of records of a fleet: whether it keeps up, with what CPU and memory.

The collector's own records of one look are sent again and again to one embedded broker, each time with the time of now.
Sender and broker are processes apart from the pipeline, and cost nothing of its figures.
"""

import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
import psutil

from streaming import tables
from streaming.cluster.record_sender import RecordSender
from streaming.collect.run import Collector
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import PipelineSettings, Settings
from tests.benchmarks.fleet_measuring import Figures
from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess
from tests.fleet.synthetic import FleetSize, synthetic_fleet
from tests.pipeline.running import kill, start_pipeline
from tests.pipeline.test_windows import make_topics
from tests.tables_in_memory import in_memory

INTERVAL_S = 20.0
"""From one look to the next, as it is advised for 100 brokers."""
TRIGGER_S = 60.0
"""From one batch to the next, as it is advised for 100 brokers: a batch with all looks of a window sums them first."""
LOOKS_PER_WINDOW = 3
"""At least, as is advised; windows are not shorter than by default."""
WARM_UP_LOOKS, LOOKS = 6, 9
"""Those that do not count, as Spark starts and HotSpot compiles, and those that do."""
SAMPLE_S = 1.0
CAUGHT_UP_S = 300.0
PATIENCE_MS = 120_000
QUERIES = ("byte_rate", "consumer_lag")
MEBIBYTE = 2**20
Records = list[tuple[bytes, bytes]]


class Kept:
    """In the place of the collector's sender: keeps the records of the newest look, by topic."""

    def __init__(self) -> None:
        self.records: dict[str, Records] = {}

    def send(self, topic: str, records: Iterable[tuple[bytes, bytes]]) -> int:
        """As `RecordSender` does."""
        kept = list(records)
        self.records.setdefault(topic, []).extend(kept)
        return len(kept)

    def flush(self, *, broker_hangs: bool = False) -> int:  # noqa: ARG002  # as `RecordSender` has it
        """All has been kept."""
        return 0

    def close(self) -> None:
        """Nothing is open."""


def keep_up(
    size: FleetSize,
    *,
    repeats: int,
    trouble: bool = True,
    profile: bool = False,
    interval_s: float = INTERVAL_S,
    trigger_s: float = TRIGGER_S,
) -> Figures:
    """Fifteen looks, one each `interval_s`, read each `trigger_s`; the other arguments but the size change nothing."""
    look_ms, records = records_of_a_look(size, interval_s)
    window_ms = max(PipelineSettings().window_ms, round(1000 * LOOKS_PER_WINDOW * interval_s))
    with tempfile.TemporaryDirectory() as home, EmbeddedCluster(Path(home) / "kafka", broker_count=1) as brokers:
        settings = Settings.model_validate(
            {
                "kafka": {"cluster_name": "fleet", "bootstrap_servers": brokers.bootstrap_servers},
                "storage": {"tables": f"{home}/tables", "checkpoints": f"{home}/checkpoints"},
                "pipeline": {"window_ms": window_ms, "trigger_interval_ms": round(1000 * trigger_s)},
            }
        )
        make_topics(settings)
        process = start_pipeline(settings, Path(home))
        try:
            return _measured(settings, psutil.Process(process.pid), look_ms, records, interval_s)
        finally:
            kill(process)


def records_of_a_look(size: FleetSize, interval_s: float) -> tuple[int, dict[str, Records]]:
    """(Its time, all records by topic.)"""
    with FleetProcess(partial(synthetic_fleet, size)) as fleet:
        settings = Settings.model_validate(
            {
                "kafka": {
                    "cluster_name": "fleet",
                    "bootstrap_servers": fleet.bootstrap_servers,
                    "request_timeout_ms": PATIENCE_MS,
                },
                "collect": {"jmx_endpoints": fleet.jmx_endpoints, "groups_max": max(1, size.groups)},
                "storage": {"tables": in_memory("fleet")},
            }
        )
        kept, now_ms, between_ms = Kept(), 10**12, round(1000 * interval_s)
        with Collector(settings.kafka, settings.topics, settings.collect, settings.storage.tables) as collector:
            collector._sender.close()
            collector._sender = kept  # type: ignore[assignment]
            collector.sample(now_ms=now_ms)
            fleet.run(Fleet.advance, between_ms)
            kept.records.clear()
            collector.sample(now_ms=now_ms + between_ms)
    return now_ms + between_ms, kept.records


def _measured(
    settings: Settings, pipeline: psutil.Process, look_ms: int, records: dict[str, Records], interval_s: float
) -> Figures:
    sender = RecordSender(settings.kafka)
    of_a_look = sum(map(len, records.values()))
    began_s, cpu_s, counted_s, rss_mib, lags = time.monotonic(), 0.0, 0.0, [0.0], [0]
    for look in range(WARM_UP_LOOKS + LOOKS):
        if look == WARM_UP_LOOKS:
            cpu_s, counted_s = cpu_used_s(pipeline), time.monotonic()
            lags.clear()
        failed = send_look(sender, look_ms, records)
        assert not failed, f"{failed} records were not acknowledged"
        while time.monotonic() < began_s + (look + 1) * interval_s:
            rss_mib.append(memory_mib(pipeline))
            time.sleep(SAMPLE_S)
        lags.append((look + 1) * of_a_look - records_read(settings))
        click.echo(f"look {look}: {lags[-1]:,} records not read, {rss_mib[-1]:,.0f} MiB")
    used_s, took_s = cpu_used_s(pipeline) - cpu_s, time.monotonic() - counted_s
    ended_s = time.monotonic()
    while records_read(settings) < (WARM_UP_LOOKS + LOOKS) * of_a_look and time.monotonic() < ended_s + CAUGHT_UP_S:
        time.sleep(SAMPLE_S)
    return {
        "pipeline_records_per_s": of_a_look / interval_s,
        "pipeline_cores": used_s / took_s,
        "pipeline_cpu_s_per_look": used_s / LOOKS,
        "pipeline_lag_records_max": max(lags),
        "pipeline_caught_up_s": time.monotonic() - ended_s,
        "pipeline_rss_mib": max(rss_mib),
    }


def send_look(sender: RecordSender, look_ms: int, records: dict[str, Records]) -> int:
    """A look of now; returns how many records were not acknowledged."""
    before, now = f'"event_time_ms":{look_ms}'.encode(), f'"event_time_ms":{time.time_ns() // 1_000_000}'.encode()
    for topic, rows in records.items():
        sender.send(topic, ((key, value.replace(before, now)) for key, value in rows))
    return sender.flush()


def records_read(settings: Settings) -> int:
    """Records that the queries have read so far."""
    columns = ["query_name", "input_rows_total"]
    rows = tables.read(settings.storage.tables, "pipeline_batch", columns=columns)
    return sum(
        max((row["input_rows_total"] for row in rows if row["query_name"] == name), default=0) for name in QUERIES
    )


def processes_of(pipeline: psutil.Process) -> list[psutil.Process]:
    """The driver and all that it has started."""
    return [pipeline, *pipeline.children(recursive=True)]


def cpu_used_s(pipeline: psutil.Process) -> float:
    """Of all its processes, those that have ended included."""
    used = 0.0
    for process in processes_of(pipeline):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


def memory_mib(pipeline: psutil.Process) -> float:
    """Resident memory of all its processes now."""
    used = 0
    for process in processes_of(pipeline):
        with suppress(psutil.NoSuchProcess):
            used += process.memory_info().rss
    return used / MEBIBYTE
