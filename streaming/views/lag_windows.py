"""Reads the windows of `group_lag` that verdicts rest on: of most of them only what shows how offsets went.

Who owned a partition, the group's state and the lag are shown of the newest windows alone. They are most of a row's
bytes, and a cluster of 10,000 groups has millions of rows within the look-back.
"""

from datetime import datetime, timedelta

import pyarrow as pa

from streaming.tables import ALL_ROWS, Condition, TableReader, at_least, below, of_cluster
from streaming.views.group_lag import COLUMNS, CURRENT_WINDOWS, KEY, LagPicture, judge, since

OFFSETS = (
    *KEY, "committed_offset", "committed_offset_first", "log_end_offset", "log_end_offset_first", "window_start",
    "first_event_time_ms", "last_event_time_ms",
)  # fmt: skip
"""What is read of windows before the current ones; the other columns are null there."""


def read_picture(
    reader: TableReader, kafka_cluster: str, *, window_ms: int, where: Condition = ALL_ROWS
) -> LagPicture | None:
    """Partitions with a sample in the newest windows of the cluster that fulfil `where`, with their verdicts; None
    before there are any. Raises TableUnavailable.
    """
    newest = reader.newest_of_cluster("group_lag", "window_start", kafka_cluster)
    if newest is None:
        return None
    own = of_cluster(kafka_cluster) & where
    return judge(_rows(reader, own, newest, window_ms), window_ms=window_ms, newest_start=newest)


def _rows(reader: TableReader, own: Condition, newest: datetime, window_ms: int) -> pa.Table:
    current = newest - timedelta(milliseconds=CURRENT_WINDOWS * window_ms)
    before = at_least("window_start", since(newest, window_ms=window_ms)) & below("window_start", current)
    shown = reader.arrow("group_lag", columns=COLUMNS, where=own & at_least("window_start", current))
    offsets = reader.arrow("group_lag", columns=OFFSETS, where=own & before)
    return pa.concat_tables([shown, offsets], promote_options="default")
