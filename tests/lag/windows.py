"""Records of the two topics as windows of the tables, in plain Python: what the pipeline does, without Spark."""

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from streaming import tables
from streaming.views.group_columns import PartitionKeys, windows_of
from streaming.views.group_picture import NO_RULES, SHOWN, LagPicture, LagRules, current_since, picture_of
from streaming.views.group_store import rebalancing_since

GROUP_FACTS = (
    "generation_id", "group_type", "group_members", "assignor", "group_instance_id", "rack_id", "target_member_id",
    "subscribed_topic_regex", "topology_epoch", "share_start_offset", "last_stable_offset", "client_host",
    "cleanup_policy",
)  # fmt: skip


class Windows:
    """First and newest sample of each window, group and partition."""

    def __init__(self, cluster: str, window_ms: int) -> None:
        self._cluster = cluster
        self._window_ms = window_ms
        self._records: dict[tuple[Any, ...], list[dict[str, Any]]] = {}

    def add(self, values: Iterable[bytes]) -> None:
        """Records as they are on the topic, in the order of their event time."""
        for value in values:
            record = json.loads(value)
            start_ms = record["event_time_ms"] // self._window_ms * self._window_ms
            key = (start_ms, record["group"], record["topic"], record["partition"])
            self._records.setdefault(key, []).append(record)

    def rows(self) -> list[dict[str, Any]]:
        """Rows by the table's columns, those that lag is judged by."""
        return [self._row(key[0], records) for key, records in sorted(self._records.items())]

    def _row(self, start_ms: int, records: list[dict[str, Any]]) -> dict[str, Any]:
        first, last = records[0], records[-1]
        return {
            "kafka_cluster": self._cluster,
            "window_start": tables.utc(start_ms),
            "window_end": tables.utc(start_ms + self._window_ms),
            "group_id": last["group"],
            **{name: last[name] for name in ("topic", "partition", "committed_offset", "log_end_offset", "lag_records",
                                             "log_start_offset", "member_id", "client_id", "group_state")},
            **{name: last.get(name) for name in GROUP_FACTS},
            "committed_offset_first": first["committed_offset"],
            "log_end_offset_first": first["log_end_offset"],
            "first_event_time_ms": first["event_time_ms"],
            "last_event_time_ms": last["event_time_ms"],
        }  # fmt: skip


class LoadWindows:
    """Mean rates of each window and replica, and of each window and broker, weighted by the time of each sample."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._records: dict[tuple[int, int, str | None, int | None], list[dict[str, Any]]] = {}

    def add(self, values: Iterable[bytes]) -> None:
        """Records as they are on the topic."""
        for value in values:
            record = json.loads(value)
            start_ms = record["event_time_ms"] // self._window_ms * self._window_ms
            key = (start_ms, record["broker"], record["topic"], record["partition"])
            self._records.setdefault(key, []).append(record)

    def partition_rows(self) -> list[dict[str, Any]]:
        """Rows of `partition_load` that the diagnosis reads, of windows that are over."""
        return [
            {
                **self._row(key[0], records),
                **{name: records[-1][name] for name in ("topic", "partition", "role", "size_bytes")},
            }
            for key, records in self._over()
            if key[2] is not None
        ]

    def broker_rows(self) -> list[dict[str, Any]]:
        """Rows of `broker_load`, of windows that are over."""
        names = ("replication_bytes_in_per_sec", "replication_bytes_out_per_sec")
        return [
            {**self._row(key[0], records), **{name: _mean(records, name) for name in names}}
            for key, records in self._over()
            if key[2] is None
        ]

    def _over(self) -> list[tuple[tuple[int, int, str | None, int | None], list[dict[str, Any]]]]:
        newest_ms = max((key[0] for key in self._records), default=0)
        return [(key, records) for key, records in self._records.items() if key[0] < newest_ms]

    def _row(self, start_ms: int, records: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "window_start": tables.utc(start_ms),
            "window_end": tables.utc(start_ms + self._window_ms),
            "broker": records[-1]["broker"],
            "covered_ms": self._window_ms,
            **{name: _mean(records, name) for name in ("bytes_in_per_sec", "bytes_out_per_sec", "messages_in_per_sec")},
        }


def _mean(records: list[dict[str, Any]], name: str) -> float | None:
    known = [(record[name], record["interval_ms"]) for record in records if record[name] is not None]
    return sum(rate * ms for rate, ms in known) / sum(ms for _, ms in known) if known else None


def judge(rows: pa.Table, *, window_ms: int, rules: LagRules = NO_RULES) -> LagPicture | None:
    """Verdicts on `rows`, windows of one cluster's `group_lag` with `COLUMNS` in any order; None of no rows.

    All windows at once: a view reads the newest whole, and older ones only where a verdict needs them.
    """
    names = PartitionKeys.empty()
    found = list(windows_of(rows, names))
    if not found:
        return None
    current_ms = tables.to_ms(current_since(tables.utc(found[-1][0].start_ms), window_ms=window_ms))
    texts = rows.select(SHOWN).unify_dictionaries()
    shown = {one.start_ms: texts.take(pa.array(places)) for one, places in found if one.start_ms >= current_ms}
    windows = [window for window, _ in found]
    rebalancing = rebalancing_since(rows)
    return picture_of(
        windows, shown, names, window_ms=window_ms, rebalancing_since=lambda _groups: rebalancing, rules=rules
    )
