"""The control loop on real brokers, fed with windows that a pipeline would have written: decide, plan, act, measure."""

import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from kafka import KafkaAdminClient

from assignor_core.execution.events import Event, EventRecord, Figures
from assignor_core.execution.life_cycle import begin
from assignor_core.live import LiveCluster
from assignor_core.resources import Resource
from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.control.run import ControlLoop
from streaming.control.windows import closed_windows
from streaming.control.wiring import journal_of, window_tables_of
from streaming.settings import Settings
from streaming.views.executions import row_of
from tests.control.windows import window_columns
from tests.topics import wait_until_known
from tests.waiting import until

pytestmark = pytest.mark.kafka

WINDOW_MS = 10_000
NOW_MS = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
RATE = 1e6


def in_mode(settings: Settings, mode: str) -> Settings:
    content = settings.model_dump()
    content["pipeline"] |= {"window_ms": WINDOW_MS, "watermark_ms": 1_000}
    content["trigger"] |= {"windows_over": 2, "windows_considered": 3, "resources": ["bytes_in"]}
    content["control"] |= {"mode": mode, "settle_windows": 1}
    content["planner"] |= {"windows": 3}
    return Settings.model_validate(content)


def make_topic(admin: KafkaAdminClient) -> str:
    """Six partitions, all on broker 1."""
    topic = f"control-{uuid.uuid4().hex[:8]}"
    admin.create_topics({topic: {"assignments": {number: [1] for number in range(6)}}})
    wait_until_known(admin, [topic])
    return topic


def write_window(settings: Settings, live: LiveCluster, topic: str, start_ms: int, brokers: tuple[int, ...]) -> None:
    """The rows of one window: every partition of `topic` takes RATE, everything else nothing."""
    audit = window_columns(settings.kafka.cluster_name, start_ms, WINDOW_MS)
    partitions = [
        {**audit, "broker": row.leader, "topic": key[0], "partition": key[1], "role": "leader",
         "bytes_in_per_sec": RATE if key[0] == topic else 0.0, "bytes_out_per_sec": 0.0, "size_bytes": 1_000}
        for key, row in live.partitions.items()
    ]  # fmt: skip
    led = {broker: sum(row["broker"] == broker and row["topic"] == topic for row in partitions) for broker in brokers}
    totals = [{**audit, "broker": broker, "bytes_in_per_sec": RATE * count} for broker, count in led.items()]
    for name, rows in (("partition_load", partitions), ("broker_load", totals)):
        tables.append(settings.storage.tables, name, rows, transaction_id="test", transaction_version=start_ms)


def run_until(loop: ControlLoop, settings: Settings, event: str) -> list[dict[str, Any]]:
    def events() -> list[dict[str, Any]] | None:
        loop.tick(now_ms=NOW_MS)
        rows = sorted(tables.read(settings.storage.tables, "execution"), key=lambda row: row["sequence"])
        return rows if any(row["event"] == event for row in rows) else None

    return until(event, events, pause_s=0.1)


def decisions(settings: Settings) -> list[Mapping[str, Any]]:
    return sorted(tables.read(settings.storage.tables, "decision"), key=lambda row: row["window_end"])


def test_skew_is_found_planned_carried_out_and_measured(settings: Settings, admin: KafkaAdminClient) -> None:
    own = in_mode(settings, "apply")
    topic = make_topic(admin)
    cluster = Cluster(admin)
    loop = ControlLoop(cluster, own, now_ms=NOW_MS)
    live = cluster.describe()
    for index in (4, 3, 2):
        write_window(own, live, topic, NOW_MS - index * WINDOW_MS, (1, 2, 3))
        loop.tick(now_ms=NOW_MS)
    assert [row["reason"] for row in decisions(own)][:2] == ["not_enough_windows", "skewed"]
    events = run_until(loop, own, "done")
    assert [row["event"] for row in events][:2] == ["approved", "started"]
    leaders = [row.leader for key, row in cluster.describe().partitions.items() if key[0] == topic]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    write_window(own, cluster.describe(), topic, NOW_MS, (1, 2, 3))
    measured = run_until(loop, own, "measured")[-1]
    assert measured["bytes_in_max_over_mean_measured"] == pytest.approx(1.0)
    assert measured["bytes_in_max_over_mean_before"] == pytest.approx(3.0)
    # Leaders of other tests' topics are in this, too, and Kafka may elect them meanwhile: only the bounds are certain.
    assert 1.0 <= measured["leaders_max_over_mean_measured"] <= 3.0
    assert measured["disk_max_over_mean_measured"] is None  # the windows know no disk


def test_in_mode_propose_a_plan_waits_and_a_restart_does_not_decide_twice(
    settings: Settings, admin: KafkaAdminClient
) -> None:
    own = in_mode(settings, "propose")
    topic = make_topic(admin)
    cluster = Cluster(admin)
    live = cluster.describe()
    for index in (3, 2):
        write_window(own, live, topic, NOW_MS - index * WINDOW_MS, (1, 2, 3))
    ControlLoop(cluster, own, now_ms=NOW_MS).tick(now_ms=NOW_MS)
    assert len(tables.read(own.storage.tables, "plan")) == 1
    ControlLoop(cluster, own, now_ms=NOW_MS).tick(now_ms=NOW_MS)  # as after a crash
    assert len(tables.read(own.storage.tables, "plan")) == 1
    assert len(decisions(own)) == 1
    assert tables.read(own.storage.tables, "execution") == []
    assert {row.leader for key, row in cluster.describe().partitions.items() if key[0] == topic} == {1}


