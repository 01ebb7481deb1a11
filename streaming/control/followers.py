"""What followers serve to consumers, from the windows of the tables: bytes/s by replica, and readers by rack.

Most clusters have no such consumers: one look at the newest window shows that, and nothing else is read then.
"""

from collections import defaultdict
from collections.abc import Mapping

import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.live import PartitionKey
from assignor_core.live_plans.measured_loads import NO_FOLLOWERS, FollowerLoads
from assignor_core.load_history.windows import ClosedWindow
from streaming import tables
from streaming.contract.rates import BYTES_OUT, MESSAGES_IN
from streaming.control.windows import WindowTables

COMMITTED = ("committed_offset_first", "committed_offset")
LOG_END = ("log_end_offset_first", "log_end_offset")
"""Columns with the log end offset of a window's first sample and of its newest sample."""
TOPICS_MAX = 200
"""Topics that a condition names; of more the rows of all topics are read."""


def follower_loads(window_tables: WindowTables, windows: tuple[ClosedWindow, ...]) -> FollowerLoads:
    """Means over `windows` of what followers serve, and what groups have read of those partitions by rack.

    The row of a replica that led within a window and follows at its end holds bytes that it sent as the leader. Only
    leaders have a rate of records: a row of a follower with such a rate is left out.
    """
    root, out = window_tables.root, BYTES_OUT.name
    of_followers = tables.of_cluster(window_tables.kafka_cluster) & tables.equal("role", "follower")
    newest = tables.equal("window_start", tables.utc(windows[-1].start_ms))
    only_followed = pc.is_null(pc.field(MESSAGES_IN.name))
    columns = ["window_start", "broker", "topic", "partition", out, MESSAGES_IN.name]
    serving = tables.read_arrow(
        root, "partition_load", columns=columns, where=of_followers & newest & tables.above(out, 0)
    ).filter(only_followed)
    if not serving.num_rows:
        return NO_FOLLOWERS
    topics = sorted(set(serving["topic"].to_pylist()))
    span = tables.at_least("window_start", tables.utc(windows[0].start_ms)) & tables.at_most(
        "window_start", tables.utc(windows[-1].start_ms)
    )
    if len(topics) <= TOPICS_MAX:
        span &= tables.one_of("topic", topics)
    keys = set(_keys(serving))
    rows = tables.read_arrow(
        root, "partition_load", columns=columns, where=of_followers & span & tables.at_least(out, 0)
    ).filter(only_followed)
    in_order = rows.sort_by([("window_start", "ascending")])
    means = in_order.group_by(["topic", "partition", "broker"], use_threads=False).aggregate([(out, "mean")])
    served: dict[PartitionKey, dict[int, float]] = defaultdict(dict)
    for key, broker, rate in zip(
        _keys(means), means["broker"].to_pylist(), means[f"{out}_mean"].to_pylist(), strict=True
    ):
        if key in keys:
            served[key][broker] = rate
    return FollowerLoads(dict(served), _read_by_rack(window_tables, span, keys))


def _read_by_rack(
    window_tables: WindowTables, span: tables.Condition, keys: set[PartitionKey]
) -> dict[PartitionKey, Mapping[str | None, float]]:
    """Records that groups committed within the windows, by the rack of the member that owned the partition."""
    if not tables.table_exists(window_tables.root, "group_lag"):
        return {}
    columns = ["window_start", "topic", "partition", "rack_id", *COMMITTED, *LOG_END]
    where = tables.of_cluster(window_tables.kafka_cluster) & span
    rows = tables.read_arrow(window_tables.root, "group_lag", columns=columns, where=where)
    records_read = _records_read(rows)
    rows = rows.append_column("records_read", records_read).filter(pc.greater(records_read, 0))
    sums = rows.group_by(["topic", "partition", "rack_id"], use_threads=False).aggregate([("records_read", "sum")])
    read: dict[PartitionKey, dict[str | None, float]] = defaultdict(dict)
    for key, rack, records in zip(
        _keys(sums), sums["rack_id"].to_pylist(), sums["records_read_sum"].to_pylist(), strict=True
    ):
        if key in keys:
            read[key][rack] = float(records)
    return dict(read)


def _records_read(rows: pa.Table) -> pa.ChunkedArray:
    """Returns the records that each group has read, by the progress of its commits. Commits are cut to the ends of the
    log where both are known: any client may commit an offset that the log will never reach.
    """
    first, last = (rows[name] for name in COMMITTED)
    end_first, end_last = (rows[name] for name in LOG_END)
    known = pc.and_(pc.is_valid(end_first), pc.is_valid(end_last))
    within = (
        pc.if_else(known, pc.min_element_wise(offset, end), offset)
        for offset, end in ((last, end_last), (first, end_first))
    )
    return pc.if_else(pc.equal(first, last), 0, pc.subtract(*within))


def _keys(rows: pa.Table) -> list[PartitionKey]:
    return list(zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True))
