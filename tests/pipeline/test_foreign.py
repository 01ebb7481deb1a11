"""Other tools' topics through the whole job: counters into rates across restarts and resets, misfits told."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import tables
from streaming.cluster.clients import admin_client
from streaming.settings import Settings
from tests.pipeline.test_adapters import sample
from tests.pipeline.test_state_partitions import settled, start
from tests.pipeline.test_windows import (
    BASE_MS,
    drain,
    encode,
    lag_record,
    load_record,
    make_topics,
    own,
    send,
    session,
    stop,
)
from tests.topics import wait_until_known

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

__all__ = ["own", "session", "settled"]  # the fixtures

HOST = "http://kafka-2:8778/jolokia"


def telegraf(offset_ms: int, **counters: int) -> bytes:
    fields = {f"{name}PerSec.Count": value for name, value in counters.items()}
    metric = {"name": "kafka_topics", "tags": {"jolokia_agent_url": HOST}, "fields": fields,
              "timestamp": BASE_MS + offset_ms}  # fmt: skip
    return json.dumps(metric).encode()


def lag_sample(name: str, value: int, offset_ms: int) -> bytes:
    labels = {"consumergroup": "g", "topic": "t", "partition": "0"}
    return json.dumps({**sample(name, str(value), **labels), "timestamp": BASE_MS + offset_ms}).encode()


@pytest.fixture
def foreign(own: Settings) -> Settings:
    """Settings with two foreign topics, which are made."""
    mark = own.topics.byte_rate.removeprefix("rate-")
    formats = {f"telegraf-{mark}": "telegraf-json", f"prometheus-{mark}": "prometheus-json"}
    topics = own.topics.model_copy(update={"foreign": formats, "broker_ids": {HOST: 2}})
    settings = own.model_copy(update={"topics": topics})
    make_topics(settings)
    admin = admin_client(settings.kafka)
    admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1} for name in formats})
    wait_until_known(admin, list(formats))
    admin.close()
    return settings


def test_counters_become_rates_and_misfits_are_told(settled: SparkSession, foreign: Settings) -> None:
    """Also where the number of state partitions changes in between."""
    from_telegraf, from_prometheus = foreign.topics.foreign
    send(foreign, foreign.topics.byte_rate, encode([load_record(1, 0, 1_000), load_record(2, None, 1_000)]))
    first: list[bytes | None] = [
        telegraf(6_000, BytesIn=3_000, ReplicationBytesIn=900, ReassignmentBytesIn=100),
        telegraf(1_000, BytesIn=1_000, ReplicationBytesIn=400, ReassignmentBytesIn=100),  # out of order
        telegraf(6_000, BytesIn=3_000, ReplicationBytesIn=900, ReassignmentBytesIn=100),  # told twice
        b'{"name": "cpu", "tags": {}, "fields": {"usage": 1}, "timestamp": 1}',  # not ours, no misfit
        b"{",
        json.dumps({"name": "x", "tags": {"host": "?"}, "fields": {"BytesInPerSec.Count": 1}, "timestamp": 1}).encode(),
    ]
    send(foreign, from_telegraf, first)
    send(
        foreign,
        from_prometheus,
        [lag_sample("kafka_consumergroup_lag", 50, 2_000), lag_sample("kafka_consumergroup_current_offset", 7, 2_000)],
    )
    held = [lag_record(number, 1_000, 5, 9, last_stable_offset=6) for number in (7, 8)]
    send(foreign, foreign.topics.consumer_lag, encode([*held, lag_record(8, 2_000, 5, 9)]))
    queries, _ = start(settled, of_number(foreign, 2))
    drain(queries)
    stop(queries)
    # The sample before the window was read by the run before; at 16 s the counter was set to zero.
    send(foreign, from_telegraf, [telegraf(12_000, BytesIn=9_000), telegraf(16_000, BytesIn=400)])
    queries, _ = start(settled, of_number(foreign, 3))
    drain(queries)
    stop(queries)

    assert (Path(foreign.storage.checkpoints) / "byte_rate-1").exists(), "begun again"
    loads = {
        (tables.to_ms(row["window_start"]) - BASE_MS, row["broker"]): row
        for row in tables.read(foreign.storage.tables, "broker_load")
    }
    assert loads.keys() == {(0, 2), (10_000, 2)}
    assert rates(loads[0, 2]) == (400.0, 100.0, 0.0, 5_000)
    assert loads[0, 2]["sample_count"] == 4
    assert loads[0, 2]["messages_in_per_sec"] == 1.0  # nobody else tells it: our own
    assert rates(loads[10_000, 2]) == (640.0, None, None, 10_000)  # 6,000 in 6 s, then 400 in 4 s
    assert loads[10_000, 2]["bytes_in_per_sec_max"] == 1_000.0
    (replica,) = tables.read(foreign.storage.tables, "partition_load")
    assert (replica["bytes_in_per_sec"], replica["role"], replica["sample_count"]) == (100.0, "leader", 1)

    lags = {row["partition"]: row for row in tables.read(foreign.storage.tables, "group_lag")}
    assert {number: lags.pop(number)["last_stable_offset"] for number in (7, 8)} == {7: 6, 8: None}
    (lag,) = lags.values()
    assert (lag["committed_offset"], lag["lag_records"], lag["log_end_offset"]) == (7, 50, 57)
    rejected = tables.read(foreign.storage.tables, "rejected_record")
    assert sorted((row["reason"], row["field"]) for row in rejected if row["source_topic"] == from_telegraf) == [
        ("not_json", None),
        ("unknown_broker", "host"),
    ]
    assert len(rejected) == 2


def of_number(settings: Settings, number: int) -> Settings:
    """The same with so many partitions of the state."""
    pipeline = settings.pipeline.model_copy(update={"shuffle_partitions": number})
    return settings.model_copy(update={"pipeline": pipeline})


def rates(row: dict[str, Any]) -> tuple[float | None, float | None, float | None, int]:
    return (
        row["bytes_in_per_sec"], row["replication_bytes_in_per_sec"], row["reassignment_bytes_in_per_sec"],
        row["covered_ms"],
    )  # fmt: skip
