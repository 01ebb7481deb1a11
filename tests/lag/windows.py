"""Records of the lag topic as windows of `group_lag`, in plain Python: what the pipeline does, without Spark."""

import json
from collections.abc import Iterable
from typing import Any

from streaming import tables


class Windows:
    """First and newest sample of each window, group and partition."""

    def __init__(self, cluster: str, window_ms: int) -> None:
        self._cluster = cluster
        self._window_ms = window_ms
        self._found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}

    def add(self, values: Iterable[bytes]) -> None:
        """Records as they are on the topic, in the order of their event time."""
        for value in values:
            record = json.loads(value)
            start_ms = record["event_time_ms"] // self._window_ms * self._window_ms
            key = (start_ms, record["group"], record["topic"], record["partition"])
            self._found.setdefault(key, []).append(record)

    def rows(self) -> list[dict[str, Any]]:
        """Rows by the table's columns, those that lag is judged by."""
        return [self._row(key[0], records) for key, records in sorted(self._found.items())]

    def _row(self, start_ms: int, records: list[dict[str, Any]]) -> dict[str, Any]:
        first, last = records[0], records[-1]
        return {
            "kafka_cluster": self._cluster,
            "window_start": tables.utc(start_ms),
            "group_id": last["group"],
            **{name: last[name] for name in ("topic", "partition", "committed_offset", "log_end_offset", "lag_records",
                                             "log_start_offset", "member_id", "client_id", "group_state")},
            "committed_offset_first": first["committed_offset"],
            "log_end_offset_first": first["log_end_offset"],
            "first_event_time_ms": first["event_time_ms"],
            "last_event_time_ms": last["event_time_ms"],
        }  # fmt: skip
