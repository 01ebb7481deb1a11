"""Tables as the pipeline and control would leave them, written with delta-rs: small, exact, of any size wanted."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assignor_core.deciding.trace import Traced
from assignor_core.skew import skew_of
from streaming import tables
from streaming.settings import Settings

NOW_MS = 1_795_236_000_000
WINDOW_MS = 60_000


def settings_for(folder: Path | str, **sections: Mapping[str, Any]) -> Settings:
    """Settings with tables in `folder`, or in memory below a root like `memory:NAME`; on any free port."""
    storage = {"tables": str(folder)}
    if isinstance(folder, Path):
        storage = {"tables": str(folder / "tables"), "checkpoints": str(folder / "checkpoints")}
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "test"},
            "storage": storage,
            **sections,
            "serve": {"port": 0, "refresh_interval_ms": 200, **sections.get("serve", {})},
        }
    )


DETAILS = {
    "balanced": "all brokers are below the threshold of 1.30",
    "skewed": "skewed: bytes_in max/mean 1.460; broker 1 over 1.3 in 3 of the last 3 windows",
    "approved": "approved by ada",
    "started": "plan aaaaaaaaaaaa with 6 movements",
    "submitted": "6 reassignments",
    "progress": "4 of 6 movements",
    "done": "every movement has been made",
}
"""What decider and executor write of what happened; pictures of the docs show it."""


@dataclass(slots=True)
class Synthetic:
    """Writes rows below `root`; every call is one commit, except inside `together`."""

    root: str
    cluster: str = "test"
    _commits: int = 0
    _kept: dict[str, list[Mapping[str, Any]]] | None = None

    def append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if self._kept is not None:
            self._kept.setdefault(name, []).extend(rows)
            return
        self._commits += 1
        tables.append(self.root, name, rows, transaction_id=f"{self.cluster}:{name}", transaction_version=self._commits)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written meanwhile becomes one commit of each table: a commit takes longer than its rows."""
        if self._kept is not None:  # a part of what is written together already
            yield
            return
        kept: dict[str, list[Mapping[str, Any]]] = {}
        self._kept = kept
        yield
        self._kept = None
        for name, rows in kept.items():
            self.append(name, rows)

    def window(self, start_ms: int) -> dict[str, Any]:
        """Columns that all window tables share."""
        end = tables.utc(start_ms + WINDOW_MS)
        return {
            "kafka_cluster": self.cluster, "window_start": tables.utc(start_ms), "window_end": end, "sample_count": 6,
            "first_event_time_ms": start_ms, "last_event_time_ms": start_ms + 55_000, "is_final": True,
            "updated_at": end, "batch_id": 1, "query_id": "q",
        }  # fmt: skip

    def broker_load(self, start_ms: int, bytes_in: Mapping[int, float | None], **columns: Any) -> None:
        """One window with these rates by broker."""
        nothing = ("replication_bytes_in", "replication_bytes_out", "reassignment_bytes_in", "reassignment_bytes_out")
        common = {
            **self.window(start_ms), **{f"{name}_per_sec": 0.0 for name in nothing},
            "log_dir_used_bytes": 1_000_000_000, "log_dir_usable_bytes": 9_000_000_000, "covered_ms": WINDOW_MS,
            "groups_left_out": 0, "group_partitions_left_out": 0, "requests_refused": 0,
        }  # fmt: skip
        rows = [
            {
                **common, "broker": broker, "rack": f"r{broker % 3}", "bytes_in_per_sec": rate,
                "bytes_in_per_sec_max": rate, "bytes_out_per_sec": None if rate is None else 2 * rate,
                "messages_in_per_sec": None if rate is None else rate / 40, **columns,
            }
            for broker, rate in bytes_in.items()
        ]  # fmt: skip
        self.append("broker_load", rows)

    def broker_hour(self, start_ms: int, broker: int, bytes_in: float, *, used: int, usable: int) -> None:
        """One hour of one broker, which only clients write to; `used` and `usable` are bytes on its disks."""
        end = tables.utc(start_ms + 3_600_000)
        row = {
            "kafka_cluster": self.cluster, "period_start": tables.utc(start_ms), "period_end": end, "updated_at": end,
            "broker": broker, "bytes_in_per_sec": bytes_in, "bytes_out_per_sec": bytes_in,
            "log_dir_used_bytes": used, "log_dir_usable_bytes": usable, "covered_ms": 3_600_000, "window_count": 60,
        }  # fmt: skip
        self.append("broker_load_hourly", [row])

    def partition_load(self, start_ms: int, rows: Sequence[tuple[int, str, int, str, float]], **columns: Any) -> None:
        """One window; rows are (broker, topic, partition, role, bytes in per second)."""
        common = {**self.window(start_ms), "size_bytes": 1_000_000, "covered_ms": WINDOW_MS}
        written = [
            {
                **common, "broker": broker, "topic": topic, "partition": partition, "role": role,
                "bytes_in_per_sec": rate, "bytes_out_per_sec": rate, "messages_in_per_sec": rate / 40, **columns,
            }
            for broker, topic, partition, role, rate in rows
        ]  # fmt: skip
        self.append("partition_load", written)

    def group_lag(self, start_ms: int, rows: Sequence[tuple[str, str, int, int | None, int]], **columns: Any) -> None:
        """One window; rows are (group, topic, partition, committed offset, log end offset)."""
        common = {
            **self.window(start_ms), "log_start_offset": 0, "member_id": "m", "client_id": "c",
            "group_state": "Stable", "generation_id": 1,
        }  # fmt: skip
        written = []
        for group, topic, partition, committed, end in rows:
            lag = None if committed is None else end - committed
            written.append({
                **common, "group_id": group, "topic": topic, "partition": partition, "committed_offset": committed,
                "committed_offset_first": committed, "log_end_offset": end, "log_end_offset_first": end,
                "lag_records": lag, "lag_records_max": lag, **columns,
            })  # fmt: skip
        self.append("group_lag", written)

    def group_event(self, start_ms: int, group: str, rebalances: int = 1, **columns: Any) -> None:
        """A rebalance seen in the window that starts then."""
        row = {
            "kafka_cluster": self.cluster, "window_start": tables.utc(start_ms), "group_id": group,
            "after_ms": start_ms - 5_000, "until_ms": start_ms + 55_000, "cause": "members joined",
            "group_state": "Stable", "rebalances": rebalances, "members": 1, "members_in_json": "[]",
            "members_out_json": "[]", "restarts": 0, "partitions_moved": 0, "partitions_unowned": 0, **columns,
        }  # fmt: skip
        self.append("group_event", [row])

    def batch_row(self, finished_ms: int, query: str = "byte_rate", **columns: Any) -> None:
        row = {
            "query_name": query, "query_id": f"id-{query}", "batch_id": 7, "finished_at": tables.utc(finished_ms),
            "duration_ms": 1_500, "input_rows": 63, "batches_total": 8, "input_rows_total": 504,
            "rejected_rows_total": 0, "late_rows_total": 0, "watermark": tables.utc(finished_ms - 30_000),
            "source_lag_records": 12, "state_rows": 300, "state_memory_bytes": 65_536, "trigger_interval_ms": 5_000,
            "phases_json": '{"addBatch": 900, "triggerExecution": 1500, "getBatch": 10}', **columns,
        }  # fmt: skip
        self.append("pipeline_batch", [row])

    def rejected(self, rejected_ms: int, reasons: Sequence[str], topic: str = "rebalancer.byte-rate") -> None:
        at = tables.utc(rejected_ms)
        common = {"source_topic": topic, "source_partition": 0, "record_time": at, "value": b"{", "rejected_at": at}
        rows = [{**common, "source_offset": offset, "reason": reason} for offset, reason in enumerate(reasons)]
        self.append("rejected_record", rows)

    def decision(self, decided_ms: int, verdict: str = "hold", reason: str = "balanced", **columns: Any) -> None:
        row = {
            "decision_id": f"{self.cluster}-{decided_ms}", "kafka_cluster": self.cluster,
            "decided_at": tables.utc(decided_ms), "window_end": tables.utc(decided_ms - 30_000), "verdict": verdict,
            "reason": reason, "detail": DETAILS.get(reason, f"{reason} for a test"), "resource": "bytes_in",
            "max_over_mean": 1.1, "threshold_enter": 1.3, "threshold_exit": 1.15, "breached": False,
            "completeness_ratio": 1.0, "brokers_expected": 3, "brokers_reporting": 3, "mode": "propose",
            "skew_json": "{}", "state_json": "{}", **columns,
        }  # fmt: skip
        self.append("decision", [row])

    def plan(self, created_ms: int, plan_id: str = "a" * 64, **columns: Any) -> None:
        figures = {"max_over_mean_before": 1.45, "max_over_mean_after": 1.02, "lower_bound": 1.0}
        resources = ("bytes_in", "bytes_out", "disk", "leaders", "replicas")
        row = {
            "plan_id": plan_id, "kafka_cluster": self.cluster, "created_at": tables.utc(created_ms),
            "expires_at": tables.utc(created_ms + 3_600_000), "mode": "apply", "movement_count": 6,
            "leader_movement_count": 2, "bytes_to_move": 123_000_000, "planning_ms": 420, "plan_json": "{}",
            **{f"{resource}_{name}": value for resource in resources for name, value in figures.items()}, **columns,
        }  # fmt: skip
        self.append("plan", [row])

    def movements(
        self,
        created_ms: int,
        rows: Sequence[tuple[str, int, list[int], list[int]]],
        plan_id: str,
        *,
        per_wave: int | None = None,
    ) -> None:
        """Movements of a plan; rows are (topic, partition, old replicas, new replicas)."""
        written = []
        for sequence, (topic, partition, old, new) in enumerate(rows):
            copies = set(old) != set(new)
            written.append({
                "plan_id": plan_id, "sequence": sequence, "created_at": tables.utc(created_ms), "topic": topic,
                "partition": partition, "kind": "replica" if copies else "leader", "old_replicas": old,
                "new_replicas": new, "bytes_to_move": 20_500_000 if copies else 0,
                "reason": f"broker {old[0]} is over the mean of bytes in",
                "wave": None if per_wave is None else sequence // per_wave,
            })  # fmt: skip
        self.append("movement", written)

    def event(self, event_ms: int, sequence: int, event: str, execution_id: str = "e-1", **columns: Any) -> None:
        row = {
            "execution_id": execution_id, "sequence": sequence, "plan_id": "a" * 64, "kafka_cluster": self.cluster,
            "event_time": tables.utc(event_ms), "event": event, "detail": DETAILS.get(event, f"{event} for a test"),
            "movements_total": 6, "movements_done": 0, "bytes_total": 123_000_000, "bytes_moved": 0,
            "bytes_in_max_over_mean_before": 1.45, "bytes_in_max_over_mean_predicted": 1.02, "owner": "host/1",
            **columns,
        }  # fmt: skip
        self.append("execution", [row])

    def measured_plan(self, number: int, done_ms: int, *, factor: float | None) -> None:
        """A plan that was carried out, measured `factor` times the max/mean that it promised; None: within brokers."""
        execution_id, plan_id = f"e-{number}", f"{number:064d}"
        result = {
            "bytes_in_max_over_mean_measured": factor and 1.02 * factor,
            "bytes_moved": 123_000_000,
            "movements_done": 6,
        }
        self.plan(done_ms - 60_000, plan_id, plan_json=json.dumps({"waves": [{"duration_ms": 50_000}]}))
        for sequence, event in enumerate(("approved", "started", "done", "measured")):
            at_ms = done_ms - 50_000 if sequence < 2 else done_ms
            columns = result if event == "measured" else {}
            self.event(at_ms, sequence, event, execution_id=execution_id, plan_id=plan_id, **columns)


