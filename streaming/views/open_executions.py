"""Executions that have not ended, for control, which asks at every tick: a look costs what is new, not what has been.

Rows are dated by whoever writes them, a person's machine too, and its clock may be behind. So a look takes in the rows
of the last minute anew, and once a minute all rows are looked at.
"""

from typing import Any

from assignor_core.execution.life_cycle import Execution
from streaming import tables
from streaming.views.executions import by_age, grown, read_open_executions

TABLE = "execution"
CLOCKS_APART_MS = 60_000
"""Rows that a clock dates so much too early are seen at once."""
WHOLE_LOOK_INTERVAL_MS = 60_000
"""All other rows are seen within this time."""


class OpenExecutions:
    """Those of one Kafka cluster. Keep it, and ask again and again; not for two threads."""

    def __init__(self, root: str, kafka_cluster: str) -> None:
        self._kafka_cluster = kafka_cluster
        self._reader = tables.TableReader(root)
        self._known: dict[str, Execution] = {}
        """What was open at the last look at all rows, or has changed since."""
        self._version: int | None = None
        self._looked_ms = 0
        self._whole_version: int | None = None
        self._whole_ms: int | None = None

    def read(self, *, now_ms: int) -> list[Execution]:
        """What has started comes first, then approvals, the oldest first. Raises TableUnavailable."""
        self._reader.look_again()
        version = self._reader.version(TABLE)
        if version is None or self._is_whole_look_due(version, now_ms):
            known_open = None if self._whole_ms is None else [row.execution_id for row in self._open()]
            rows = read_open_executions(self._reader, self._kafka_cluster, now_ms=now_ms, known_open=known_open)
            self._known = {row.execution_id: row for row in rows}
            self._whole_version, self._whole_ms = version, None if version is None else now_ms
        elif version != self._version:
            self._take_in_new_rows(self._version or 0, min(now_ms, self._looked_ms))
        self._version, self._looked_ms = version, now_ms
        return sorted(self._open(), key=lambda row: (row.waiting, by_age(row)))

    def _open(self) -> list[Execution]:
        return [row for row in self._known.values() if not row.ended]

    def _is_whole_look_due(self, version: int, now_ms: int) -> bool:
        if self._whole_ms is None:
            return True
        return version != self._whole_version and abs(now_ms - self._whole_ms) >= WHOLE_LOOK_INTERVAL_MS

    def _take_in_new_rows(self, version: int, since_ms: int) -> None:
        since = tables.utc(max(0, since_ms - CLOCKS_APART_MS))
        where = tables.of_cluster(self._kafka_cluster) & tables.at_least("event_time", since)
        rows = self._reader.rows_since(TABLE, version, where=where)
        changed = list(grown(self._known, rows, self._whole_history))
        self._known |= {execution.execution_id: execution for _, execution in changed}

    def _whole_history(self, execution_id: str) -> list[dict[str, Any]]:
        return self._reader.rows(TABLE, where=tables.equal("execution_id", execution_id))
