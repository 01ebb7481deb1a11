"""Hours and days out of windows: small tables that stay for years while the windows expire. Without Spark.

A period is rolled up once it is closed, from all of its windows, in one commit that carries the period: the same again
writes nothing. What is still to be made, and which windows are needed for it, follows from the two tables alone. A
rollup whose folder is removed is made again from the windows there are. A day of a large cluster is never in memory:
windows are read `ROWS_AT_A_TIME` at a time, and what was read becomes one row per key.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyarrow import compute as pc
from pyarrow import dataset as ds

from streaming import tables
from streaming.contract import (
    BROKER_LOAD,
    BROKER_LOAD_DAILY,
    BROKER_LOAD_HOURLY,
    GROUP_LAG,
    GROUP_LAG_DAILY,
    PARTITION_LOAD,
    PARTITION_LOAD_DAILY,
    PARTITION_LOAD_HOURLY,
    Table,
)
from streaming.contract.rates import RATE_NAMES, RATES, REPLICA_RATES
from streaming.contract.records import BROKER_STATES, REPLICA_STATES
from streaming.settings import DAY_MS, HOUR_MS

ROWS_AT_A_TIME = 1_000_000
"""Windows' rows that are in memory at once: some 400 MB. An hour of 300,000 replicas has 18 million."""


@dataclass(frozen=True, slots=True)
class Rollup:
    """How `target` comes of `source`: its columns by how they are made, each out of the column named."""

    source: Table
    target: Table
    period_ms: int
    means: tuple[str, ...] = ()
    """Columns that are means over the windows in which their value is known."""
    maxima: tuple[tuple[str, str], ...] = ()
    """(column, of which column)."""
    firsts: tuple[str, ...] = ()
    lasts: tuple[str, ...] = ()
    """The newest that is known."""
    sums: tuple[str, ...] = ()
    of_leaders: bool = False
    """Whether the rollup reads rows of leaders alone, whichever broker led."""

    @property
    def key(self) -> tuple[str, ...]:
        """What identifies a row within one period."""
        return tuple(name for name in self.target.key if name != self.target.time_column)


def _of_brokers(target: Table, period_ms: int) -> Rollup:
    return Rollup(
        BROKER_LOAD, target, period_ms, means=RATE_NAMES, sums=("covered_ms",),
        maxima=tuple(
            (rate.maximum, rate.maximum if rate.has_sample_max else rate.name) for rate in RATES if rate.has_period_max
        ),
        lasts=tuple(field.name for field in BROKER_STATES),
    )  # fmt: skip


ROLLUPS = (
    _of_brokers(BROKER_LOAD_HOURLY, HOUR_MS),
    _of_brokers(BROKER_LOAD_DAILY, DAY_MS),
    Rollup(
        PARTITION_LOAD, PARTITION_LOAD_HOURLY, HOUR_MS,
        means=tuple(rate.name for rate in REPLICA_RATES), sums=("covered_ms",), of_leaders=True,
    ),
    Rollup(
        PARTITION_LOAD, PARTITION_LOAD_DAILY, DAY_MS,
        means=tuple(rate.name for rate in REPLICA_RATES), sums=("covered_ms",),
        maxima=tuple((rate.maximum, rate.name) for rate in REPLICA_RATES if rate.has_period_max),
        lasts=tuple(field.name for field in REPLICA_STATES),
    ),
    Rollup(
        GROUP_LAG, GROUP_LAG_DAILY, DAY_MS, means=("lag_records_mean",),
        maxima=(("lag_records_max", "lag_records_max"),),
        firsts=("committed_offset_first", "log_end_offset_first"),
        lasts=("lag_records", "committed_offset", "log_end_offset"),
    ),
)  # fmt: skip
_SOURCE_OF_MEAN = {"lag_records_mean": "lag_records"}
"""Source columns of means that have another name than the column they are the mean of."""


def rollups_of(table: Table) -> tuple[Rollup, ...]:
    """What is made out of this table."""
    return tuple(rollup for rollup in ROLLUPS if rollup.source is table)


