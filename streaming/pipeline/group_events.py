"""Keeps `group_event`: rebalances told from each closed window of `group_lag` and the one before. Without Spark.

Runs in the process that writes `group_lag`, after its batches. What is written carries the newest window compared, so
comparing the same windows again writes nothing; a step that fails is told and left for the next time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa
import structlog
from pyarrow import compute as pc

from assignor_core.group.events import GroupEvent, GroupLook, group_events
from streaming import tables
from streaming.errors import TableUnavailable
from streaming.pipeline.maintenance import Maintenance
from streaming.schemas import GROUP_EVENT, GROUP_LAG
from streaming.settings import Settings

log = structlog.get_logger()

LOOK_BACK_WINDOWS = 60
"""Windows read after a start; a group that was not seen for so long begins anew."""

_COLUMNS = [
    "group_id", "topic", "partition", "member_id", "group_state", "generation_id", "window_start",
    "last_event_time_ms",
]  # fmt: skip

Row = Mapping[str, Any]


class GroupEventKeeper:
    """Appends what is new, at most once a window."""

    def __init__(self, settings: Settings) -> None:
        self._root = settings.storage.tables
        self._cluster = settings.kafka.cluster_name
        self._window_ms = settings.pipeline.window_ms
        self._maintenance = Maintenance(settings, GROUP_EVENT)
        self._due_ms = 0
        self._compared: datetime | None = None
        self._looks: dict[str, GroupLook] = {}

    def keep_if_due(self, *, now_ms: int) -> int:
        """Compare the windows that have closed since; returns how many events were written."""
        if now_ms < self._due_ms:
            return 0
        self._due_ms = now_ms + self._window_ms
        try:
            written = self._keep()
        except TableUnavailable as error:
            log.warning("group_events_not_kept", error=str(error))
            return 0
        if written:
            self._maintenance.run_if_due(now_ms=now_ms)
        return written

    def _keep(self) -> int:
        since = self._compared or self._look_back()
        if since is None:
            return 0
        where = (pc.field("kafka_cluster") == self._cluster) & (pc.field("window_start") > since) & pc.field("is_final")
        rows = tables.read(self._root, GROUP_LAG.name, columns=_COLUMNS, where=where)
        if not rows:
            return 0
        looks = dict(self._looks)
        events = [row for window in _windows(rows) for row in self._compare(looks, window)]
        newest = max(row["window_start"] for row in rows)
        fresh = events if self._compared else self._not_kept(events)
        if fresh:
            tables.append(
                self._root, GROUP_EVENT.name, fresh, transaction_id=f"group_event:{self._cluster}",
                transaction_version=tables.to_ms(newest),
            )  # fmt: skip
        self._looks, self._compared = looks, newest
        return len(fresh)

    def _compare(self, looks: dict[str, GroupLook], window: Sequence[Row]) -> Iterator[Row]:
        """Events of one window; `looks` becomes what was seen in it. Rows of one group come one after another."""
        for group, listed in groupby(window, key=lambda row: str(row["group_id"])):
            look = _look(list(listed))
            before, looks[group] = looks.get(group), look
            for event in group_events([before, look]) if before is not None else ():
                yield {
                    "kafka_cluster": self._cluster,
                    "window_start": window[0]["window_start"],
                    "group_id": group,
                    **_columns(event, look),
                }

    def _look_back(self) -> datetime | None:
        """Where to begin after a start: so many windows before the newest there are."""
        delta = tables.open_table(self._root, GROUP_LAG.name)
        actions = pa.table(delta.get_add_actions(flatten=True)) if delta is not None else None
        if actions is None or "max.window_start" not in actions.column_names:
            return None
        newest: datetime | None = pc.max(actions["max.window_start"]).as_py()
        if newest is None:
            return None
        aware = newest if newest.tzinfo else newest.replace(tzinfo=UTC)
        return aware - timedelta(milliseconds=LOOK_BACK_WINDOWS * self._window_ms)

    def _not_kept(self, events: Sequence[Row]) -> Sequence[Row]:
        """After a start: events of windows later than the newest that has any."""
        if not events:
            return events
        where = (pc.field("kafka_cluster") == self._cluster) & (pc.field("window_start") >= events[0]["window_start"])
        kept = tables.read(self._root, GROUP_EVENT.name, columns=["window_start"], where=where)
        newest = max((row["window_start"] for row in kept), default=None)
        return [event for event in events if newest is None or event["window_start"] > newest]


def _windows(rows: list[dict[str, Any]]) -> Iterator[Sequence[Row]]:
    """Rows by window, oldest first; within one by group."""
    rows.sort(key=lambda row: (row["window_start"], row["group_id"]))
    for _, window in groupby(rows, key=lambda row: row["window_start"]):
        yield list(window)


def _look(rows: Sequence[Row]) -> GroupLook:
    """The newest sample of a group's window, of all partitions that it had."""
    at_ms = max(row["last_event_time_ms"] for row in rows)
    sample = [row for row in rows if row["last_event_time_ms"] == at_ms]
    owners = {(row["topic"], row["partition"]): row["member_id"] for row in sample}
    return GroupLook(at_ms, sample[0]["group_state"], owners, sample[0]["generation_id"])


def _columns(event: GroupEvent, look: GroupLook) -> Row:
    return {
        "after_ms": event.after_ms,
        "until_ms": event.until_ms,
        "cause": event.cause.value,
        "group_state": look.state,
        "generation_id": look.generation_id,
        "rebalances": event.rebalances,
        "members": len(look.members),
        "members_in_json": json.dumps(event.members_in),
        "members_out_json": json.dumps(event.members_out),
        "restarts": len(event.restarted),
        "partitions_moved": event.partitions_moved,
        "partitions_unowned": event.partitions_unowned,
    }