def skewed_cluster(synthetic: Synthetic, now_ms: int) -> None:
    """A cluster that has everything: three brokers, one far over, groups that lag, a plan under way."""
    start_ms = now_ms - now_ms % WINDOW_MS - 10 * WINDOW_MS
    with synthetic.together():
        for index in range(9):
            _write_skewed_window(synthetic, start_ms, index)
    synthetic.group_event(start_ms + 4 * WINDOW_MS, "billing")
    for query in ("byte_rate", "consumer_lag", "rejects"):
        synthetic.batch_row(now_ms - 4_000, query)
    synthetic.rejected(now_ms - 120_000, ["not_json", "future", "future"])
    breach = {"breached": True, "breach_started_at": tables.utc(now_ms - 300_000)}
    synthetic.decision(now_ms - 360_000)
    looked_at = [Traced("broker_failed", is_found=False), Traced("log_dir_full", is_found=False)]
    skewed, passed = "bytes_in max/mean 1.46; broker 1 over 1.3 in 3 of the last 3 windows", ("sound data", "low load")
    made = Traced("skewed", is_found=True, text=skewed, passed=(*passed, "in progress", "cooldown", "gain"))
    held = Traced("skewed", True, skewed, passed, "in progress", "6 partitions are being reassigned")
    synthetic.decision(
        now_ms - 70_000, "plan", "skewed", plan_id="a" * 64, **breach, **_seen(start_ms, 7),
        trace=json.dumps([row.to_json() for row in (*looked_at, made)]),
    )  # fmt: skip
    synthetic.decision(
        now_ms - 20_000, "hold", "in_progress", **breach, **_seen(start_ms, 8),
        trace=json.dumps([row.to_json() for row in (*looked_at, held)]),
        cooldown_end_at=tables.utc(now_ms + 500_000), detail="6 partitions are being reassigned",
    )  # fmt: skip
    synthetic.event(now_ms - 3_700_001, 0, "approved", execution_id="e-0")
    synthetic.event(now_ms - 3_700_000, 1, "started", execution_id="e-0")
    synthetic.event(now_ms - 3_600_000, 2, "done", execution_id="e-0", movements_done=6, bytes_moved=123_000_000)
    synthetic.plan(now_ms - 70_000, decision_id=f"{synthetic.cluster}-{now_ms - 70_000}")
    moved = [("topic-A", number, [1, 2], [2, 3] if number > 1 else [2, 1]) for number in range(6)]
    synthetic.movements(now_ms - 70_000, moved, "a" * 64, per_wave=4)
    synthetic.event(now_ms - 69_000, 0, "approved")
    synthetic.event(now_ms - 68_000, 1, "started", throttle_bytes_per_sec=50_000_000, throttled_brokers=[1, 2])
    synthetic.event(
        now_ms - 67_000, 2, "submitted", throttle_bytes_per_sec=50_000_000, movements_made=[],
        movements_under_way=[0, 1, 2, 3],
    )  # fmt: skip
    synthetic.event(
        now_ms - 12_000, 3, "progress", throttle_bytes_per_sec=50_000_000, movements_done=4, bytes_moved=80_000_000,
        movements_made=[0, 1, 2, 3], movements_under_way=[4],
    )  # fmt: skip