def test_a_broker_without_samples_makes_a_window_incomplete(settings: Settings, admin: KafkaAdminClient) -> None:
    own = in_mode(settings, "apply")
    topic = make_topic(admin)
    cluster = Cluster(admin)
    for index in (3, 2):
        write_window(own, cluster.describe(), topic, NOW_MS - index * WINDOW_MS, (1, 2))
    ControlLoop(cluster, own, now_ms=NOW_MS).tick(now_ms=NOW_MS)
    assert [row["reason"] for row in decisions(own)] == ["incomplete"]
    assert decisions(own)[0]["detail"] == "2 of 3 brokers reported in the newest window"


def test_a_window_is_closed_only_once_nothing_can_change_it(settings: Settings, admin: KafkaAdminClient) -> None:
    own = in_mode(settings, "propose")
    topic = make_topic(admin)
    live = Cluster(admin).describe()
    for index in (3, 2):
        write_window(own, live, topic, NOW_MS - index * WINDOW_MS, (1, 2, 3))
    tables.open_table(own.storage.tables, "broker_load").update(updates={"is_final": "false"})  # type: ignore[union-attr]
    # The newest event is 10 s past the end of the first window and before the end of the second.
    assert [window.start_ms for window in closed_windows(window_tables_of(own), now_ms=NOW_MS)] == [
        NOW_MS - 3 * WINDOW_MS
    ]


def test_automatic_mode_stops_after_plans_that_brought_nothing(settings: Settings, admin: KafkaAdminClient) -> None:
    own = in_mode(settings, "apply")
    topic = make_topic(admin)
    cluster, journal = Cluster(admin), journal_of(own)
    journal.make_tables()
    for index in range(own.control.bad_plans_max):
        before, predicted = ({Resource.BYTES_IN: ratio} for ratio in (3.0, 1.0))
        figures = Figures(1, 1, movements_done=1, bytes_moved=1, before=before, predicted=predicted)
        measured = replace(figures, measured={Resource.BYTES_IN: 2.9})
        for sequence, event in enumerate((Event.APPROVED, Event.STARTED, Event.DONE, Event.MEASURED)):
            shown = measured if event is Event.MEASURED else figures
            written = EventRecord(event, sequence, NOW_MS - 100_000 + index, event, shown)
            if sequence == 0:
                execution = begin(f"bad-{index}", "p", written)
            row = row_of(execution, written, kafka_cluster=own.kafka.cluster_name, owner="a test")
            tables.append(
                own.storage.tables, "execution", [row], transaction_id=f"bad-{index}", transaction_version=sequence
            )
    loop = ControlLoop(cluster, own, now_ms=NOW_MS)
    for index in (3, 2):
        write_window(own, cluster.describe(), topic, NOW_MS - index * WINDOW_MS, (1, 2, 3))
    refused = next(row for row in run_until(loop, own, "refused") if row["event"] == "refused")
    assert "the last 2 plans brought less than half" in refused["detail"]
    # In one row: killed between an approval and its refusal, the next control would begin it.
    rows = tables.read(own.storage.tables, "execution")
    assert [row["event"] for row in rows if row["execution_id"] == refused["execution_id"]] == ["refused"]
    assert {row.leader for key, row in cluster.describe().partitions.items() if key[0] == topic} == {1}


def test_an_approval_that_was_called_off_is_never_begun(settings: Settings, admin: KafkaAdminClient) -> None:
    own = in_mode(settings, "propose")
    topic = make_topic(admin)
    cluster, journal = Cluster(admin), journal_of(own)
    loop = ControlLoop(cluster, own, now_ms=NOW_MS)
    for index in (3, 2):
        write_window(own, cluster.describe(), topic, NOW_MS - index * WINDOW_MS, (1, 2, 3))
    loop.tick(now_ms=NOW_MS)
    plan_id = tables.read(own.storage.tables, "plan")[0]["plan_id"]
    record = journal.approve(journal.plan(plan_id), "a test", now_ms=NOW_MS)
    journal.request_abort(record, "a person", now_ms=NOW_MS)
    assert [row["event"] for row in run_until(loop, own, "aborted")] == ["approved", "aborted", "abort_requested"]
    assert {row.leader for key, row in cluster.describe().partitions.items() if key[0] == topic} == {1}


def test_one_row_at_a_time_does_not_leave_one_file_a_row(settings: Settings, admin: KafkaAdminClient) -> None:
    own = in_mode(settings, "observe")
    topic = make_topic(admin)
    cluster = Cluster(admin)
    loop = ControlLoop(cluster, own, now_ms=NOW_MS)
    for index in (5, 4, 3, 2):
        write_window(own, cluster.describe(), topic, NOW_MS - index * WINDOW_MS, (1, 2, 3))
        loop.tick(now_ms=NOW_MS)
    assert len(files(own, "decision")) == 4
    loop.tick(now_ms=NOW_MS + own.pipeline.maintenance_interval_ms)
    assert len(files(own, "decision")) == 1
    assert len(decisions(own)) == 4


def files(settings: Settings, name: str) -> list[str]:
    table = tables.open_table(settings.storage.tables, name)
    assert table is not None
    return table.file_uris()
