"""Windows of `group_lag` for tests: real Delta tables, one row a partition."""

import uuid
from pathlib import Path
from typing import Any

from streaming import tables
from streaming.tables import utc

WINDOW_MS = 60_000
START_MS = 1_795_236_000_000


def member(name: str, number: int) -> str:
    """A member id as the coordinator makes it: another number is another process."""
    return f"{name}-{uuid.UUID(int=number + 1)}"


def window(
    root: Path, number: int, group: str, owners: dict[int, str | None], *, final: bool = True, cluster: str = "main"
) -> None:
    """One window of a group; owners by partition."""
    start_ms = START_MS + number * WINDOW_MS
    rows: list[dict[str, Any]] = [
        {
            "kafka_cluster": cluster, "window_start": utc(start_ms), "window_end": utc(start_ms + WINDOW_MS),
            "group_id": group, "topic": "t", "partition": partition, "member_id": owner, "group_state": "Stable",
            "log_end_offset_first": 1_000, "log_end_offset": 1_600,
            "sample_count": 2, "first_event_time_ms": start_ms, "last_event_time_ms": start_ms + 30_000,
            "is_final": final, "batch_id": number, "query_id": "q", "updated_at": utc(start_ms + WINDOW_MS),
        }
        for partition, owner in owners.items()
    ]  # fmt: skip
    written = f"{cluster}-{group}-{number}-{final}"
    tables.append(str(root), "group_lag", rows, transaction_id=written, transaction_version=number)
