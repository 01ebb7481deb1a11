"""Computes the time up to which the rows of tables prove that a clock is right: rows must not expire by a clock that is
ahead.

A clock that is ahead by years, for an hour, would delete all history at the next upkeep, and rows that were written
meanwhile carry its times. So a time counts once rows have been written for a while after it. What is right for longer
than that expires at most that much later.
"""

from collections.abc import Mapping
from datetime import timedelta

from streaming.tables.conditions import ALL_ROWS, Condition, at_most
from streaming.tables.reader import TableReader
from streaming.tables.times import to_ms


def proven_ms(
    reader: TableReader, times: Mapping[str, str], *, after_ms: int, now_ms: int, where: Condition = ALL_ROWS
) -> int | None:
    """The latest time, up to `now_ms`, of a row that is `after_ms` older than the newest; None where there is none.

    `times` are time columns by table: they prove it together. Raises TableUnavailable.
    """
    newest = [reader.newest(name, column, where=where) for name, column in times.items()]
    known = [time for time in newest if time is not None]
    if not known:
        return None
    before = max(known) - timedelta(milliseconds=after_ms)
    earlier = [reader.newest(name, column, where=where & at_most(column, before)) for name, column in times.items()]
    proven = [to_ms(time) for time in earlier if time is not None]
    return min(now_ms, max(proven)) if proven else None
