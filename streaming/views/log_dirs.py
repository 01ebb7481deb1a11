"""Rows of `log_dir`: how full each log dir of each broker is, and whether it takes replicas. Control writes them."""

from dataclasses import dataclass
from typing import Any

from assignor_core.disks import LogDirDescription, LogDirs
from streaming.contract import LOG_DIR
from streaming.tables import TableReader, of_cluster, to_ms, utc

ONLINE, CORDONED, OFFLINE = "online", "cordoned", "offline"


@dataclass(frozen=True, slots=True)
class LogDirState:
    """One log dir as it was shown last; bytes are None where the broker does not show them."""

    broker: int
    path: str
    event_ms: int
    state: str
    total_bytes: int | None
    usable_bytes: int | None

    @property
    def used_share(self) -> float | None:
        """Used share of the log dir's volume, 0 to 1, by any program; None if unknown."""
        return LogDirDescription(self.path, self.total_bytes, self.usable_bytes).used_share


def read_log_dirs(reader: TableReader, kafka_cluster: str) -> tuple[LogDirState, ...]:
    """Each log dir by broker and path; none before the first evaluation. Raises TableUnavailable."""
    rows = reader.rows(LOG_DIR.name, where=of_cluster(kafka_cluster))
    states = (
        LogDirState(
            row["broker"],
            row["path"],
            to_ms(row["event_time"]),
            row["state"],
            row["total_bytes"],
            row["usable_bytes"],
        )
        for row in rows
    )
    return tuple(sorted(states, key=lambda state: (state.broker, state.path)))


def log_dir_rows(log_dirs: LogDirs, kafka_cluster: str, *, now_ms: int) -> list[dict[str, Any]]:
    """One row for each log dir."""
    return [
        {
            "kafka_cluster": kafka_cluster,
            "broker": broker,
            "path": row.path,
            "event_time": utc(now_ms),
            "state": OFFLINE if row.is_offline else CORDONED if row.is_cordoned else ONLINE,
            "total_bytes": row.total_bytes,
            "usable_bytes": row.usable_bytes,
        }
        for broker, rows in sorted(log_dirs.items())
        for row in rows
    ]
