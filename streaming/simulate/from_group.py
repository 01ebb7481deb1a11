"""A scenario for a group that exists: its members, partitions and rates as the newest window of `group_lag` has them.

Owns the reading and what is assumed: a rolling restart, four ways. The strategy, timeouts and static ids are not in
the tables; they are Kafka's defaults until somebody who knows better edits the file.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from streaming.errors import UsageProblem
from streaming.tables import TableReader, at_least, equal, of_cluster
from streaming.views.group_history import SAMPLE_COLUMNS, sample_of

WINDOWS_BACK = 5
"""A group that has no sample in the newest windows is gone."""
RESTART_AFTER_S, DOWN_S, APART_S = 60, 8, 30

_COLUMNS = (
    *SAMPLE_COLUMNS, "log_end_offset", "log_end_offset_first", "first_event_time_ms",
)  # fmt: skip

Row = Mapping[str, Any]


def scenario_of_group(reader: TableReader, cluster_name: str, group: str, *, window_ms: int) -> dict[str, Any]:
    """The content of a scenario file; raises UsageProblem where the tables don't know the group or its members."""
    rows = _newest_window(reader, cluster_name, group, window_ms)
    sample = sample_of(rows)
    names = sorted({sample.name(member_id) for member_id in sample.members})
    members = len(sample.members)
    if not members:
        raise UsageProblem(f"--group {group}: nobody owned its partitions in the newest window, needs a running group")
    by_topic: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_topic[row["topic"]].append(row)
    topics = {topic: _topic(listed) for topic, listed in sorted(by_topic.items())}
    seen_at = f"{rows[0]['window_start']:%Y-%m-%d %H:%M}"
    # Members that share a client id are numbered.
    members_of_file = {"names": names} if len(names) == members else {"count": members, "prefix": "member"}
    return {
        "title": f"Rolling restart of {group}",
        "about": f"The group as it was at {seen_at} UTC; each member is away for {DOWN_S} s.",
        "seed": 1,
        "show_from_s": RESTART_AFTER_S - 10,
        "topics": topics,
        "network": {"delay_ms": 2, "jitter_ms": 4},
        "members": {**members_of_file, "topics": list(topics)},
        "events": [{"at_s": RESTART_AFTER_S, "rolling_restart": {"down_s": DOWN_S, "apart_s": APART_S}}],
        "variants": {
            "eager": {"members": {"strategies": ["range"]}},
            "cooperative": {"members": {"strategies": ["cooperative-sticky"]}},
            "static": {"members": {"strategies": ["cooperative-sticky"], "static": True}},
            "consumer protocol": {"members": {"protocol": "consumer"}},
        },
    }


def _newest_window(reader: TableReader, cluster_name: str, group: str, window_ms: int) -> list[Row]:
    newest = reader.newest_of_cluster("group_lag", "window_start", cluster_name)
    if newest is None:
        raise UsageProblem(f"--group {group}: no window of group_lag in the tables yet")
    since = newest - timedelta(milliseconds=WINDOWS_BACK * window_ms)
    lately = of_cluster(cluster_name) & at_least("window_start", since)
    rows = reader.rows("group_lag", columns=_COLUMNS, where=lately & equal("group_id", group))
    if not rows:
        known = sorted({row["group_id"] for row in reader.rows("group_lag", columns=("group_id",), where=lately)})
        raise UsageProblem(
            f"--group {group}: not in the newest windows, which have {', '.join(known[:10]) or 'no group'}"
        )
    latest = max(row["window_start"] for row in rows)
    return [row for row in rows if row["window_start"] == latest]


def _topic(rows: Sequence[Row]) -> dict[str, Any]:
    """Partitions that exist, as far as the group shows, and the mean rate at which they are written."""
    rates = [rate for rate in map(_records_per_sec, rows) if rate is not None]
    return {
        "partitions": max(row["partition"] for row in rows) + 1,
        "records_per_sec": round(sum(rates) / len(rates), 3) if rates else 0.0,
    }


def _records_per_sec(row: Row) -> float | None:
    """Returns the records per second of a window; None for a window with one sample, or without offsets."""
    span_ms: int = row["last_event_time_ms"] - row["first_event_time_ms"]
    first: int | None = row["log_end_offset_first"]
    last: int | None = row["log_end_offset"]
    if span_ms <= 0 or first is None or last is None:
        return None
    return max(0.0, (last - first) * 1000 / span_ms)
