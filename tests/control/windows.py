"""Windows as the pipeline would have written them, for tests of control without Spark."""

from collections.abc import Collection, Mapping
from math import fsum
from typing import Any

from assignor_core.live import NO_LEADER, LiveCluster, PartitionKey
from streaming import tables
from streaming.settings import HOUR_MS, Settings

RATE = 1e6


def write_windows(
    settings: Settings,
    live: LiveCluster,
    *,
    end_ms: int,
    rate: float = RATE,
    windows: int = 3,
    quiet: str = "__",
    rates: Mapping[PartitionKey, float] | None = None,
    silent: Collection[int] = (),
    forged: Mapping[PartitionKey, float] | None = None,
    remote_bytes: Mapping[PartitionKey, int] | None = None,
    read: Mapping[PartitionKey, float | None] | None = None,
    size_bytes: int = 1_000,
) -> None:
    """Closed windows up to `end_ms`: each partition takes `rate` at its leader and again at each replica in sync.

    Topics whose name begins with `quiet` take nothing. `rates` gives each partition one of its own. Brokers that are
    `silent` send no sample. Of `forged` partitions the table holds this rate instead of the true one. Remote storage
    alone holds `remote_bytes` of these partitions. Consumers read nothing, or what `read` has of each partition.

    A window that a call has written before stays as it is. The first call makes one commit of each table: a commit
    takes longer than its rows.
    """
    window_ms = settings.pipeline.window_ms
    at_once: dict[str, list[dict[str, Any]]] = {}
    is_first = not tables.table_exists(settings.storage.tables, "broker_load")
    if rates is None:
        rates = {key: 0.0 if key[0].startswith(quiet) else rate for key in live.partitions}
    led_by = {key: row for key, row in live.partitions.items() if row.leader != NO_LEADER}
    for index in range(windows, 0, -1):
        start_ms = end_ms - index * window_ms
        audit = window_columns(settings.kafka.cluster_name, start_ms, window_ms)
        led = [
            {**audit, "broker": row.leader, "topic": key[0], "partition": key[1], "role": "leader",
             "bytes_in_per_sec": (forged or {}).get(key, rates[key]), "bytes_out_per_sec": read[key] if read else 0.0,
             "size_bytes": size_bytes, "remote_size_bytes": (remote_bytes or {}).get(key)}
            for key, row in led_by.items()
            if row.leader not in silent
        ]  # fmt: skip
        totals = [
            {**audit, "broker": broker, "rack": live.broker_racks[broker],
             "bytes_in_per_sec": fsum(rates[key] for key, row in led_by.items() if row.leader == broker),
             "replication_bytes_in_per_sec": fsum(
                 rates[key] for key, row in led_by.items() if broker in row.isr and broker != row.leader)}
            for broker in live.broker_racks
            if broker not in silent
        ]  # fmt: skip
        for name, rows in (("partition_load", led), ("broker_load", totals)):
            at_once.setdefault(name, []).extend(rows)
            if not is_first or index == 1:
                tables.append(
                    settings.storage.tables,
                    name,
                    at_once.pop(name),
                    transaction_id="test",
                    transaction_version=start_ms,
                )


def write_hours_before(
    settings: Settings, now_ms: int, by_hour: Mapping[int, Mapping[PartitionKey, float | None]]
) -> None:
    """Loads of partitions by the hour: rates by how many hours before `now_ms` the hour began."""
    rows: list[dict[str, Any]] = [
        {
            "kafka_cluster": settings.kafka.cluster_name, "period_start": tables.utc(now_ms - before * HOUR_MS),
            "period_end": tables.utc(now_ms - (before - 1) * HOUR_MS), "topic": key[0], "partition": key[1],
            "bytes_in_per_sec": rate, "bytes_out_per_sec": 0.0, "messages_in_per_sec": None, "covered_ms": 1,
            "window_count": 60, "updated_at": tables.utc(now_ms),
        }
        for before, given in by_hour.items()
        for key, rate in given.items()
    ]  # fmt: skip
    tables.append(
        settings.storage.tables, "partition_load_hourly", rows, transaction_id="test", transaction_version=len(by_hour)
    )


def write_lag(
    settings: Settings,
    group: str,
    key: tuple[str, int],
    *,
    end_ms: int,
    consumed_per_window: int,
    windows: int = 12,
    rack_id: str | None = None,
) -> None:
    """Closed windows of one group on one partition that takes 1,000 records a window, committed as they are read."""
    window_ms = settings.pipeline.window_ms
    rows = []
    for index in range(windows):
        start_ms = end_ms - (windows - index) * window_ms
        ends, commits = 1_000 * index, consumed_per_window * index
        rows.append({
            "kafka_cluster": settings.kafka.cluster_name, "window_start": tables.utc(start_ms),
            "window_end": tables.utc(start_ms + window_ms), "group_id": group, "topic": key[0], "partition": key[1],
            "committed_offset_first": commits, "committed_offset": commits + consumed_per_window - 1,
            "log_end_offset_first": ends, "log_end_offset": ends + 999, "log_start_offset": 0,
            "lag_records": ends + 999 - (commits + consumed_per_window - 1), "member_id": "m-1", "client_id": "c-1",
            "group_state": "Stable", "generation_id": 1, "first_event_time_ms": start_ms,
            "last_event_time_ms": start_ms + window_ms - 1, "sample_count": 5, "covered_ms": window_ms,
            "is_final": True, "updated_at": tables.utc(start_ms), "batch_id": 0, "query_id": "q", "rack_id": rack_id,
        })  # fmt: skip
    tables.append(
        settings.storage.tables, "group_lag", rows, transaction_id=f"lag:{group}:{key}", transaction_version=end_ms
    )


def window_columns(kafka_cluster: str, start_ms: int, window_ms: int) -> dict[str, Any]:
    """Columns that all rows of one closed window have in common, of all window tables."""
    return {
        "kafka_cluster": kafka_cluster, "window_start": tables.utc(start_ms),
        "window_end": tables.utc(start_ms + window_ms), "covered_ms": window_ms, "sample_count": 5,
        "first_event_time_ms": start_ms, "last_event_time_ms": start_ms + window_ms - 1, "is_final": True,
        "updated_at": tables.utc(start_ms), "batch_id": 0, "query_id": "q",
    }  # fmt: skip
