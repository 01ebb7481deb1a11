"""Which hot brokers have consumers that fall behind: what makes the trigger ask for less evidence.

Reads `group_lag` only of topics that those brokers lead, and only when asked; old samples count for nothing.
"""

from collections.abc import Iterable

from assignor_core.lag import LagStatus, PartitionVerdict, brokers_falling_behind
from assignor_core.live import LiveCluster
from streaming import tables
from streaming.control.windows import WindowTables
from streaming.views.lag_windows import read_picture


def groups_behind(
    window_tables: WindowTables, live: LiveCluster, hot: Iterable[int], *, now_ms: int, stale_after_ms: int
) -> dict[int, str]:
    """Of the `hot` brokers those with groups that read from them and fall behind, with the groups in words."""
    brokers = frozenset(hot)
    leaders = {key: row.leader for key, row in live.partitions.items() if row.leader in brokers}
    if not leaders:
        return {}
    picture = read_picture(
        tables.TableReader(window_tables.root),
        window_tables.kafka_cluster,
        window_ms=window_tables.window_ms,
        where=tables.one_of("topic", sorted({topic for topic, _ in leaders})),
    )
    if picture is None or now_ms - picture.newest_event_ms > stale_after_ms:
        return {}
    columns = picture.partitions.select(["group_id", "topic", "partition", "status", "lag_records"]).to_pylist()
    verdicts = (
        PartitionVerdict(row["group_id"], row["topic"], row["partition"], LagStatus(row["status"]), row["lag_records"])
        for row in columns
    )
    return {broker: str(behind) for broker, behind in brokers_falling_behind(verdicts, leaders).items()}
