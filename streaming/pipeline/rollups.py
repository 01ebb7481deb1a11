"""Hours and days out of windows: small tables that stay for years while the windows expire. Without Spark.

A period is rolled up once it is closed, from all of its windows, in one commit that carries the period: the same again
writes nothing. The caller learns which period is not rolled up yet, and keeps its windows. A rollup whose folder is
removed is made again from the windows there are. Windows are read by the hour: a day of a large cluster is never in
memory, only what an hour holds and one row per key.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyarrow import compute as pc
from pyarrow import dataset as ds

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
from streaming.tables import as_floats, create_table, opened, row_schema, table_uri, to_ms, utc, with_columns_of


@dataclass(frozen=True, slots=True)
class Rollup:
    """How `target` comes of `source`: its columns by how they are made, each out of the column named."""

    source: Table
    target: Table
    period_ms: int
    means: tuple[str, ...] = ()
    """Of the windows in which it is known."""
    maxima: tuple[tuple[str, str], ...] = ()
    """(column, of which column)."""
    firsts: tuple[str, ...] = ()
    lasts: tuple[str, ...] = ()
    """The newest that is known."""
    sums: tuple[str, ...] = ()
    of_leaders: bool = False
    """Of rows of leaders alone, whichever broker led."""

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
"""Where a mean has another name than what it is of."""


def rollups_of(table: Table) -> tuple[Rollup, ...]:
    """What is made out of this table."""
    return tuple(rollup for rollup in ROLLUPS if rollup.source is table)


class RollingUp:
    """Keeps one rollup up to date; to be run by the writer of its source, between two writes."""

    def __init__(self, root: str, rollup: Rollup, *, watermark_ms: int, kept_ms: int) -> None:
        """Periods that ended longer ago than `kept_ms`, how long rows of the target are kept, are not made."""
        self._kept_ms = kept_ms
        self._rollup = rollup
        self._root = root
        self._watermark_ms = watermark_ms
        create_table(self._root, rollup.target.name)

    def run(self, source: DeltaTable, *, now_ms: int, budget_ms: int) -> datetime | None:
        """Roll up closed periods that are not rolled up yet; begin none after `budget_ms`.

        Returns the start of the first period that is left, None if none is. `now_ms` becomes the rows' `updated_at`.
        """
        began = time.monotonic()
        target = opened(table_uri(self._root, self._rollup.target.name))
        done = target.transaction_version(self._transaction_id)
        since = utc(0 if done is None else done + self._rollup.period_ms)
        windows = source.to_pyarrow_dataset()
        starts, newest_ms = _extent(windows, since)
        for period_start in sorted({start - start % self._rollup.period_ms for start in starts}):
            is_open = newest_ms < period_start + self._rollup.period_ms + self._watermark_ms
            if period_start + self._rollup.period_ms <= newest_ms - self._kept_ms:
                continue
            if is_open or (time.monotonic() - began) * 1000 > budget_ms:
                return utc(period_start)
            self._write(target, rolled_up(windows, self._rollup, period_start, now_ms=now_ms), period_start)
        return None

    @property
    def target(self) -> str:
        """Name of the table that it makes."""
        return self._rollup.target.name

    @property
    def _transaction_id(self) -> str:
        return f"rollup:{self._rollup.target.name}"

    def _write(self, target: DeltaTable, rows: pa.Table, period_start_ms: int) -> None:
        transaction = Transaction(self._transaction_id, period_start_ms)
        properties = CommitProperties(app_transactions=[transaction])
        write_deltalake(target, with_columns_of(target, rows), mode="append", commit_properties=properties)


def rolled_up(windows: ds.Dataset, rollup: Rollup, period_start_ms: int, *, now_ms: int) -> pa.Table:
    """Rows of the target for one period, one per key, in the target's columns; `now_ms` is their `updated_at`."""
    parts: pa.Table | None = None
    for start_ms in range(period_start_ms, period_start_ms + rollup.period_ms, HOUR_MS):
        hour = (pc.field("window_start") >= utc(start_ms)) & (pc.field("window_start") < utc(start_ms + HOUR_MS))
        if rollup.of_leaders:
            hour &= pc.field("role") == "leader"
        rows = windows.to_table(columns=_columns_read(rollup), filter=hour)
        if rows.num_rows:
            part = _part(_with_summands(rows.sort_by("window_start"), rollup), rollup)
            parts = part if parts is None else _joined(pa.concat_tables([parts, part]), rollup)
    schema = row_schema(rollup.target)
    if parts is None:
        return schema.empty_table()
    stamps = {
        "period_start": utc(period_start_ms),
        "period_end": utc(period_start_ms + rollup.period_ms),
        "updated_at": utc(now_ms),
    }
    return _finished(parts, rollup, stamps).cast(schema)


def _extent(windows: ds.Dataset, since: datetime) -> tuple[set[int], int]:
    """Starts of the windows from `since` on, ms, and the newest event time among them."""
    starts: set[int] = set()
    newest_ms = 0
    for batch in _batches(windows, since):
        starts.update(to_ms(start.as_py()) for start in pc.unique(batch["window_start"]))
        newest_ms = max(newest_ms, pc.max(batch["last_event_time_ms"]).as_py())
    return starts, newest_ms


def _batches(windows: ds.Dataset, since: datetime) -> Iterator[pa.RecordBatch]:
    columns = ["window_start", "last_event_time_ms"]
    batches = windows.to_batches(columns=columns, filter=pc.field("window_start") >= since)
    return (batch for batch in batches if batch.num_rows)


def _columns_read(rollup: Rollup) -> list[str]:
    named = (
        *rollup.key, "window_start", *(_SOURCE_OF_MEAN.get(name, name) for name in rollup.means),
        *(source for _, source in rollup.maxima), *rollup.firsts, *rollup.lasts, *rollup.sums,
    )  # fmt: skip
    return list(dict.fromkeys(named))


def _with_summands(rows: pa.Table, rollup: Rollup) -> pa.Table:
    """With a column of floats by the name of each mean: a day of offsets may add up to more than 64 bits hold."""
    for name in rollup.means:
        summands = as_floats(rows[_SOURCE_OF_MEAN.get(name, name)])
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
        count = as_floats(parts[f"{name}_count"])
        columns[name] = pc.divide(parts[f"{name}_sum"], pc.if_else(pc.greater(count, 0), count, None))
    columns |= {name: parts[f"{source}_max"] for name, source in rollup.maxima}
    columns |= {name: parts[f"{name}_first"] for name in rollup.firsts}
    columns |= {name: parts[f"{name}_last"] for name in rollup.lasts}
    columns |= {name: parts[f"{name}_sum"] for name in rollup.sums}
    columns["window_count"] = parts["window_start_count_distinct"]
    for name, moment in stamps.items():
        columns[name] = pa.array([moment] * parts.num_rows, pa.timestamp("us", tz="UTC"))
    return pa.table({name: columns[name] for name in rollup.target.column_names()})
