"""Which hot brokers have consumers that fall behind: what makes the trigger ask for less evidence.

Reads `group_lag` only of topics that those brokers lead, and only when asked; old samples count for nothing.
"""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from assignor_core.lag import LagStatus, PartitionVerdict, brokers_falling_behind
from assignor_core.live import LiveCluster, PartitionKey
from streaming import tables
from streaming.control.windows import WindowTables
from streaming.views.group_store import read_picture

COLUMNS = ["group_id", "topic", "partition", "status", "lag_records"]
BATCH_ROWS = 10_000


def groups_behind(
    window_tables: WindowTables, live: LiveCluster, hot: Iterable[int], *, now_ms: int, stale_after_ms: int
) -> dict[int, str]:
    """Returns the brokers among `hot` with groups that read from them and fall behind, with the groups in words."""
    brokers = frozenset(hot)
    leaders = {key: row.leader for key, row in live.partitions.items() if row.leader in brokers}
    if not leaders:
        return {}
    picture = read_picture(
        tables.TableReader(window_tables.root),
        window_tables.kafka_cluster,
        window_ms=window_tables.window_ms,
        where=tables.one_of("topic", sorted({topic for topic, _ in leaders})),
        verdicts_only=True,
        rules=window_tables.rules,
    )
    if picture is None or now_ms - picture.newest_event_ms > stale_after_ms:
        return {}
    rows = _led(picture.partitions, leaders)
    return {broker: str(behind) for broker, behind in brokers_falling_behind(_verdicts(rows), leaders).items()}


def _led(partitions: pa.Table, leaders: Mapping[PartitionKey, int]) -> pa.Table:
    """Rows of partitions that have a leader among `leaders`: of a topic these may be few."""
    topics, numbers = zip(*leaders, strict=True)
    led = pa.table({"topic": pa.array(topics, pa.string()), "partition": pa.array(numbers, pa.int32())})
    rows = partitions.select(COLUMNS)
    rows = rows.set_column(COLUMNS.index("topic"), "topic", rows["topic"].cast(pa.string()))
    return rows.join(led, ["topic", "partition"], join_type="left semi").combine_chunks()


def _verdicts(rows: pa.Table) -> Iterator[PartitionVerdict]:
    """One after the other: thousands of groups may read from a broker."""
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
        for group, topic, partition, status, lag in zip(*(column.to_pylist() for column in batch), strict=True):
            yield PartitionVerdict(group, topic, partition, LagStatus(status), lag)