class RollingUp:
    """Keeps one rollup up to date, a period at a time."""

    def __init__(self, root: str, rollup: Rollup, *, watermark_ms: int, kept_ms: int) -> None:
        """Periods that ended longer ago than `kept_ms`, how long rows of the target are kept, are not made."""
        self._kept_ms = kept_ms
        self._rollup = rollup
        self._root = root
        self._watermark_ms = watermark_ms

    @property
    def target(self) -> str:
        """Name of the table that it makes."""
        return self._rollup.target.name

    def make_next(self, now_ms: int) -> bool:
        """Make the oldest period that is closed and not made yet; False if there is none. Makes the table, too.

        `now_ms` becomes the rows' `updated_at`. Raises TableUnavailable, DeltaError, OSError or ArrowException.
        """
        target = tables.create_table(self._root, self.target)
        source = tables.current_table(self._root, self._rollup.source.name)
        newest_ms = None if source is None else _newest_event_ms(source)
        if source is None or newest_ms is None:
            return False
        since_ms = self._since_ms(target, newest_ms)
        first = _first_start(source, tables.utc(since_ms))
        if first is None:
            return False
        length_ms = self._rollup.period_ms
        start_ms = tables.to_ms(first) - tables.to_ms(first) % length_ms
        if newest_ms < start_ms + length_ms + self._watermark_ms:
            return False
        end = tables.utc(start_ms + length_ms)
        windows = source.to_pyarrow_dataset(file_pruning_predicate=_between(tables.utc(start_ms), end))
        rows = rolled_up(windows, self._rollup, start_ms, now_ms=now_ms)
        transaction = Transaction(self._transaction_id, start_ms)
        properties = CommitProperties(app_transactions=[transaction])
        write_deltalake(target, tables.with_columns_of(target, rows), mode="append", commit_properties=properties)
        return True

    def needed_since(self, source: DeltaTable) -> datetime:
        """Start of the first period that may still be made: windows from there on must stay. Raises as `make_next`."""
        newest_ms = _newest_event_ms(source)
        target = tables.current_table(self._root, self.target)
        return tables.utc(0 if newest_ms is None or target is None else self._since_ms(target, newest_ms))

    def _since_ms(self, target: DeltaTable, newest_ms: int) -> int:
        length_ms, kept_since_ms = self._rollup.period_ms, newest_ms - self._kept_ms
        done_ms = target.transaction_version(self._transaction_id)
        return max(0 if done_ms is None else done_ms + length_ms, kept_since_ms - kept_since_ms % length_ms)

    @property
    def _transaction_id(self) -> str:
        return f"rollup:{self.target}"


def rolled_up(windows: ds.Dataset, rollup: Rollup, period_start_ms: int, *, now_ms: int) -> pa.Table:
    """Rows of the target for one period, one per key, in the target's columns; `now_ms` is their `updated_at`."""
    parts: pa.Table | None = None
    for since_ms, until_ms in _pieces(windows, period_start_ms, period_start_ms + rollup.period_ms):
        chosen = _starts_between(since_ms, until_ms)
        if rollup.of_leaders:
            chosen &= pc.field("role") == "leader"
        rows = windows.to_table(columns=_columns_read(rollup), filter=chosen)
        if rows.num_rows:
            part = _part(_with_summands(rows.sort_by("window_start"), rollup), rollup)
            parts = part if parts is None else _joined(pa.concat_tables([parts, part]), rollup)
    schema = tables.row_schema(rollup.target)
    if parts is None:
        return schema.empty_table()
    stamps = {
        "period_start": tables.utc(period_start_ms),
        "period_end": tables.utc(period_start_ms + rollup.period_ms),
        "updated_at": tables.utc(now_ms),
    }
    return _finished(parts, rollup, stamps).cast(schema)