def _seen(first_ms: int, index: int) -> dict[str, Any]:
    """What a decision keeps of that window."""
    loads = {1: 4.2e6 * (1.0 + 0.05 * index) + 4e5, 2: 2.9e6, 3: 3.5e6}
    skew = skew_of(loads)
    figures = {
        "max_over_mean": skew.max_over_mean,
        "coefficient_of_variation": skew.coefficient_of_variation,
        "deviation": {str(broker): deviation for broker, deviation in skew.deviation.items()},
    }
    return {
        "window_end": tables.utc(first_ms + (index + 1) * WINDOW_MS),
        "max_over_mean": skew.max_over_mean,
        "skew_json": json.dumps({"bytes_in": figures}),
    }


def _write_skewed_window(synthetic: Synthetic, first_ms: int, index: int) -> None:
    start_ms = first_ms + index * WINDOW_MS
    lean = 1.0 + 0.05 * index
    synthetic.broker_load(start_ms, {1: 4.2e6 * lean, 2: 2.5e6, 3: 3.1e6}, replication_bytes_in_per_sec=4.0e5)
    synthetic.partition_load(
        start_ms,
        [(1 + (p > 14) + (p > 21), "topic-A", p, "leader", 2.8e5 - p * 1_000) for p in range(30)]
        + [(1 + (p > 4) + (p > 17), "topic-B", p, "leader", 9.0e4) for p in range(30)],
    )
    synthetic.group_lag(
        start_ms,
        [("billing", "topic-A", p, 10_000 * (index + 1), 10_000 * (index + 1) + 900 * p) for p in range(30)]
        + [("audit", "topic-B", p, 5_000, 5_000 + 40 * index) for p in range(30)],
        log_start_offset=2_000,
    )
