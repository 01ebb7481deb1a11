"""What speaks against more copying right now: consumer groups that fall behind since an execution began.

Reads `group_lag`; which lag is too much the core says. Where nothing is known of a group nothing is held back for it:
the pipeline may be down, and the cluster's own health is looked at besides.
"""

import re
from collections import defaultdict

from assignor_core.execution.caution import LagBound, groups_falling_behind
from streaming import tables
from streaming.errors import UsageProblem
from streaming.settings import Settings

READ_INTERVAL_MS = 5_000
BASELINE_WINDOWS = 3
"""A group's lag at the start is its newest within so many windows before it."""


class LagPressure:
    """Looks again at most every few seconds."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bound = LagBound(settings.control.lag_growth_max, settings.control.lag_min_records)
        try:
            self._groups = re.compile(settings.control.lag_groups)
        except re.error as error:
            raise UsageProblem(f"control.lag_groups: {settings.control.lag_groups!r} is no pattern: {error}") from None
        self._read_ms = 0
        self._reason: str | None = None

    def reason(self, *, started_ms: int, now_ms: int) -> str | None:
        """Why to hold back, naming the group that fell furthest behind since `started_ms`; None if nothing does."""
        if now_ms - self._read_ms >= READ_INTERVAL_MS:
            self._read_ms = now_ms
            behind = groups_falling_behind(*self._lags(started_ms), self._bound)
            self._reason = _told(behind) if behind else None
        return self._reason

    def _lags(self, started_ms: int) -> tuple[dict[str, int], dict[str, int]]:
        """Lag in records by group: before `started_ms`, and now."""
        window_ms = self._settings.pipeline.window_ms
        where = tables.equal("kafka_cluster", self._settings.kafka.cluster_name) & tables.at_least(
            "window_start", tables.utc(max(0, started_ms - BASELINE_WINDOWS * window_ms))
        )
        columns = ["group_id", "topic", "partition", "lag_records", "window_start", "last_event_time_ms"]
        newest: tuple[dict[tuple[str, str, int], tables.Row], ...] = ({}, {})
        for row in tables.read(self._settings.storage.tables, "group_lag", columns=columns, where=where):
            if row["lag_records"] is None or not self._groups.search(row["group_id"]):
                continue
            side = newest[0] if row["last_event_time_ms"] <= started_ms else newest[1]
            key = (row["group_id"], row["topic"], row["partition"])
            if key not in side or side[key]["window_start"] < row["window_start"]:
                side[key] = row
        return _by_group(newest[0]), _by_group(newest[1])


def _told(behind: tuple[tuple[str, int, int], ...]) -> str:
    group, before, now = behind[0]
    return f"{len(behind)} consumer groups fall behind, first {group}: {now:,} records, {before:,} at the start"


def _by_group(rows: dict[tuple[str, str, int], tables.Row]) -> dict[str, int]:
    totals: dict[str, int] = defaultdict(int)
    for (group, _, _), row in sorted(rows.items()):
        totals[group] += row["lag_records"]
    return dict(totals)