def _pieces(windows: ds.Dataset, since_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
    """The time from `since_ms` to `until_ms` in pieces of at most `ROWS_AT_A_TIME` rows, or of one window if it has
    more; a window lies in the piece in which it starts. Each piece is as long as it may be: files that upkeep has
    joined are in the order of time only from one stretch of rows to the next, so a piece may read neighbours, too.
    """
    if windows.count_rows() <= ROWS_AT_A_TIME:  # of all files that are opened in any case, by their footers
        yield since_ms, until_ms
        return
    rows_of: Counter[int] = Counter()
    for batch in windows.to_batches(columns=["window_start"], filter=_starts_between(since_ms, until_ms)):
        for start in batch["window_start"].value_counts():
            rows_of[tables.to_ms(start["values"].as_py())] += start["counts"].as_py()
    begin_ms, rows = since_ms, 0
    for start_ms in sorted(rows_of):
        if rows and rows + rows_of[start_ms] > ROWS_AT_A_TIME:
            yield begin_ms, start_ms
            begin_ms, rows = start_ms, 0
        rows += rows_of[start_ms]
    if rows:
        yield begin_ms, until_ms


def _starts_between(since_ms: int, until_ms: int) -> pc.Expression:
    return (pc.field("window_start") >= tables.utc(since_ms)) & (pc.field("window_start") < tables.utc(until_ms))


def _between(since: datetime, until: datetime | None) -> str:
    """Windows that start from `since` on and before `until`, as SQL by which files are left out."""
    before = f" AND window_start < {tables.instant(until)}" if until else ""
    return f"window_start >= {tables.instant(since)}{before}"


def _newest_event_ms(source: DeltaTable) -> int | None:
    """Newest event time in the table, ms: that of its newest windows. None of a table without rows."""
    newest = pc.max(tables.file_statistics(source, "window_start")["greatest"]).as_py()
    if newest is None:
        return None
    windows = source.to_pyarrow_dataset(file_pruning_predicate=_between(newest, None))
    events = windows.to_table(["last_event_time_ms"], pc.field("window_start") >= newest)
    newest_ms: int = pc.max(events["last_event_time_ms"]).as_py()
    return newest_ms


def _first_start(source: DeltaTable, since: datetime) -> datetime | None:
    """Start of the oldest window from `since` on; None if there is none. Files that begin later are not opened."""
    files = tables.file_statistics(source, "window_start")
    later = pc.min(
        files["least"].filter(pc.greater_equal(files["least"], pa.scalar(since, files["least"].type)))
    ).as_py()
    windows = source.to_pyarrow_dataset(file_pruning_predicate=_between(since, later))
    chosen = pc.field("window_start") >= since
    starts = [
        pc.min(batch["window_start"]).as_py() for batch in windows.to_batches(columns=["window_start"], filter=chosen)
    ]
    return min((start for start in (*starts, later) if start is not None), default=None)


def _columns_read(rollup: Rollup) -> list[str]:
    named = (
        *rollup.key, "window_start", *(_SOURCE_OF_MEAN.get(name, name) for name in rollup.means),
        *(source for _, source in rollup.maxima), *rollup.firsts, *rollup.lasts, *rollup.sums,
    )  # fmt: skip
    return list(dict.fromkeys(named))


def _with_summands(rows: pa.Table, rollup: Rollup) -> pa.Table:
    """The rows with the summands of each mean as floats: offsets of a day may add up to over 64 bits."""
    for name in rollup.means:
        summands = tables.as_floats(rows[_SOURCE_OF_MEAN.get(name, name)])
        if name in rows.column_names:
            rows = rows.set_column(rows.column_names.index(name), name, summands)
        else:
            rows = rows.append_column(name, summands)
    return rows


def _part(rows: pa.Table, rollup: Rollup) -> pa.Table:
    """Windows in their order into one row per key that can be joined with others of the same."""
    wanted = [
        *((name, how) for name in rollup.means for how in ("sum", "count")),
        *((source, "max") for _, source in rollup.maxima),
        *((name, "first") for name in rollup.firsts),
        *((name, "last") for name in rollup.lasts),
        *((name, "sum") for name in rollup.sums),
        ("window_start", "count_distinct"),  # a partition has two rows in the window in which its leader changes
    ]
    # Without threads: first and last mean the order of the rows.
    return rows.group_by(list(rollup.key), use_threads=False).aggregate(list(dict.fromkeys(wanted)))


def _joined(parts: pa.Table, rollup: Rollup) -> pa.Table:
    """Two parts into one, the earlier first."""
    how_of = {"sum": "sum", "count": "sum", "distinct": "sum", "max": "max", "first": "first", "last": "last"}
    columns = [name for name in parts.column_names if name not in rollup.key]
    wanted = [(name, how_of[name.rpartition("_")[2]]) for name in columns]
    joined = parts.group_by(list(rollup.key), use_threads=False).aggregate(wanted)
    return joined.select([*rollup.key, *(f"{name}_{how}" for name, how in wanted)]).rename_columns(
        [*rollup.key, *columns]
    )


def _finished(parts: pa.Table, rollup: Rollup, stamps: Mapping[str, datetime]) -> pa.Table:
    columns = {name: parts[name] for name in rollup.key}
    for name in rollup.means:
        count = tables.as_floats(parts[f"{name}_count"])
        columns[name] = pc.divide(parts[f"{name}_sum"], pc.if_else(pc.greater(count, 0), count, None))
    columns |= {name: parts[f"{source}_max"] for name, source in rollup.maxima}
    columns |= {name: parts[f"{name}_first"] for name in rollup.firsts}
    columns |= {name: parts[f"{name}_last"] for name in rollup.lasts}
    columns |= {name: parts[f"{name}_sum"] for name in rollup.sums}
    columns["window_count"] = parts["window_start_count_distinct"]
    for name, moment in stamps.items():
        columns[name] = pa.array([moment] * parts.num_rows, pa.timestamp("us", tz="UTC"))
    return pa.table({name: columns[name] for name in rollup.target.column_names()})
