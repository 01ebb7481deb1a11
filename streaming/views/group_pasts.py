"""Rebalances and membership of each group, from one look at the group a window of `group_lag`.

Owns which windows are read and what a look is; telling rebalances from looks is the core's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

from assignor_core.group.events import GroupAdvice, GroupEvent, GroupLook, advice, group_events
from streaming.settings import Settings
from streaming.tables import ALL_ROWS, Condition, TableReader, at_least, equal, of_cluster
from streaming.views.group_looks import LOOK_COLUMNS, known_members, look_of

LOOK_BACK_MS = 6 * 3_600_000
WINDOWS_MAX = 720
"""Bounds what is read, however short the windows are."""
ROWS_MAX = 50_000
"""Rows that are read of one group: each takes a kilobyte."""


@dataclass(frozen=True, slots=True)
class GroupPast:
    """One group over the windows read: its events, oldest first, what to do about them, and its newest look."""

    group: str
    state: str | None
    group_type: str | None
    members: int | None
    """All members, or where only partitions were seen those that own some; None where they are unknown."""
    advice: GroupAdvice
    events: tuple[GroupEvent, ...]


def look_back_ms(settings: Settings) -> int:
    """Span before the newest window that is read."""
    return min(LOOK_BACK_MS, WINDOWS_MAX * settings.pipeline.window_ms)


def read_group_pasts(reader: TableReader, settings: Settings) -> list[GroupPast]:
    """Every group, most rebalances first; nothing where no window is. Raises TableUnavailable."""
    return _read(reader, settings, ALL_ROWS, look_back_ms(settings))


def read_group_past(reader: TableReader, settings: Settings, group_id: str, *, partitions: int) -> GroupPast | None:
    """One group, which has so many partitions; None where it is in no window. Raises TableUnavailable.

    Of a large group fewer windows are read: `ROWS_MAX` rows or so.
    """
    windows = max(2, ROWS_MAX // max(1, partitions))
    span_ms = min(look_back_ms(settings), windows * settings.pipeline.window_ms)
    pasts = _read(reader, settings, equal("group_id", group_id), span_ms)
    return pasts[0] if pasts else None


def _read(reader: TableReader, settings: Settings, of_group: Condition, span_ms: int) -> list[GroupPast]:
    own = of_cluster(settings.kafka.cluster_name)
    newest = reader.newest_of_cluster("group_lag", "window_start", settings.kafka.cluster_name)
    if newest is None:
        return []
    since = newest - timedelta(milliseconds=span_ms)
    rows = reader.rows("group_lag", columns=LOOK_COLUMNS, where=own & at_least("window_start", since) & of_group)
    rows.sort(key=lambda row: (row["group_id"], row["window_start"]))
    pasts = [_past(group, list(_looks(windows))) for group, windows in groupby(rows, key=_group_of)]
    return sorted(pasts, key=lambda past: (-past.advice.rebalances, past.group))


def _group_of(row: Mapping[str, Any]) -> str:
    return str(row["group_id"])


def _past(group: str, looks: list[GroupLook]) -> GroupPast:
    events, newest = group_events(looks), looks[-1]
    return GroupPast(
        group,
        newest.state,
        newest.group_type,
        known_members(newest.state, newest.member_count, len(newest.members)),
        advice(events, newest.group_type),
        tuple(events),
    )


def _looks(rows: Iterator[Mapping[str, Any]]) -> Iterator[GroupLook]:
    """One look a window."""
    for _, window in groupby(rows, key=lambda row: row["window_start"]):
        yield look_of(list(window))
